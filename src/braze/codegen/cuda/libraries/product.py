"""A product kernel as one call of cuBLASLt: out = epilogue(left @ right), all column-major there.

A row-major matrix is its transpose in column-major order, so that the library computes
outᵀ[n, m] = rhsᵀ[n, k] @ lhsᵀ[k, m]: `left` below is the kernel's rhs and `right` its lhs.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from braze.codegen.cuda.libraries.epilogue import Epilogue
from braze.core.dims import Dim
from braze.core.dtypes import BF16, F16, F32, I8, I32, DType, from_name
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import ConvSpec, MatmulSpec, Operand

# element types of the operands and of the output that the library multiplies, with sums in float32
# or int32 (https://docs.nvidia.com/cuda/cublas, cublasLtMatmul)
TYPES: Final = {(F16, F16), (BF16, BF16), (F16, F32), (BF16, F32), (F32, F32), (I8, I32)}
LARGEST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Matrix:
    """An operand of the library: `columns` of `rows` elements that are `lead` apart.

    slot: in the kernel's tensors, inputs then the output; step: from one matrix of the batch to the
    next; offset: where the first begins. All in elements. transposed: used with rows and columns
    exchanged.
    """

    slot: int
    dtype: DType
    rows: int
    columns: int
    lead: int
    step: int = 0
    offset: int = 0
    transposed: bool = False

    def attributes(self) -> dict[str, Any]:
        """The fields, JSON-able."""
        return {
            "slot": self.slot, "dtype": self.dtype.name, "rows": self.rows,
            "columns": self.columns, "lead": self.lead, "step": self.step,
            "offset": self.offset, "transposed": self.transposed,
        }  # fmt: skip

    def elements(self, batch: int) -> int:
        """How far the matrices reach into their tensor."""
        return self.offset + (batch - 1) * self.step + (self.columns - 1) * self.lead + self.rows

    @classmethod
    def read(cls, attributes: Mapping[str, Any]) -> Matrix:
        """The matrix that has these attributes."""
        return cls(**{**attributes, "dtype": from_name(attributes["dtype"])})


@dataclass(frozen=True, slots=True)
class Product:
    """out = activation(left @ right + residual + bias), `batch` times; bias: one value a row of out
    (a slot, None for none). residual lies as out does."""

    left: Matrix
    right: Matrix
    out: Matrix
    batch: int
    residual: Matrix | None
    bias: int | None
    activation: str

    @property
    def compute(self) -> DType:
        """The type of products and sums."""
        return I32 if self.left.dtype is I8 else F32

    def attributes(self) -> dict[str, Any]:
        """The literal descriptor that the runtime builds the call from."""
        found: dict[str, Any] = {"batch": self.batch, "activation": self.activation}
        found["bias"] = -1 if self.bias is None else self.bias
        for name in ("left", "right", "out", "residual"):
            m: Matrix | None = getattr(self, name)
            found[name] = None if m is None else m.attributes()
        return found

    @classmethod
    def read(cls, attributes: Mapping[str, Any]) -> Product:
        """The product of a descriptor."""
        operands = [attributes[n] for n in ("left", "right", "out", "residual")]
        left, right, out, residual = (m and Matrix.read(m) for m in operands)
        bias = None if attributes["bias"] < 0 else attributes["bias"]
        return cls(left, right, out, attributes["batch"], residual, bias, attributes["activation"])


@dataclass(frozen=True, slots=True)
class _Axis:
    """A loop of the product: its size, and the strides of lhs, rhs, out and residual along it."""

    size: int
    lhs: int
    rhs: int
    out: int

    def holds(self, inner: _Axis) -> bool:
        """Whether this and the axis inside are one longer axis."""
        return all(
            getattr(self, n) == inner.size * getattr(inner, n) for n in ("lhs", "rhs", "out")
        )


def product_of(kernel: AnchorKernel, epilogue: Epilogue) -> Product | str:
    """The call that computes `kernel` with this epilogue, or why there is none."""
    loops = _loops(kernel)
    if isinstance(loops, str):
        return loops
    batch, m, n, k, offsets = loops
    types = (kernel.inputs[0].dtype, kernel.output.dtype)
    if types not in TYPES or kernel.inputs[1].dtype is not types[0]:
        return f"products of {types[0]} stored as {types[1]} are not the library's"
    merged = _merged(batch, m)
    if merged is None:
        return "its batch axes are not one axis in memory"
    batch_axis, m = merged
    lhs_slot, rhs_slot = _slots(kernel)
    if (n.out != 1 and n.size > 1) or m.out < n.size:
        return "its output is not row-major"
    left = _matrix(rhs_slot, types[0], n.size, n.rhs, k.size, k.rhs, batch_axis.rhs, offsets[1])
    right = _matrix(lhs_slot, types[0], k.size, k.lhs, m.size, m.lhs, batch_axis.lhs, offsets[0])
    if left is None or right is None:
        return "an operand has no axis whose elements lie side by side"
    slot = len(kernel.inputs)
    out = Matrix(slot, types[1], n.size, m.size, m.out, batch_axis.out, offsets[2])
    residual = None
    if epilogue.residual is not None:
        if offsets[2] or not _is_row_major(kernel):
            return "its residual does not lie as its output does"
        residual = Matrix(epilogue.residual, types[1], n.size, m.size, m.out, batch_axis.out)
    return Product(left, right, out, batch_axis.size, residual, epilogue.bias, epilogue.activation)


def _slots(kernel: AnchorKernel) -> tuple[int, int]:
    if isinstance(kernel.spec, MatmulSpec):
        return kernel.spec.lhs.slot, kernel.spec.rhs.slot
    return 0, 1


Loops = tuple[list[_Axis], _Axis, _Axis, _Axis, tuple[int, int, int]]


def _loops(kernel: AnchorKernel) -> Loops | str:
    """The batch axes, m, n, k and the offsets of lhs, rhs and out; or why it is no such product."""
    spec = kernel.spec
    if isinstance(spec, ConvSpec):
        return _pointwise_conv(spec)
    if not isinstance(spec, MatmulSpec):
        return f"{spec.kind} is no product"
    strides = [_known((*o.strides, o.offset)) for o in (spec.lhs, spec.rhs, spec.out)]
    sizes = _known((*spec.batch, spec.m, spec.n, spec.k))
    if sizes is None or any(s is None for s in strides):
        return "its sizes depend on the input shapes"
    if 0 in sizes or max(sizes) > LARGEST:
        return "it is empty"
    lhs, rhs, out = (list(s or ()) for s in strides)
    batch = [_Axis(*a) for a in zip(sizes, lhs, rhs, out, strict=False)][: len(spec.batch)]
    m = _Axis(sizes[-3], lhs[-3], 0, out[-3])
    n = _Axis(sizes[-2], 0, rhs[-2], out[-2])
    k = _Axis(sizes[-1], lhs[-2], rhs[-3], 0)
    return batch, m, n, k, (lhs[-1], rhs[-1], out[-1])


def _pointwise_conv(spec: ConvSpec) -> Loops | str:
    """A convolution of one tap is a product of pixels and channels."""
    if math.prod(spec.kernel) != 1 or math.prod(spec.strides) != 1 or any(spec.pads):
        return "its window is more than a pixel"
    if spec.groups != 1:
        return "it has groups"
    if spec.pixels is None:
        return "its pixels do not follow each other"
    sizes = _known((spec.batch, *spec.out_spatial))
    if sizes is None:
        return "its sizes depend on the input shapes"
    pixels = math.prod(sizes)
    if not 0 < pixels <= LARGEST:
        return "it is empty"
    c, o = spec.in_channels, spec.out_channels
    pitch, first = spec.pixels
    return [], _Axis(pixels, pitch, 0, o), _Axis(o, 0, c, 1), _Axis(c, 1, 1, 0), (first, 0, 0)


def _known(dims: Sequence[Dim]) -> list[int] | None:
    found = [d for d in dims if isinstance(d, int)]
    return found if len(found) == len(dims) else None


def _merged(batch: Sequence[_Axis], m: _Axis) -> tuple[_Axis, _Axis] | None:
    """The batch as one axis, as much of it in m as has the same rhs; None where it is several."""
    axes = [a for a in batch if a.size != 1]
    while axes and axes[-1].holds(m):
        last = axes.pop()
        m = _Axis(last.size * m.size, m.lhs, m.rhs, m.out)
    while len(axes) > 1 and axes[-2].holds(axes[-1]):
        inner = axes.pop()
        outer = axes.pop()
        axes.append(_Axis(outer.size * inner.size, inner.lhs, inner.rhs, inner.out))
    if len(axes) > 1:
        return None
    return (axes[0] if axes else _Axis(1, 0, 0, 0)), m


def _matrix(
    slot: int, dtype: DType, rows: int, down: int, columns: int, right: int, step: int, offset: int
) -> Matrix | None:
    """rows x columns with strides `down` and `right`; None where neither is 1."""
    if (down == 1 or rows == 1) and right >= rows:
        return Matrix(slot, dtype, rows, columns, right, step, offset)
    if (right == 1 or columns == 1) and down >= columns:
        return Matrix(slot, dtype, columns, rows, down, step, offset, transposed=True)
    return None


def _is_row_major(kernel: AnchorKernel) -> bool:
    """Whether the output lies as a tensor of its shape does."""
    if not isinstance(kernel.spec, MatmulSpec):
        return True
    expected: list[int] = []
    step = 1
    for d in reversed(kernel.spec.out_shape):
        expected.insert(0, step)
        step *= d if isinstance(d, int) else 1
    shape = kernel.spec.out_shape
    strides: Operand = kernel.spec.out
    return all(
        size == 1 or have == want
        for size, have, want in zip(shape, strides.strides, expected, strict=True)
    )
