"""The message layout as a pure function."""
