"""Interfaces of plugins of releases before 10, which scripts derive from."""

from __future__ import annotations

from typing import Any, ClassVar, Final

from braze.tensorrt.dims import Dims

VERSION: Final = 101300


def _to_be_overridden(what: object, name: str) -> NotImplementedError:
    return NotImplementedError(f"{type(what).__name__}.{name} is to be overridden")


class IPluginV2:
    """A plugin."""

    num_outputs: int = 1
    plugin_type: str = ""
    plugin_version: str = ""
    plugin_namespace: str = ""

    def __init__(self, other: Any = None) -> None:
        return None

    @property
    def tensorrt_version(self) -> int:
        """The version it is made for."""
        return VERSION

    @property
    def serialization_size(self) -> int:
        """How many bytes `serialize` gives."""
        return len(self.serialize())

    def initialize(self) -> int:
        """Get ready to run; 0 where that went well."""
        return 0

    def terminate(self) -> None:
        """Give up what `initialize` took."""

    def destroy(self) -> None:
        """The plugin is not needed any more."""

    def clone(self) -> Any:
        """A copy."""
        raise _to_be_overridden(self, "clone")

    def serialize(self) -> Any:
        """What it is made of, as bytes."""
        return b""

    def get_output_shape(self, index: int, input_shapes: Any) -> Dims:
        """The sizes of an output."""
        raise _to_be_overridden(self, "get_output_shape")

    def supports_format(self, dtype: Any, format: Any) -> bool:
        """Whether tensors may have a type and a format."""
        raise _to_be_overridden(self, "supports_format")

    def configure_with_format(
        self, input_shapes: Any, output_shapes: Any, dtype: Any, format: Any, max_batch_size: int
    ) -> None:
        """Sizes and types are known now."""

    def get_workspace_size(self, max_batch_size: int) -> int:
        """Bytes of memory that a run needs beside its tensors."""
        return 0

    def execute_async(
        self, batch_size: int, inputs: Any, outputs: Any, workspace: Any, stream_handle: int
    ) -> int:
        """Run; inputs and outputs are addresses."""
        raise _to_be_overridden(self, "execute_async")


class IPluginV2Ext(IPluginV2):
    """A plugin whose outputs may have other types than its inputs."""

    def get_output_data_type(self, index: int, input_types: Any) -> Any:
        """The type of an output."""
        raise _to_be_overridden(self, "get_output_data_type")

    def configure_plugin(
        self,
        input_shapes: Any,
        output_shapes: Any,
        input_types: Any,
        output_types: Any,
        input_is_broadcasted: Any,
        output_is_broacasted: Any,
        format: Any,
        max_batch_size: int,
    ) -> None:
        """Sizes and types are known now."""

    def attach_to_context(self, cudnn: Any, cublas: Any, allocator: Any) -> None:
        """A context uses it."""

    def detach_from_context(self) -> None:
        """The context is gone."""


class IPluginV2DynamicExtBase(IPluginV2):
    """A plugin with sizes that the run knows."""


class IPluginV2DynamicExt(IPluginV2DynamicExtBase):
    """A plugin with sizes that the run knows."""

    FORMAT_COMBINATION_LIMIT: ClassVar[int] = 100

    def get_output_datatype(self, index: int, input_types: Any) -> Any:
        """The type of an output."""
        raise _to_be_overridden(self, "get_output_datatype")

    def get_output_dimensions(self, output_index: int, inputs: Any, expr_builder: Any) -> Any:
        """The sizes of an output, as DimsExprs."""
        raise _to_be_overridden(self, "get_output_dimensions")

    def supports_format_combination(self, pos: int, in_out: Any, num_inputs: int) -> bool:
        """Whether a tensor may have a type and a format."""
        raise _to_be_overridden(self, "supports_format_combination")

    def configure_plugin(self, pos: Any, in_out: Any) -> None:
        """Sizes are between bounds now."""

    def get_serialization_size(self) -> int:
        """How many bytes `serialize` gives."""
        return len(self.serialize())

    def get_workspace_size(self, in_: Any, out: Any = None) -> int:
        """Bytes of memory that a run needs beside its tensors."""
        return 0

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
