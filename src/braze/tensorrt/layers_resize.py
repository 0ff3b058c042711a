"""Resize and grid sampling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_layers import (
    InterpolationMode,
    LayerType,
    ResizeCoordinateTransformation,
    ResizeRoundMode,
    ResizeSelector,
    SampleMode,
)
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, flag, member, real, sizes
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_T, _R, _M = ResizeCoordinateTransformation, ResizeRoundMode, InterpolationMode
_PLACES: Final = {
    _T.ALIGN_CORNERS: "align_corners",
    _T.ASYMMETRIC: "asymmetric",
    _T.HALF_PIXEL: "half_pixel",
}
_ROUNDING: Final = {
    _R.HALF_UP: "round_prefer_ceil",
    _R.HALF_DOWN: "round_prefer_floor",
    _R.FLOOR: "floor",
    _R.CEIL: "ceil",
}
_RESIZES: Final = {_M.NEAREST: "nearest", _M.LINEAR: "linear", _M.CUBIC: "cubic"}
_SAMPLES: Final = {
    SampleMode.FILL: "zeros",
    SampleMode.CLAMP: "border",
    SampleMode.REFLECT: "reflection",
}


def _scales(value: Any, what: str) -> list[float]:
    return [real(v, what) for v in value]


def _sizes_or_none(value: Any, what: str) -> Dims | None:
    return None if value is None else sizes(value, what)


class IResizeLayer(ILayer):
    """The input at other sizes: of `shape`, of `scales`, or of input 1."""

    layer_type, word, most_inputs, shape_inputs = LayerType.RESIZE, "Resize", 2, (1,)
    _shape = Param(_sizes_or_none, None, "the sizes, where they are set")
    scales = Param(_scales, (), "the factors of sizes")
    resize_mode = Param(member(_M), _M.NEAREST, "what is read between elements")
    coordinate_transformation = Param(member(_T), _T.ASYMMETRIC, "which place is read")
    nearest_rounding = Param(member(_R), _R.FLOOR, "how places are rounded in NEAREST")
    selector_for_single_pixel = Param(
        member(ResizeSelector), ResizeSelector.FORMULA, "which place one element reads"
    )
    cubic_coeff = Param(real, -0.75, "the coefficient of CUBIC")
    exclude_outside = Param(flag, False, "whether weights beyond the ends are left out in CUBIC")

    @property
    def shape(self) -> Dims:
        """The sizes."""
        return Dims() if self._shape is None else self._shape

    @shape.setter
    def shape(self, value: Any) -> None:
        self._shape = sizes(value, "IResizeLayer.shape")

    @property
    def align_corners(self) -> bool:
        """Whether ALIGN_CORNERS is set, as releases before 8 said it."""
        return self.coordinate_transformation is _T.ALIGN_CORNERS

    @align_corners.setter
    def align_corners(self, value: bool) -> None:
        self.coordinate_transformation = _T.ALIGN_CORNERS if value else _T.ASYMMETRIC

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, rank = emit.input(0), emit.rank(emit.input(0))
        target, factors = None, None
        if emit.has(1):
            target = emit.cast(emit.input(1), DataType.INT64)
        elif self._shape is not None:
            target = self._target(emit, x, rank)
        elif len(self.scales) == rank - emit.batch:
            factors = emit.constant(np.array([1.0] * emit.batch + self.scales, np.float32))
        else:
            raise emit.misfit(f"give a shape or {rank} scales")
        places = _PLACES[self.coordinate_transformation]
        if self.selector_for_single_pixel is ResizeSelector.UPPER and places == "half_pixel":
            places = "pytorch_half_pixel"
        made = emit.node(
            "Resize",
            x,
            None,
            factors,
            target,
            mode=_RESIZES[self.resize_mode],
            coordinate_transformation_mode=places,
            nearest_mode=_ROUNDING[self.nearest_rounding],
            cubic_coeff_a=self.cubic_coeff,
            exclude_outside=int(self.exclude_outside),
        )
        emit.give(0, made)

    def _target(self, emit: Emitter, x: str, rank: int) -> str:
        """The sizes; those of -1 are the input's."""
        wanted = [-1] * emit.batch + list(self.shape)
        if len(wanted) != rank:
            raise emit.misfit(f"its shape has {len(wanted)} sizes but the input {rank} axes")
        if min(wanted) >= 0:
            return emit.ints(wanted)
        own = emit.shape_of(x)
        parts = [
            emit.ints([d])
            if d >= 0
            else emit.node("Slice", own, emit.ints([i]), emit.ints([i + 1]))
            for i, d in enumerate(wanted)
        ]
        return emit.node("Concat", *parts, axis=0)


class IGridSampleLayer(ILayer):
    """The input read at the places of a grid, which are in -1..1."""

    layer_type, word, most_inputs = LayerType.GRID_SAMPLE, "GridSample", 2
    interpolation_mode = Param(member(_M), _M.LINEAR, "what is read between elements")
    align_corners = Param(flag, False, "whether -1 and 1 are the middles of the last elements")
    sample_mode = Param(member(SampleMode), SampleMode.FILL, "what stands beyond the ends")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, grid = emit.alike(emit.input(0), emit.input(1))
        if self.sample_mode not in _SAMPLES:
            raise emit.wrong(f"sample mode {self.sample_mode.name} is none; use FILL or CLAMP")
        made = emit.node(
            "GridSample",
            x,
            grid,
            mode=_RESIZES[self.interpolation_mode],
            padding_mode=_SAMPLES[self.sample_mode],
            align_corners=int(self.align_corners),
        )
        emit.give(0, made)


class AddResize(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_resize(self, input: ITensor) -> IResizeLayer | None:
        """A tensor at other sizes."""
        return self._add(IResizeLayer, [input])

    def add_grid_sample(self, input: ITensor, grid: ITensor) -> IGridSampleLayer | None:
        """A tensor read at the places of a grid."""
        return self._add(IGridSampleLayer, [input, grid])
