"""The Op interface: everything the project knows about an operation is in its class.

An op is a frozen dataclass whose fields are its typed attributes. Nothing outside `ops/` and
`passes/` switches on op names: the compiler sees only what `infer`, `known` and `lower` return.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Union

import numpy as np

from braze.core.dims import Dim, DimExpr, substitute
from braze.core.errors import ModelError, UnsupportedOpError
from braze.ir.builder import GraphBuilder
from braze.ir.graph import TensorType, Value
from braze.ops.lowering import Lowering

if TYPE_CHECKING:
    from typing_extensions import Self

Array = np.ndarray[Any, Any]
Perm = tuple[int, ...]
Permuted = Union[tuple["Op", Perm], None]


class InferContext(Protocol):
    """What `infer` may ask: equal sizes, broadcasts, and bounds (see GraphBuilder)."""

    def unify(self, a: Dim, b: Dim, what: str) -> Dim: ...

    def broadcast(self, a: Dim, b: Dim, what: str) -> Dim: ...

    def range_of(self, d: Dim) -> tuple[int, int]: ...


@dataclass(frozen=True)
class Op:
    """Base class; subclasses are frozen dataclasses, `name` is the ONNX spelling if one exists.

    folds: whether the builder may evaluate a small node of constants (not where that is slow).
    narrow: whether the op takes and gives types that braze only stores (`DType.is_narrow`); the
    builder refuses them for every other op.
    """

    narrow: ClassVar[bool] = False
    folds: ClassVar[bool] = True

    @property
    def name(self) -> str:
        return type(self).__name__

    def infer(
        self, inputs: Sequence[TensorType | None], ctx: InferContext
    ) -> tuple[TensorType, ...]:
        """Types of the outputs. Raises ShapeError or DTypeError in one sentence."""
        raise NotImplementedError

    def reference(self, *inputs: Array | None) -> tuple[Array, ...]:
        """The numpy meaning, in the dtype of the inputs (float64 in, float64 arithmetic).

        bfloat16 never arrives here as bit patterns: the evaluator widens it to float32 and rounds
        the results back.
        """
        raise NotImplementedError

    def known(
        self,
        contents: Sequence[Array | None],
        types: Sequence[TensorType | None],
        ctx: InferContext,
    ) -> tuple[Array, ...] | None:
        """Known contents of the outputs (object arrays of Dims) from those of the inputs.

        None when they cannot be told. Only shape-arithmetic ops implement this.
        """
        return None

    def lower(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Lowering:
        """One of the kinds of braze.ops.lowering."""
        raise NotImplementedError

    def permuted(self, perm: Perm, x: TensorType, outputs: int) -> Permuted:
        """This op in front of a Transpose of its first operand, instead of behind it.

        (op', p): with T = Transpose(perm), each of op(T(x), ...) is Transpose(p) of op'(x, ...);
        the other operands stay as they are. None where there is no such op'. x: the type of T(x);
        outputs: how many outputs the node has.
        """
        return None

    def specialize(self, env: Mapping[str, int]) -> Self:
        """This op with every symbolic size in its fields replaced by its value in `env`.

        Symbols missing from `env` stay symbolic.
        """
        changed: dict[str, Any] = {}
        for f in fields(self):
            old = getattr(self, f.name)
            new = _specialized(old, env)
            if new is not old:
                changed[f.name] = new
        return replace(self, **changed) if changed else self

    def __str__(self) -> str:
        attrs = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self))
        return f"{self.name}<{attrs}>" if attrs else self.name


def _specialized(value: Any, env: Mapping[str, int]) -> Any:
    """`value` with DimExprs (also inside tuples) evaluated; the same object when there are none."""
    if isinstance(value, DimExpr):
        return substitute(value, env)
    if isinstance(value, tuple):
        items = [_specialized(v, env) for v in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else tuple(items)
    return value


class ContentNeededError(UnsupportedOpError):
    """The content of one input must be known when the model is built. input: its position."""

    def __init__(self, message: str, input: int) -> None:
        super().__init__(message)
        self.input = input


@dataclass(frozen=True)
class OnnxNode:
    """A decoded ONNX node without protobuf.

    attributes hold int, float, str, bytes-decoded strings, tuples of these, numpy arrays (TENSOR)
    and DTypes are given as ONNX numbers, as the file has them. `opset` is the version of the
    node's domain that the model imports.
    """

    op_type: str
    domain: str
    name: str
    opset: int
    inputs: tuple[Value | None, ...]
    attributes: Mapping[str, Any]
    num_outputs: int

    def attr(self, key: str, default: Any = None) -> Any:
        """An attribute's value or `default`."""
        return self.attributes.get(key, default)

    def input(self, index: int) -> Value | None:
        """The input at `index`, None when absent."""
        return self.inputs[index] if index < len(self.inputs) else None

    def need(self, index: int) -> Value:
        """The input at `index`; raises UnsupportedOpError when the model leaves it out."""
        v = self.input(index)
        if v is None:
            raise self.unsupported(f"input {index} is missing; the op needs it")
        return v

    def unsupported(self, why: str) -> UnsupportedOpError:
        """An error that names this node, its op and `why` (one clause: what and what to do)."""
        return UnsupportedOpError(f"node {self.name!r} ({self.op_type}, opset {self.opset}): {why}")

    def needs_content(self, index: int, why: str) -> ContentNeededError:
        """Like `unsupported`, for what the known content of input `index` would lift."""
        return ContentNeededError(str(self.unsupported(why)), index)

    def invalid(self, why: str) -> ModelError:
        """An error for a node that breaks the rules of its op (no function body can help it)."""
        return ModelError(f"node {self.name!r} ({self.op_type}, opset {self.opset}): {why}")


# An importer turns one ONNX node into graph nodes and returns the values of its outputs
# (fewer than num_outputs only when trailing outputs are unused).
Importer = Callable[[OnnxNode, GraphBuilder], tuple[Value, ...]]
