"""What convolutions and pools share: channel layouts, window sizes, paddings and tap positions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, Shape
from braze.core.errors import ShapeError
from braze.expr.index import iadd, imul, isub, within
from braze.expr.scalar import Expr
from braze.ir.builder import GraphBuilder
from braze.ops.base import Array, InferContext, OnnxNode
from braze.ops.writing.arguments import at_least
from braze.ops.writing.size_arithmetic import larger

LAYOUTS = ("NCHW", "NHWC")


def split_shape(shape: Sequence[Dim], layout: str) -> tuple[Dim, Dim, Shape]:
    """(batch, channels, spatial sizes) of a tensor in `layout` (any number of spatial axes)."""
    if layout == "NCHW":
        return shape[0], shape[1], tuple(shape[2:])
    return shape[0], shape[-1], tuple(shape[1:-1])


def join_shape(batch: Dim, channels: Dim, spatial: Sequence[Dim], layout: str) -> Shape:
    """The inverse of `split_shape`."""
    return (batch, channels, *spatial) if layout == "NCHW" else (batch, *spatial, channels)


def join_index(
    batch: Expr, channel: Expr, spatial: Sequence[Expr], layout: str
) -> tuple[Expr, ...]:
    """`join_shape` for index expressions."""
    return (batch, channel, *spatial) if layout == "NCHW" else (batch, *spatial, channel)


def channels_first(x: Array, layout: str) -> Array:
    """`x` with its channel axis second."""
    return x if layout == "NCHW" else np.moveaxis(x, -1, 1)


def from_channels_first(x: Array, layout: str) -> Array:
    """The inverse of `channels_first`."""
    return x if layout == "NCHW" else np.moveaxis(x, 1, -1)


@dataclass(frozen=True)
class Window:
    """A window that slides over the spatial axes; pads are (begin.., end..)."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[Dim, ...]
    ceil_mode: bool = False

    @property
    def rank(self) -> int:
        return len(self.kernel)

    def begin(self, i: int) -> Dim:
        """Padding before axis i."""
        return self.pads[i]

    def end(self, i: int) -> Dim:
        """Padding after axis i."""
        return self.pads[self.rank + i]

    def extent(self, i: int) -> int:
        """Elements the dilated kernel spans on axis i."""
        return (self.kernel[i] - 1) * self.dilations[i] + 1

    def check(self, spatial: Sequence[Dim], where: str) -> None:
        """Raise ShapeError when the attributes do not fit the input or each other."""
        n = len(spatial)
        lengths = (len(self.kernel), len(self.strides), len(self.dilations))
        if lengths != (n, n, n) or len(self.pads) != 2 * n:
            raise ShapeError(
                f"{where}: kernel, strides, dilations and pads do not fit {n} spatial axes; "
                f"give one entry an axis and two pads"
            )
        if min((*self.kernel, *self.strides, *self.dilations), default=1) < 1:
            raise ShapeError(f"{where}: kernel, strides and dilations must be at least 1")

    def output_sizes(self, spatial: Sequence[Dim], ctx: InferContext, where: str) -> Shape:
        """Sizes of the result.

        ceil_mode rounds up, but a window that would start in the end padding is dropped
        (the rule of ONNX and PyTorch).
        """
        self.check(spatial, where)
        out: list[Dim] = []
        for i, n in enumerate(spatial):
            room = n + self.begin(i) + self.end(i) - self.extent(i)
            if self.ceil_mode:
                size = dims.dmin(
                    dims.ceildiv(room, self.strides[i]) + 1,
                    dims.ceildiv(n + self.begin(i), self.strides[i]),
                )
            else:
                size = dims.floordiv(room, self.strides[i]) + 1
            if ctx.range_of(size)[1] < 0:
                raise ShapeError(
                    f"{where}: a window of {self.extent(i)} does not fit size {n} on spatial "
                    f"axis {i}; pad the input"
                )
            fits = f"{where}: a window of {self.extent(i)} must fit size {n} on spatial axis {i}"
            out.append(at_least(size, 0, ctx, f"{fits}, with an output size"))
        return tuple(out)

    def position(self, i: int, out: Expr, tap: Expr) -> Expr:
        """The input position on axis i that tap `tap` of output `out` reads (may be padding)."""
        moved = iadd(imul(out, self.strides[i]), imul(tap, self.dilations[i]))
        return isub(moved, self.begin(i))

    def is_inside(self, i: int) -> bool:
        """True when no tap on axis i can fall outside the input."""
        return self.begin(i) == 0 == self.end(i) and not self.ceil_mode

    def taps(
        self, spatial: Sequence[Dim], out: Sequence[Expr], taps: Sequence[Expr]
    ) -> tuple[tuple[Expr, ...], list[Expr]]:
        """(input position per axis, conditions under which the tap is inside the input)."""
        where: list[Expr] = []
        conditions: list[Expr] = []
        for i, n in enumerate(spatial):
            p = self.position(i, out[i], taps[i])
            where.append(p)
            if not self.is_inside(i):
                conditions.append(within(p, 0, n))
        return tuple(where), conditions

    def view(self, padded: Array, out: Sequence[int], tap: Sequence[int]) -> Array:
        """The elements [N, C, *out] that tap reads from an array padded by `pad_for`."""
        slices = tuple(
            slice(t * d, t * d + (o - 1) * s + 1, s) if o > 0 else slice(0, 0)
            for t, d, o, s in zip(tap, self.dilations, out, self.strides, strict=True)
        )
        where = (slice(None), slice(None), *slices)
        return padded[where]

    def pad_for(self, x: Array, out: Sequence[int], value: float) -> Array:
        """[N, C, *spatial] with padding, long enough for every window of `out` positions."""
        widths = [(0, 0), (0, 0)]
        for i, n in enumerate(x.shape[2:]):
            begin, end = dims.number(self.begin(i)), dims.number(self.end(i))
            needed = (out[i] - 1) * self.strides[i] + self.extent(i) - begin - n
            widths.append((begin, max(end, needed)))
        return np.pad(x, widths, constant_values=value)


