"""Bindings by number, as engines had them up to TensorRT 9.

An engine with K profiles has K bindings for each tensor; those of later profiles have the number of
the profile in their names.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from braze.tensorrt.deprecation import Scoped, warn_deprecated
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_runtime import DataType, TensorFormat, TensorIOMode, TensorLocation

if TYPE_CHECKING:
    from braze.tensorrt.tensor_table import TensorEntry, TensorTable

Binding = int | str
_PROFILE: Final = re.compile(r"^(.*) \[profile (\d+)\]$")
MISSING: Final = -1


class LegacyEngine(Scoped):
    """The part of ICudaEngine that goes by bindings."""

    if TYPE_CHECKING:
        _table: TensorTable

        @property
        def num_io_tensors(self) -> int: ...
        @property
        def num_optimization_profiles(self) -> int: ...

        def get_tensor_shape(self, name: str) -> Dims: ...
        def get_tensor_dtype(self, name: str) -> DataType: ...
        def get_tensor_mode(self, name: str) -> TensorIOMode: ...
        def get_tensor_location(self, name: str) -> TensorLocation: ...
        def get_tensor_format(self, name: str, profile_index: int = 0) -> TensorFormat: ...
        def get_tensor_format_desc(self, name: str, profile_index: int = 0) -> str: ...
        def get_tensor_bytes_per_component(self, name: str, profile_index: int = 0) -> int: ...
        def get_tensor_components_per_element(self, name: str, profile_index: int = 0) -> int: ...
        def get_tensor_vectorized_dim(self, name: str, profile_index: int = 0) -> int: ...
        def is_shape_inference_io(self, name: str) -> bool: ...
        def get_tensor_profile_shape(self, name: str, profile_index: int) -> list[Dims]: ...
        def get_tensor_profile_values(self, name: Any, profile_index: Any) -> list[list[int]]: ...

    @property
    def num_bindings(self) -> int:
        """Tensors times profiles."""
        warn_deprecated("ICudaEngine.num_bindings", "8.5", "num_io_tensors")
        return self.num_io_tensors * self.num_optimization_profiles

    def __len__(self) -> int:
        return self.num_io_tensors * self.num_optimization_profiles

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        """The names of the tensors, as release 10 has them; bindings of profiles go by number."""
        return (t.name for t in self._table.tensors)

    def __getitem__(self, key: Binding) -> Any:
        """The name of a binding's number, or the number of its name."""
        if isinstance(key, str):
            found = self.find_binding(key)
            if found == MISSING:
                raise KeyError(key)
            return found
        if not -len(self) <= key < len(self):
            raise IndexError(f"binding {key} is not below {len(self)}")
        return self.get_binding_name(key)

    def find_binding(self, name: str) -> int:
        """The number of a binding; -1 where there is none of that name."""
        found = self.named(name)
        return MISSING if found is None else found[0].index + found[1] * self.num_io_tensors

    def named(self, name: str) -> tuple[TensorEntry, int] | None:
        """The tensor and the profile of a binding's name; None where there is none."""
        profile, match = 0, _PROFILE.match(name)
        if name not in self._table.by_name and match:
            name, profile = match[1], int(match[2])
        entry = self._table.by_name.get(name)
        return (
            None if entry is None or profile >= self.num_optimization_profiles else (entry, profile)
        )

    def tensor_of(self, binding: Binding) -> tuple[str, int]:
        """(tensor name, profile) of a binding; raises IndexError or KeyError."""
        index = self[binding] if isinstance(binding, str) else binding
        if not 0 <= index < len(self):
            raise IndexError(f"binding {binding} is not below {len(self)}")
        profile, place = divmod(index, self.num_io_tensors)
        return self._table.tensors[place].name, profile

    def get_binding_index(self, name: str) -> int:
        """The number of a binding; -1 where there is none of that name."""
        warn_deprecated("ICudaEngine.get_binding_index", "8.5", "tensor names")
        return self.find_binding(name)

    def get_binding_name(self, index: int) -> str:
        """The name of a binding."""
        name, profile = self.tensor_of(index % len(self) if -len(self) <= index < 0 else index)
        return f"{name} [profile {profile}]" if profile else name

    def binding_is_input(self, binding: Binding) -> bool:
        """Whether a binding is an input."""
        warn_deprecated("ICudaEngine.binding_is_input", "8.5", "get_tensor_mode")
        return self.get_tensor_mode(self.tensor_of(binding)[0]) is TensorIOMode.INPUT

    def get_binding_shape(self, binding: Binding) -> Dims:
        """The shape of a binding."""
        warn_deprecated("ICudaEngine.get_binding_shape", "8.5", "get_tensor_shape")
        return self.get_tensor_shape(self.tensor_of(binding)[0])

    def get_binding_dtype(self, binding: Binding) -> DataType:
        """The element type of a binding."""
        warn_deprecated("ICudaEngine.get_binding_dtype", "8.5", "get_tensor_dtype")
        return self.get_tensor_dtype(self.tensor_of(binding)[0])

    def get_location(self, binding: Binding) -> TensorLocation:
        """Where the memory of a binding must be."""
        warn_deprecated("ICudaEngine.get_location", "8.5", "get_tensor_location")
        return self.get_tensor_location(self.tensor_of(binding)[0])

    def get_binding_format(self, index: Binding) -> TensorFormat:
        """The layout of a binding."""
        warn_deprecated("ICudaEngine.get_binding_format", "8.5", "get_tensor_format")
        return self.get_tensor_format(*self.tensor_of(index))

    def get_binding_format_desc(self, index: Binding) -> str:
        """The layout of a binding in words."""
        warn_deprecated("ICudaEngine.get_binding_format_desc", "8.5", "get_tensor_format_desc")
        return self.get_tensor_format_desc(*self.tensor_of(index))

    def get_binding_vectorized_dim(self, index: Binding) -> int:
        """The axis along which elements stand together."""
        warn_deprecated(
            "ICudaEngine.get_binding_vectorized_dim", "8.5", "get_tensor_vectorized_dim"
        )
        return self.get_tensor_vectorized_dim(*self.tensor_of(index))

    def get_binding_bytes_per_component(self, index: Binding) -> int:
        """Bytes of an element."""
        return self.get_tensor_bytes_per_component(*self.tensor_of(index))

    def get_binding_components_per_element(self, index: Binding) -> int:
        """Elements that stand together."""
        return self.get_tensor_components_per_element(*self.tensor_of(index))

    def is_shape_binding(self, binding: int) -> bool:
        """Whether a binding holds sizes."""
        warn_deprecated("ICudaEngine.is_shape_binding", "8.5", "is_shape_inference_io")
        return self.is_shape_inference_io(self.tensor_of(binding)[0])

    def is_execution_binding(self, binding: int) -> bool:
        """Whether a binding is read or written by a run: all are."""
        self.tensor_of(binding)
        return True

    def get_profile_shape(self, profile_index: int, binding: Binding) -> list[Dims]:
        """Least, best and largest shape of a binding."""
        warn_deprecated("ICudaEngine.get_profile_shape", "8.5", "get_tensor_profile_shape")
        return self.get_tensor_profile_shape(self.tensor_of(binding)[0], profile_index)

    def get_profile_shape_input(self, profile_index: int, binding: Binding) -> list[list[int]]:
        """Least, best and largest content of a binding that holds sizes."""
        warn_deprecated("ICudaEngine.get_profile_shape_input", "8.5", "get_tensor_profile_values")
        return self.get_tensor_profile_values(self.tensor_of(binding)[0], profile_index)

    @property
    def has_implicit_batch_dimension(self) -> bool:
        """Whether the batch is no axis of the shapes."""
        return self._table.batched

    @property
    def max_batch_size(self) -> int:
        """The largest batch of an engine with an implicit one; 1 for all others."""
        warn_deprecated("ICudaEngine.max_batch_size", "8.4", "the shapes of a profile")
        return self._table.record.get("max_batch_size", 1)

    @property
    def max_workspace_size(self) -> int:
        """Bytes a context may take beside its activations: none."""
        warn_deprecated("ICudaEngine.max_workspace_size", "8.4", None)
        return 0
