"""The command line: `braze exec`, `build`, `inspect`, `check`, `compare`, `stages`."""
