"""These tests give engines addresses of the host, so they build for it where there is a GPU too."""

from __future__ import annotations

import os

os.environ.setdefault("BRAZE_TARGET", "cpu")
