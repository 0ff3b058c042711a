"""A convolution kernel as one plan of cuDNN: out = activation(conv(x, w) + bias + residual)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from braze.codegen.cuda.libraries.epilogue import Epilogue
from braze.core.dtypes import BF16, F16, F32, DType
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec

TYPES: Final = (F16, BF16)  # float32 would be multiplied as TF32
CHANNELS_LAST: Final = "channels last"  # [K, C/g, *kernel] -> [K][tap][C/g]
CAST: Final = "cast"
# numbers of the tensors in a plan
X, W, BIAS, RESIDUAL, Y, BETWEEN = 1, 2, 3, 4, 5, 6


@dataclass(frozen=True, slots=True)
class Convolution:
    """Two spatial axes, channels last: x [n, h, w, c], weight [k, r, s, c/groups], y [n, p, q, k].

    bias, residual: slots of the kernel's inputs, -1 for none; pads: begin (h, w), then end.
    wide: the bias is read as float32, for which there are more and faster engines.
    """

    dtype: DType
    batch: int
    size: tuple[int, int]
    out_size: tuple[int, int]
    channels: int
    out_channels: int
    groups: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]
    bias: int
    residual: int
    activation: str
    out: int
    wide: bool = False

    @property
    def bias_type(self) -> DType:
        return F32 if self.wide else self.dtype

    def tensors(self) -> list[tuple[int, int, int]]:
        """Number, slot and bytes of each tensor that a run is given."""
        item = self.dtype.itemsize
        x = self.batch * math.prod(self.size) * self.channels
        w = self.out_channels * math.prod(self.kernel) * self.channels // self.groups
        y = self.batch * math.prod(self.out_size) * self.out_channels
        found = [(X, 0, x * item), (W, 1, w * item)]
        if self.bias >= 0:
            found.append((BIAS, self.bias, self.out_channels * self.bias_type.itemsize))
        if self.residual >= 0:
            found.append((RESIDUAL, self.residual, y * item))
        return [*found, (Y, self.out, y * item)]

    def attributes(self) -> dict[str, Any]:
        """What the runtime binds to a plan: [number, slot, bytes] of each tensor."""
        tensors = [list(t) for t in self.tensors()]
        return {"batch": self.batch, "out": self.out, "tensors": tensors}

    def packings(self) -> tuple[tuple[int, Packing], ...]:
        """How the weight is laid out, and the bias."""
        weight = (1, Packing(CHANNELS_LAST, self.dtype))
        return (weight, (self.bias, Packing(CAST, F32))) if self.wide else (weight,)


def convolution_of(
    kernel: AnchorKernel, epilogue: Epilogue, others: Collection[int] = ()
) -> Convolution | str:
    """The plan's graph that computes `kernel` with this epilogue, or why there is none.

    others: slots that code behind the plan reads as they are.
    """
    spec = kernel.spec
    if not isinstance(spec, ConvSpec):
        return f"{spec.kind} is no convolution"
    dtype = kernel.output.dtype
    if dtype not in TYPES or {t.dtype for t in kernel.inputs[:2]} != {dtype}:
        return f"convolutions of {kernel.inputs[0].dtype} stored as {dtype} are not the library's"
    if 1 not in kernel.constant:
        return "its weight is not constant"
    if epilogue.activation not in ("", "relu"):
        return f"{epilogue.activation} is not the library's"
    if len(spec.kernel) > 2:
        return "it has three spatial axes"
    if spec.groups > 1:
        return "it has groups"
    if spec.data is not None:
        return "its data does not lie row by row"
    sizes = (spec.batch, *spec.in_spatial, *spec.out_spatial)
    known = [d for d in sizes if isinstance(d, int)]
    if len(known) < len(sizes):
        return "its sizes depend on the input shapes"
    if 0 in known:
        return "it is empty"
    rank = len(spec.kernel)

    def plane(values: tuple[int, ...], absent: int) -> tuple[int, int]:
        """A line is a plane of height 1."""
        return (values[0], values[1]) if rank == 2 else (absent, values[0])

    begin, end = plane(spec.pads[:rank], 0), plane(spec.pads[rank:], 0)
    return Convolution(
        dtype, known[0], plane(tuple(known[1 : 1 + rank]), 1), plane(tuple(known[1 + rank :]), 1),
        spec.in_channels, spec.out_channels, spec.groups, plane(spec.kernel, 1),
        plane(spec.strides, 1), plane(spec.dilations, 1), (*begin, *end),
        -1 if epilogue.bias is None else epilogue.bias,
        -1 if epilogue.residual is None else epilogue.residual,
        epilogue.activation, len(kernel.inputs), epilogue.bias in kernel.constant - set(others),
    )  # fmt: skip
