"""IPluginRegistry: creators of plugins by name, version and namespace."""

from __future__ import annotations

import functools
from typing import Any

from braze.tensorrt.enums_build import EngineCapability
from braze.tensorrt.params import member, text

_Key = tuple[str, str, str]


class IPluginRegistry:
    """Creators of plugins; `get_plugin_registry` gives the one of the process."""

    error_recorder: Any
    parent_search_enabled: bool

    def __init__(self) -> None:
        self._creators: dict[_Key, Any] = {}
        self._resources: dict[str, tuple[Any, int]] = {}
        self.error_recorder = None
        self.parent_search_enabled = True

    def register_creator(self, creator: Any, plugin_namespace: str = "") -> bool:
        """Add a creator; False where one of its name, version and namespace is there."""
        key = _key(creator, plugin_namespace)
        if key in self._creators:
            return False
        creator.plugin_namespace = key[2]
        self._creators[key] = creator
        return True

    def deregister_creator(self, creator: Any) -> bool:
        """Remove a creator; False where it is not there."""
        found = [k for k, c in self._creators.items() if c is creator]
        for key in found:
            del self._creators[key]
        return bool(found)

    def get_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """The creator of a name, version and namespace, or None."""
        where = "get_creator"
        return self._creators.get(
            (text(type, where), text(version, where), text(plugin_namespace, where))
        )

    def get_plugin_creator(self, type: str, version: str, plugin_namespace: str = "") -> Any:
        """As `get_creator`."""
        return self.get_creator(type, version, plugin_namespace)

    @property
    def all_creators(self) -> list[Any]:
        """All creators."""
        return list(self._creators.values())

    @property
    def all_creators_recursive(self) -> list[Any]:
        """All creators: the registry has no parents."""
        return self.all_creators

    @property
    def plugin_creator_list(self) -> list[Any]:
        """All creators."""
        return self.all_creators

    # ---- resources ----------------------------------------------------------------------

    def acquire_plugin_resource(self, key: str, resource: Any) -> Any:
        """The resource of a key, which is a clone of the first that was given for it."""
        held, count = self._resources.get(text(key, "acquire_plugin_resource"), (None, 0))
        if count == 0:
            held = resource.clone()
        self._resources[key] = (held, count + 1)
        return held

    def release_plugin_resource(self, key: str) -> int:
        """Give a resource back, which ends with its last user; 0, or -1 where there is none."""
        held, count = self._resources.get(text(key, "release_plugin_resource"), (None, 0))
        if count == 0:
            return -1
        self._resources[key] = (held, count - 1)
        if count == 1:
            held.release()
            del self._resources[key]
        return 0

    # ---- libraries ----------------------------------------------------------------------

    def load_library(self, plugin_path: str) -> Any:
        """None: plugins that are compiled for TensorRT cannot be called; those in Python can."""
        text(plugin_path, "load_library")

    def deregister_library(self, handle: Any) -> None:
        """Nothing: no library was loaded."""


def _key(creator: Any, namespace: str) -> _Key:
    names = [getattr(creator, a, None) for a in ("name", "plugin_version")]
    if not all(isinstance(n, str) for n in names):
        raise TypeError(f"register_creator: {creator!r} has no name or no plugin_version")
    given = text(namespace, "register_creator") or getattr(creator, "plugin_namespace", "") or ""
    return str(names[0]), str(names[1]), given


@functools.cache
def get_plugin_registry() -> IPluginRegistry:
    """The registry of the process."""
    return IPluginRegistry()


def get_builder_plugin_registry(capability: EngineCapability) -> IPluginRegistry:
    """The registry for builders of engines of a capability: there is one."""
    member(EngineCapability)(capability, "get_builder_plugin_registry")
    return get_plugin_registry()


def init_libnvinfer_plugins(logger: Any, namespace: str) -> bool:
    """True: what TensorRT's library of plugins has are ops here."""
    text(namespace, "init_libnvinfer_plugins")
    return True
