"""IVersionedInterface: what interfaces since 10.0 tell about themselves."""

from __future__ import annotations

from dataclasses import dataclass

from braze.tensorrt.enums import APILanguage


@dataclass
class InterfaceInfo:
    """The name and version of an interface."""

    kind: str
    major: int
    minor: int


class IVersionedInterface:
    """An interface that scripts implement."""

    def __init__(self) -> None:
        return None

    @property
    def api_language(self) -> APILanguage:
        """The language it is written in."""
        return APILanguage.PYTHON

    @property
    def interface_info(self) -> InterfaceInfo:
        """Its name and version."""
        return InterfaceInfo(type(self).__name__, 1, 0)
