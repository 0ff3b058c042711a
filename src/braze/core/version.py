"""The version of braze: part of the keys of timing caches."""

from typing import Final

__version__: Final = "0.1.0"
