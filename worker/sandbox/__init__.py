"""The sandbox in which an agent's commands run: see `detect` for how one is chosen, docs/tools.md for what it holds."""
