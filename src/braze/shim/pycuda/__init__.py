"""`pycuda` on the host device."""

from typing import Final

VERSION: Final = (2024, 1)
VERSION_STATUS: Final = ""
VERSION_TEXT: Final = "2024.1"
