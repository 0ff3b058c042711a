"""Pooling and padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from braze.tensorrt.adding import Adding
from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.dims import Dims, DimsHW
from braze.tensorrt.enums_layers import LayerType, PaddingMode, PoolingType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, flag, member, real, sizes
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.windows import Windows, window_defaults

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_AUTO: Final = (PaddingMode.SAME_UPPER, PaddingMode.SAME_LOWER)


class IPoolingLayer(Windows):
    """The maximum or the mean of each window, or a blend of both."""

    layer_type, word = LayerType.POOLING, "Pooling"
    type = Param(member(PoolingType), PoolingType.MAX, "what is taken")  # type: ignore[assignment]
    window_size_nd = Param(sizes, (), "the window")
    blend_factor = Param(real, 0.0, "the share of the mean in MAX_AVERAGE_BLEND")
    average_count_excludes_padding = Param(flag, True, "whether a mean leaves padding out")

    @property
    def window_size(self) -> DimsHW:
        """As window_size_nd, in releases before 10."""
        return DimsHW(list(self.window_size_nd))

    @window_size.setter
    def window_size(self, value: Any) -> None:
        self.window_size_nd = value

    def lower(self, emit: Emitter) -> None:
        """One node, or two that are blended."""
        x = emit.input()
        self._check_rank(emit, x, len(self.window_size_nd))
        if self.type is PoolingType.MAX:
            emit.give(0, self._pool(emit, x, "MaxPool"))
            return
        include = 0 if self.average_count_excludes_padding else 1
        mean = self._pool(emit, x, "AveragePool", count_include_pad=include)
        if self.type is PoolingType.AVERAGE:
            emit.give(0, mean)
            return
        most = self._pool(emit, x, "MaxPool")
        share = self.blend_factor
        parts = (
            emit.node("Mul", most, emit.scalar(1 - share, x)),
            emit.node("Mul", mean, emit.scalar(share, x)),
        )
        emit.give(0, emit.node("Add", *parts))

    def _pool(self, emit: Emitter, x: str, op: str, **more: Any) -> str:
        window = tuple(self.window_size_nd)
        if self.padding_mode in _AUTO:
            more["auto_pad"] = self.padding_mode.name
        else:
            more["pads"] = (*self.pre_padding, *self.post_padding)
            more["ceil_mode"] = int(self.padding_mode is PaddingMode.EXPLICIT_ROUND_UP)
        return emit.node(op, x, kernel_shape=window, strides=tuple(self.stride_nd), **more)


class IPaddingLayer(ILayer):
    """Zeros around the last two axes; below zero, rows and columns are cut off."""

    layer_type, word = LayerType.PADDING, "Padding"
    pre_padding_nd = Param(sizes, (0, 0), "zeros in front")
    post_padding_nd = Param(sizes, (0, 0), "zeros behind")

    @property
    def pre_padding(self) -> DimsHW:
        """As pre_padding_nd, in releases before 10."""
        return DimsHW(list(self.pre_padding_nd))

    @pre_padding.setter
    def pre_padding(self, value: Any) -> None:
        self.pre_padding_nd = value

    @property
    def post_padding(self) -> DimsHW:
        """As post_padding_nd, in releases before 10."""
        return DimsHW(list(self.post_padding_nd))

    @post_padding.setter
    def post_padding(self, value: Any) -> None:
        self.post_padding_nd = value

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x = emit.input()
        before, after = list(self.pre_padding_nd), list(self.post_padding_nd)
        front = [0] * (emit.rank(x) - 2)
        if len(before) != 2 or len(after) != 2 or emit.rank(x) < 2:
            raise emit.misfit("it pads the last two axes; give two sizes in front and two behind")
        emit.give(0, emit.node("Pad", x, emit.ints([*front, *before, *front, *after])))


class AddPooling(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_pooling_nd(
        self, input: ITensor, type: PoolingType, window_size: Dims
    ) -> IPoolingLayer | None:
        """The maximum or the mean of each window."""
        window = sizes(window_size, "add_pooling_nd")
        if len(window) not in (2, 3) or min(window) < 1:
            self._refuse(f"add_pooling_nd: a window of {window} cannot be made; give 2 or 3 axes")
            return None
        return self._add(
            IPoolingLayer,
            [input],
            type=type,
            window_size_nd=window,
            **window_defaults(len(window)),
        )

    def add_padding_nd(
        self, input: ITensor, pre_padding: Dims, post_padding: Dims
    ) -> IPaddingLayer | None:
        """Zeros around the last two axes."""
        before, after = sizes(pre_padding, "add_padding_nd"), sizes(post_padding, "add_padding_nd")
        if len(before) != 2 or len(after) != 2:
            self._refuse("add_padding_nd: the last two axes are padded; give two sizes each")
            return None
        return self._add(IPaddingLayer, [input], pre_padding_nd=before, post_padding_nd=after)

    # ---- releases before 10 -------------------------------------------------------------

    def add_pooling(
        self, input: ITensor, type: PoolingType, window_size: Dims
    ) -> IPoolingLayer | None:
        """The maximum or the mean of windows over two axes."""
        warn_deprecated("add_pooling", "8.0", "add_pooling_nd")
        return self.add_pooling_nd(input, type, window_size)

    def add_padding(
        self, input: ITensor, pre_padding: Dims, post_padding: Dims
    ) -> IPaddingLayer | None:
        """Zeros around the last two axes."""
        warn_deprecated("add_padding", "8.0", "add_padding_nd")
        return self.add_padding_nd(input, pre_padding, post_padding)
