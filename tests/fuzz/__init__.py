"""Random graphs over the whole catalog, checked element by element; see `python -m tests.fuzz`."""