def same_pads(
    size: Dim, extent: int, stride: int, upper: bool, ctx: InferContext
) -> tuple[Dim, Dim]:
    """(begin, end) so that the output has ceil(size / stride) elements; the odd one goes to the
    end for SAME_UPPER."""
    total: Dim
    if stride == 1:
        total = extent - 1
    else:
        total = larger((dims.ceildiv(size, stride) - 1) * stride + extent - size, 0, ctx.range_of)
    small = dims.floordiv(total, 2)
    return (small, total - small) if upper else (total - small, small)


def ints_attr(n: OnnxNode, key: str, default: Sequence[int]) -> tuple[int, ...]:
    """An INTS attribute; `default` when it is absent (or empty, as some exporters write it)."""
    given = n.attr(key)
    return tuple(default) if given is None or len(given) == 0 else tuple(int(v) for v in given)


def import_window(
    n: OnnxNode, g: GraphBuilder, kernel: Sequence[int], spatial: Sequence[Dim]
) -> Window:
    """strides, dilations, ceil_mode and pads or auto_pad of a node, resolved."""
    rank = len(spatial)
    if len(kernel) != rank:
        raise ShapeError(
            f"node {n.name!r} ({n.op_type}): a kernel of {len(kernel)} axes for {rank} spatial axes"
        )
    strides = ints_attr(n, "strides", (1,) * rank)
    dilations = ints_attr(n, "dilations", (1,) * rank)
    auto = n.attr("auto_pad", "NOTSET") or "NOTSET"
    ceil_mode = bool(n.attr("ceil_mode", 0))
    pads: tuple[Dim, ...]
    if auto == "NOTSET":
        pads = ints_attr(n, "pads", (0,) * (2 * rank))
    elif auto == "VALID":
        # the spec's size for VALID is ceil((n - extent + 1) / stride) with or without ceil_mode
        pads, ceil_mode = (0,) * (2 * rank), False
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        if not len(strides) == len(dilations) == rank:
            raise ShapeError(f"node {n.name!r} ({n.op_type}): strides or dilations miss an axis")
        pairs = [
            same_pads(
                spatial[i], (kernel[i] - 1) * dilations[i] + 1, strides[i], auto[5:] == "UPPER", g
            )
            for i in range(rank)
        ]
        pads, ceil_mode = (*(p for p, _ in pairs), *(p for _, p in pairs)), False
    else:
        raise n.unsupported(f"auto_pad {auto!r} is unknown; use NOTSET and give pads")
    window = Window(tuple(kernel), strides, dilations, pads, ceil_mode)
    window.check(spatial, f"node {n.name!r} ({n.op_type})")
    return window
