"""One axis of Resize: where each output position lies on the input, by every rule of ONNX.

Coordinates are computed in float64. Without scales the ratio of two sizes is exact: one division
of integers, so that positions which fall on a pixel or half-way do so exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from braze.core import dims
from braze.core.dims import Dim, exact_div
from braze.core.dtypes import F64, I64
from braze.expr.index import clamp, iadd, idiv, imul, isub, to_expr
from braze.expr.scalar import Expr, binary, cast, const, select, unary
from braze.ops.base import Array

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
HALF_PIXEL = ("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel")
# "simple" is the rule of Resize-10: floor, or ceil when the axis shrinks
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")


def number(x: float) -> Expr:
    """A float64 literal."""
    return const(x, F64)


def value(x: Expr | Dim) -> Expr:
    """A size or an int64 expression as float64."""
    return number(float(x)) if isinstance(x, int) else cast(to_expr(x), F64)


def _real(x: float | Expr) -> Expr:
    return x if isinstance(x, Expr) else number(x)


@dataclass(frozen=True)
class AxisMap:
    """Where the positions of one resized axis lie on the input axis.

    n: input size; size: output size; scale: as given by the model, None for size / n. scale, start
    and end are expressions where the run gives them.
    """

    n: Dim
    size: Dim
    scale: float | Expr | None
    rule: str
    start: float | Expr = 0.0
    end: float | Expr = 1.0

    @property
    def factor(self) -> int | None:
        """The scale when it is a whole number, else None."""
        if isinstance(self.scale, Expr):
            return None
        if self.scale is not None:
            return int(self.scale) if self.scale == int(self.scale) else None
        quotient = exact_div(self.size, self.n)
        return quotient if isinstance(quotient, int) else None

    @property
    def is_identity(self) -> bool:
        """True when every position keeps its place."""
        return self.n == self.size and self.factor == 1 and self.rule != "tf_crop_and_resize"

    def _may_leave(self) -> bool:
        """False when output position // factor is surely inside the input."""
        return self.factor is None or self.size != self.n * self.factor

    def coordinate(self, x: Expr) -> Expr:
        """The float64 input coordinate of output position x (int64)."""
        n, size = self.n, self.size
        s = None if self.scale is None else _real(self.scale)
        if self.rule == "tf_crop_and_resize":
            return self._cropped(x)
        if self.rule == "align_corners":
            if s is None:
                return _ratio(imul(x, n - 1), size - 1)
            width = binary("sub", binary("mul", value(n), s), number(1))
            moved = binary("div", binary("mul", value(x), value(n - 1)), width)
            return select(binary("eq", width, number(0)), number(0), moved)
        if self.rule == "asymmetric":
            return _ratio(imul(x, n), size) if s is None else binary("div", value(x), s)
        if self.rule == "tf_half_pixel_for_nn":
            if s is None:
                return _ratio(imul(iadd(imul(x, 2), 1), n), size * 2)
            return binary("div", binary("add", value(x), number(0.5)), s)
        if self.rule == "pytorch_half_pixel" and size == 1:
            return number(0)
        if s is None:
            centre = _ratio(isub(imul(iadd(imul(x, 2), 1), n), size), size * 2)
        else:
            centre = binary("div", binary("add", value(x), number(0.5)), s)
            centre = binary("sub", centre, number(0.5))
            if self.rule == "half_pixel_symmetric":
                lost = binary("div", value(size), binary("mul", value(n), s))
                lost = binary("sub", number(1), lost)
                offset = binary("mul", binary("div", value(n), number(2)), lost)
                centre = binary("add", offset, centre)
        if self.rule == "pytorch_half_pixel" and not isinstance(size, int):
            one = binary("eq", to_expr(size), to_expr(1))
            centre = select(one, number(0), centre)
        return centre

    def _cropped(self, x: Expr) -> Expr:
        """The coordinate by the rule tf_crop_and_resize."""
        n, size, start, end = self.n, self.size, _real(self.start), _real(self.end)
        top = value(isub(n, 1))
        middle = binary("mul", binary("mul", number(0.5), binary("add", start, end)), top)
        if size == 1:
            return middle
        step = binary("mul", value(x), binary("mul", binary("sub", end, start), top))
        step = binary("div", step, value(isub(size, 1)))
        place = binary("add", binary("mul", start, top), step)
        if isinstance(size, int):
            return place
        return select(binary("eq", to_expr(size), to_expr(1)), middle, place)

    def positions(self) -> Array:
        """`coordinate` of every output position, as float64 (sizes are integers here)."""
        n, size = dims.number(self.n), dims.number(self.size)
        x = np.arange(size, dtype=np.float64)
        s, start, end = self.scale, self.start, self.end
        assert not isinstance(s, Expr) and not isinstance(start, Expr) and not isinstance(end, Expr)
        if self.rule == "tf_crop_and_resize":
            if size == 1:
                return np.array([0.5 * (start + end) * (n - 1)])
            return np.asarray(start * (n - 1) + x * ((end - start) * (n - 1)) / (size - 1))
        if self.rule == "align_corners":
            width = size - 1 if s is None else n * s - 1
            return x * (n - 1) / width if width else np.zeros(size)
        if self.rule == "asymmetric":
            return x * n / size if s is None else x / s
        if self.rule == "tf_half_pixel_for_nn":
            return (2 * x + 1) * n / (2 * size) if s is None else (x + 0.5) / s
        if self.rule == "pytorch_half_pixel" and size == 1:
            return np.zeros(1)
        if s is None:
            return ((2 * x + 1) * n - size) / (2 * size)
        centre = (x + 0.5) / s - 0.5
        if self.rule == "half_pixel_symmetric":
            centre = n / 2 * (1 - size / (n * s)) + centre
        return centre

    def nearest(self, x: Expr, mode: str) -> Expr:
        """The input index of output position x, in range."""
        whole = (self.rule, mode) in (
            ("asymmetric", "floor"),
            ("asymmetric", "simple"),
            ("tf_half_pixel_for_nn", "floor"),
        ) or (self.rule in HALF_PIXEL and mode.startswith("round"))
        if whole and self.factor is not None:
            return (
                clamp(idiv(x, self.factor), self.n) if self._may_leave() else idiv(x, self.factor)
            )
        if self.scale is None and (self.rule, mode) == ("asymmetric", "floor"):
            shrink = exact_div(self.n, self.size)
            return imul(x, shrink) if shrink is not None else idiv(imul(x, self.n), self.size)
        c = self.coordinate(x)
        if mode == "simple":
            c = self._shrunk(c)
        elif mode == "round_prefer_floor":
            c = unary("ceil", binary("sub", c, number(0.5)))
        elif mode == "round_prefer_ceil":
            c = unary("floor", binary("add", c, number(0.5)))
        else:
            c = unary(mode, c)
        return clamp(cast(c, I64), self.n)

    def _shrunk(self, c: Expr) -> Expr:
        """A coordinate by the rule "simple"."""
        if not isinstance(self.scale, Expr):
            return unary("ceil" if self.scale is not None and self.scale < 1 else "floor", c)
        return select(binary("lt", self.scale, number(1)), unary("ceil", c), unary("floor", c))

    def nearest_positions(self, mode: str) -> Array:
        """`nearest` of every output position."""
        c = self.positions()
        if mode == "simple":
            assert not isinstance(self.scale, Expr)
            mode = "ceil" if self.scale is not None and self.scale < 1 else "floor"
        rounded = {
            "round_prefer_floor": np.ceil(c - 0.5),
            "round_prefer_ceil": np.floor(c + 0.5),
            "floor": np.floor(c),
            "ceil": np.ceil(c),
        }[mode]
        return np.clip(rounded.astype(np.int64), 0, dims.number(self.n) - 1)


def _ratio(a: Expr | Dim, b: Dim) -> Expr:
    """a / b in float64; 0 where b is 0 (an axis of one element)."""
    if b == 0:
        return number(0)
    quotient = binary("div", value(a), value(b))
    if isinstance(b, int):
        return quotient
    return select(binary("eq", to_expr(b), to_expr(0)), number(0), quotient)
