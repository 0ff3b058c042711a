"""Interfaces of plugins and of their creators, which scripts derive from."""

from __future__ import annotations

from typing import Any, ClassVar

from braze.tensorrt.enums_plugin import PluginCapabilityType, TensorRTPhase
from braze.tensorrt.plugin_fields import PluginFieldCollection, PluginFieldCollection_
from braze.tensorrt.versioned import IVersionedInterface


def _to_be_overridden(what: object, name: str) -> NotImplementedError:
    return NotImplementedError(f"{type(what).__name__}.{name} is to be overridden")


class IPluginCapability(IVersionedInterface):
    """What a plugin is able to do."""


class IPluginResource(IVersionedInterface):
    """Something that plugins share; see IPluginRegistry.acquire_plugin_resource."""

    def clone(self) -> IPluginResource:
        """A copy that is kept."""
        raise _to_be_overridden(self, "clone")

    def release(self) -> None:
        """The last user is gone."""


class IPluginResourceContext:
    """What a context gives to a plugin."""

    def __init__(self, error_recorder: Any = None, gpu_allocator: Any = None) -> None:
        self._recorder, self._allocator = error_recorder, gpu_allocator

    @property
    def error_recorder(self) -> Any:
        """Where errors go."""
        return self._recorder

    @property
    def gpu_allocator(self) -> Any:
        """Where memory is from."""
        return self._allocator


class IPluginV3(IVersionedInterface):
    """A plugin; it often is its own capabilities."""

    def get_capability_interface(self, type: PluginCapabilityType) -> Any:
        """The part for building, for running, or the core."""
        raise _to_be_overridden(self, "get_capability_interface")

    def clone(self) -> IPluginV3:
        """A copy."""
        raise _to_be_overridden(self, "clone")

    def destroy(self) -> None:
        """The plugin is not needed any more."""


class _Core(IPluginCapability):
    plugin_name: str = ""
    plugin_version: str = ""
    plugin_namespace: str = ""


class IPluginV3OneCore(_Core):
    """What a plugin is called."""


class IPluginV3OneBuild(IPluginCapability):
    """What a plugin tells a builder."""

    DEFAULT_FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100
    format_combination_limit: int = 100
    metadata_string: str = ""
    num_outputs: int = 1
    timing_cache_id: str = ""

    def configure_plugin(self, in_: Any, out: Any) -> None:
        """Sizes are between bounds now."""

    def get_output_data_types(self, input_types: Any) -> Any:
        """The types of the outputs."""
        raise _to_be_overridden(self, "get_output_data_types")

    def get_output_shapes(self, inputs: Any, shape_inputs: Any, expr_builder: Any) -> Any:
        """The sizes of the outputs, as DimsExprs."""
        raise _to_be_overridden(self, "get_output_shapes")

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        """Whether a tensor may have a type and a format."""
        raise _to_be_overridden(self, "supports_format_combination")

    def get_valid_tactics(self) -> list[int]:
        """Numbers of ways to run, above zero."""
        return []

    def get_workspace_size(self, in_: Any, out: Any) -> int:
        """Bytes of memory that a run needs beside its tensors."""
        return 0


class IPluginV3OneBuildV2(IPluginV3OneBuild):
    """The same, with outputs that lie where inputs do."""

    def get_aliased_input(self, output_index: int) -> int:
        """The input whose memory an output has; -1 for none."""
        return -1


class IPluginV3OneRuntime(IPluginCapability):
    """What a plugin does in a run."""

    def enqueue(
        self,
        input_desc: Any,
        output_desc: Any,
        inputs: Any,
        outputs: Any,
        workspace: int,
        stream: int,
    ) -> None:
        """Run; inputs and outputs are addresses."""
        raise _to_be_overridden(self, "enqueue")

    def attach_to_context(self, resource_context: Any) -> IPluginV3:
        """A copy for a context."""
        raise _to_be_overridden(self, "attach_to_context")

    def get_fields_to_serialize(self) -> Any:
        """What it is made of, for the engine."""
        return PluginFieldCollection()

    def on_shape_change(self, in_: Any, out: Any) -> None:
        """Sizes are others now."""

    def set_tactic(self, tactic: int) -> None:
        """Run in this way from now on."""


class IPluginV3QuickCore(_Core):
    """What a plugin of `tensorrt.plugin` is called."""


class IPluginV3QuickBuild(IPluginCapability):
    """What a plugin of `tensorrt.plugin` tells a builder."""


class IPluginV3QuickAOTBuild(IPluginV3QuickBuild):
    """The same of a plugin that brings kernels."""


class IPluginV3QuickRuntime(IPluginCapability):
    """What a plugin of `tensorrt.plugin` does in a run."""


# ---- creators ---------------------------------------------------------------------------


class IPluginCreatorInterface(IVersionedInterface):
    """Makes plugins."""


class _Creator(IPluginCreatorInterface):
    name: str = ""
    plugin_version: str = ""
    plugin_namespace: str = ""
    field_names: Any = None

    def __init__(self) -> None:
        super().__init__()
        if self.field_names is None:
            self.field_names = PluginFieldCollection_()


class IPluginCreator(_Creator):
    """Makes plugins of release 8 and before."""

    def create_plugin(self, name: str, field_collection: Any) -> Any:
        """A plugin of its fields."""
        raise _to_be_overridden(self, "create_plugin")

    def deserialize_plugin(self, name: str, serialized_plugin: Any) -> Any:
        """A plugin of what it serialized."""
        raise _to_be_overridden(self, "deserialize_plugin")


class IPluginCreatorV3One(_Creator):
    """Makes plugins."""

    def create_plugin(self, name: str, field_collection: Any, phase: TensorRTPhase) -> Any:
        """A plugin of its fields."""
        raise _to_be_overridden(self, "create_plugin")


class IPluginCreatorV3Quick(_Creator):
    """Makes plugins of `tensorrt.plugin`."""

    def create_plugin(
        self, name: str, namespace: str, field_collection: Any, phase: Any, quickPluginType: Any
    ) -> Any:
        """A plugin of its fields."""
        raise _to_be_overridden(self, "create_plugin")
