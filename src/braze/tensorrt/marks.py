"""What is marked in a network: outputs, debug tensors, weights with names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from braze.tensorrt.params import text, whole
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights, as_weights

if TYPE_CHECKING:
    from braze.tensorrt.layer import ILayer


class Marks:
    """The part of INetworkDefinition that marks."""

    if TYPE_CHECKING:
        _layers: list[ILayer]

        def _complain(self, message: str) -> None: ...

        def _owns(self, tensors: Sequence[ITensor | None], what: str) -> bool: ...

    def _start_marks(self) -> None:
        self._outputs: list[ITensor] = []
        self._shape_outputs: list[ITensor] = []
        self._debug: list[ITensor] = []
        self._unfused_debug = False
        self._weight_names: dict[tuple[int, int, int], str] = {}
        self._refittable: set[str] = set()

    # ---- outputs ------------------------------------------------------------------------

    @property
    def num_outputs(self) -> int:
        """How many outputs it has."""
        return len(self._outputs)

    def get_output(self, index: int) -> ITensor | None:
        """An output, or None."""
        place = whole(index, "get_output")
        return self._outputs[place] if 0 <= place < len(self._outputs) else None

    def mark_output(self, tensor: ITensor) -> None:
        """Let a tensor be an output."""
        if not self._owns([tensor], "mark_output"):
            return
        if tensor in self._outputs:
            self._complain(f"tensor {tensor.name!r} is marked as an output already")
            return
        self._outputs.append(tensor)

    def unmark_output(self, tensor: ITensor) -> None:
        """Take an output back."""
        if not self._owns([tensor], "unmark_output"):
            return
        if tensor in self._outputs:
            self._outputs.remove(tensor)
        else:
            self._complain(f"tensor {tensor.name!r} is no output")

    def mark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Let the content of a tensor of sizes be an output; False where it is one already."""
        if not self._owns([tensor], "mark_output_for_shapes"):
            return False
        if tensor in self._shape_outputs:
            return False
        self._shape_outputs.append(tensor)
        return True

    def unmark_output_for_shapes(self, tensor: ITensor) -> bool:
        """Take that back; False where it is none."""
        if not self._owns([tensor], "unmark_output_for_shapes"):
            return False
        if tensor not in self._shape_outputs:
            return False
        self._shape_outputs.remove(tensor)
        return True

    def _all_outputs(self) -> list[ITensor]:
        """What an engine gives: outputs, and tensors of sizes that are asked for."""
        return list(dict.fromkeys([*self._outputs, *self._shape_outputs]))

    # ---- debug tensors ------------------------------------------------------------------

    def mark_debug(self, tensor: ITensor) -> bool:
        """Let a tensor be readable in a run; False for an input or output."""
        if not self._owns([tensor], "mark_debug"):
            return False
        if tensor.is_network_input:
            self._complain(f"tensor {tensor.name!r} is an input, which is readable anyway")
            return False
        if tensor not in self._debug:
            self._debug.append(tensor)
        return True

    def unmark_debug(self, tensor: ITensor) -> bool:
        """Take that back."""
        if not self._owns([tensor], "unmark_debug"):
            return False
        if tensor in self._debug:
            self._debug.remove(tensor)
        return True

    def is_debug_tensor(self, tensor: ITensor) -> bool:
        """Whether a tensor is marked for debugging."""
        if not self._owns([tensor], "is_debug_tensor"):
            return False
        return tensor in self._debug

    def mark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Let all tensors that fusion leaves be readable in a run."""
        self._unfused_debug = True
        return True

    def unmark_unfused_tensors_as_debug_tensors(self) -> bool:
        """Take that back."""
        self._unfused_debug = False
        return True

    # ---- weights ------------------------------------------------------------------------

    def set_weights_name(self, weights: Weights, name: str | None) -> bool:
        """Name all uses of weights, or take the name back; False where they are not in use."""
        given = as_weights(weights, "set_weights_name")
        key = given.key()
        used = {w.key() for x in self._layers for w in x.roles().values() if w.size}
        if key not in used:
            other = any(k[1] == key[1] for k in used)
            why = "are in use with another type or count" if other else "are not in use"
            self._complain(f"set_weights_name: weights for {name!r} {why}")
            return False
        if name is None:
            self._weight_names.pop(key, None)
            return True
        taken = {n: k for k, n in self._weight_names.items()}
        if taken.get(text(name, "set_weights_name"), key) != key:
            self._complain(f"set_weights_name: {name!r} is the name of other weights")
            return False
        self._weight_names[key] = name
        return True

    def mark_weights_refittable(self, name: str) -> bool:
        """Let weights of a name be refitted; False where there are none."""
        known = text(name, "mark_weights_refittable") in self._weight_names.values()
        if known:
            self._refittable.add(name)
        else:
            self._complain(f"mark_weights_refittable: no weights are called {name!r}")
        return known

    def unmark_weights_refittable(self, name: str) -> bool:
        """Take that back."""
        self._refittable.discard(text(name, "unmark_weights_refittable"))
        return name in self._weight_names.values()

    def are_weights_marked_refittable(self, name: str) -> bool:
        """Whether weights of a name are marked so."""
        return text(name, "are_weights_marked_refittable") in self._refittable
