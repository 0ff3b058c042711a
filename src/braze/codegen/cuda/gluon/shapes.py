"""Which products and convolutions the Gluon template takes, in the terms that it is written in."""

from __future__ import annotations

import math
from dataclasses import dataclass

from braze.codegen.cuda.gluon.layout import DEPTH_BYTES
from braze.core.dims import Dim, product
from braze.core.dtypes import BF16, F8E4M3FN, F8E5M2, F16, F32, I8, I32
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import ConvSpec, MatmulSpec

# types of operands, and that of their sums
SUMS = {F16: F32, BF16: F32, I8: I32, F8E4M3FN: F32, F8E5M2: F32}
MOST_ROWS = (1 << 31) - 1  # boxes are counted in 32 bits
PITCH_BYTES = 16  # tensor maps want rows to begin at multiples of it


@dataclass(frozen=True, slots=True)
class Rows:
    """out[r, c] = sum_d left[r, d] * weight[d, c].

    sizes: of the logical axes that r runs over, outermost first; pitch: elements from row to row of
    the left operand; offset: those in front of the first; turned: whether the weight is stored
    [depth, columns].
    """

    sizes: tuple[Dim, ...]
    columns: int
    depth: int
    pitch: int
    offset: int
    turned: bool

    @property
    def count(self) -> Dim:
        """How many rows."""
        return product(self.sizes)


@dataclass(frozen=True, slots=True)
class Windows:
    """A convolution over an image, channels last: sizes are (height, width), pads those before.

    pitch: elements from pixel to pixel; offset: those in front of the first. joined: so many taps
    along the last axis, side by side in memory, count as channels of one (and as many pixels less
    are a line).
    """

    batch: Dim
    size: tuple[Dim, Dim]
    out: tuple[Dim, Dim]
    channels: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int]
    pitch: int
    offset: int
    joined: int = 1

    @property
    def line(self) -> Dim:
        """Pixels from one line to the next."""
        return self.size[1] + (self.joined - 1)


def product_shape(kernel: AnchorKernel, depth: int = DEPTH_BYTES) -> Rows | Windows | str:
    """`kernel` in these terms, in steps of `depth` bytes; or why the template does not fit."""
    element = kernel.inputs[0].dtype
    if element not in SUMS or kernel.inputs[1].dtype is not element:
        return f"operands of {element}"
    if 1 not in kernel.constant:
        return "a right operand that is not constant"
    spec = kernel.spec
    found: Rows | Windows | str = "neither a product nor a convolution"
    if isinstance(spec, MatmulSpec):
        found = _of_matmul(kernel, spec)
    elif isinstance(spec, ConvSpec):
        found = _of_conv(spec, depth // element.itemsize)
    if isinstance(found, str):
        return found
    if spec.acc is not SUMS[element]:
        return f"sums in {spec.acc}"
    rows = found.count if isinstance(found, Rows) else 0
    if isinstance(rows, int) and rows > MOST_ROWS:
        return f"{rows} rows"
    for distance in (found.pitch, found.offset):
        if distance * element.itemsize % PITCH_BYTES:
            return f"rows {distance} elements on, which do not begin at multiples of 16 bytes"
    return found


def _of_matmul(kernel: AnchorKernel, spec: MatmulSpec) -> Rows | str:
    if not isinstance(spec.n, int) or not isinstance(spec.k, int):
        return "columns or a depth that depend on the input shapes"
    sizes = (*spec.batch, spec.m)
    stored = kernel.inputs[1].shape
    shapes = {(spec.n, 1): (spec.k, spec.n), (1, spec.k): (spec.n, spec.k)}
    tail = spec.rhs.strides[-2:]
    one = not any(s != 0 for s in (*spec.rhs.strides[:-2], spec.rhs.offset))
    if not one or not any(tail == t and stored == shape for t, shape in shapes.items()):
        return "a weight that is not one matrix"
    pitch = spec.lhs.strides[-2]
    offset = spec.lhs.offset
    if not isinstance(pitch, int) or not isinstance(offset, int) or spec.lhs.strides[-1] != 1:
        return "a left operand whose rows are not contiguous"
    if pitch < spec.k or not _is_flat(sizes, spec.lhs.strides[:-1]):
        return "a left operand whose rows are not evenly spaced"
    if spec.out.strides[-2:] != (spec.n, 1) or spec.out.offset != 0:
        return "an output that is not contiguous"
    if not _is_flat(sizes, spec.out.strides[:-1]):
        return "an output that is not contiguous"
    turned = stored == (spec.k, spec.n) and tail == (spec.n, 1)
    return Rows(sizes, spec.n, spec.k, pitch, offset, turned)


def _of_conv(spec: ConvSpec, depth: int) -> Rows | Windows | str:
    """depth: channels of one step."""
    if spec.groups != 1:
        return "groups"
    if spec.pixels is None:
        return "pixels that do not follow each other at one distance"
    pitch, offset = spec.pixels
    plain = math.prod(spec.kernel) == 1 and not any(spec.pads)
    if plain and all(s == 1 for s in spec.strides):
        sizes = (spec.batch, *spec.out_spatial)
        return Rows(sizes, spec.out_channels, spec.in_channels, pitch, offset, False)
    if len(spec.kernel) != 2:
        return "windows over other than two axes"
    for size, stride in zip(spec.in_spatial, spec.strides, strict=True):
        if stride > 2 or (stride == 2 and (not isinstance(size, int) or size % 2)):
            return "a stride that does not divide the image"
    if spec.strides[1] == 2 and spec.in_channels % depth:
        return "pairs of pixels whose channels are no whole steps"
    (h, w), (p, q) = spec.in_spatial, spec.out_spatial
    fields = (spec.kernel, spec.strides, spec.dilations, spec.pads[:2])
    kernel, strides, dilations, pads = ((f[0], f[1]) for f in fields)
    channels, joined = spec.in_channels, 1
    # a step takes as many channels with or without them
    if _is_run(spec) and kernel[1] * channels <= depth:
        joined = kernel[1]
        channels, kernel, w = joined * channels, (kernel[0], 1), w - (joined - 1)
    return Windows(
        spec.batch, (h, w), (p, q), channels, spec.out_channels, kernel, strides,
        dilations, pads, pitch, offset, joined,
    )  # fmt: skip


def _is_run(spec: ConvSpec) -> bool:
    """Whether the taps of a line are one run of memory, of which no padding is a part."""
    plain = spec.strides[1] == spec.dilations[1] == 1 and not spec.pads[1] and not spec.pads[3]
    return plain and spec.pixels is not None and spec.pixels[0] == spec.in_channels


def _is_flat(sizes: tuple[Dim, ...], strides: tuple[Dim, ...]) -> bool:
    """Whether axes of these sizes and strides are walked by one step."""
    step = strides[-1]
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step = step * size
    return True
