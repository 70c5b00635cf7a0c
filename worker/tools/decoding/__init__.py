"""Readers of images and documents, which run in a limited child: see `child`. Imported only there."""
