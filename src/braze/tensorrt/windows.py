"""What layers with windows share: sizes per spatial axis, and padding in all its modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from braze.tensorrt.dims import Dims, DimsHW
from braze.tensorrt.enums_layers import PaddingMode
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, member, sizes

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_AUTO = {PaddingMode.SAME_UPPER: "SAME_UPPER", PaddingMode.SAME_LOWER: "SAME_LOWER"}


class Windows(ILayer):
    """A layer that moves a window over the last axes."""

    stride_nd = Param(sizes, (), "how far the window moves")
    pre_padding = Param(sizes, (), "zeros in front of each axis")
    post_padding = Param(sizes, (), "zeros behind each axis")
    padding_mode = Param(
        member(PaddingMode), PaddingMode.EXPLICIT_ROUND_DOWN, "how windows fit at the borders"
    )

    @property
    def padding_nd(self) -> Dims:
        """Zeros at both ends of each axis, where they are the same."""
        if list(self.pre_padding) != list(self.post_padding):
            self.network._complain(f"layer {self.name!r}: its padding is not symmetric")
        return self.pre_padding

    @padding_nd.setter
    def padding_nd(self, value: Any) -> None:
        self.pre_padding = value
        self.post_padding = value

    @property
    def padding(self) -> DimsHW:
        """As padding_nd, in releases before 10."""
        return DimsHW(list(self.padding_nd))

    @padding.setter
    def padding(self, value: Any) -> None:
        self.padding_nd = value

    @property
    def stride(self) -> DimsHW:
        """As stride_nd, in releases before 10."""
        return DimsHW(list(self.stride_nd))

    @stride.setter
    def stride(self, value: Any) -> None:
        self.stride_nd = value

    def _check_rank(self, emit: Emitter, x: str, count: int) -> None:
        """Raise unless there are a batch axis, a channel axis and the axes of the window."""
        if emit.rank(x) != count + 2:
            raise emit.misfit(
                f"a window of {count} axes takes an input of {count + 2}, not {emit.rank(x)}"
            )
        for name, value in self._windows().items():
            if len(value) != count:
                raise emit.misfit(f"its {name} has {len(value)} sizes for {count} axes")

    def _windows(self) -> dict[str, Dims]:
        return {
            "stride": self.stride_nd,
            "pre_padding": self.pre_padding,
            "post_padding": self.post_padding,
        }

    def _borders(
        self, emit: Emitter, x: str, window: Sequence[int], dilation: Sequence[int]
    ) -> dict[str, Any]:
        """The attributes of ONNX that say strides and padding.

        EXPLICIT_ROUND_UP: as many zeros more at the ends as the last window needs.
        """
        strides = tuple(self.stride_nd)
        if self.padding_mode in _AUTO:
            return {"auto_pad": _AUTO[self.padding_mode], "strides": strides}
        pre, post = list(self.pre_padding), list(self.post_padding)
        if self.padding_mode is PaddingMode.EXPLICIT_ROUND_UP:
            for i, size in enumerate(emit.type(x).shape[2:]):
                span = (window[i] - 1) * dilation[i] + 1
                if isinstance(size, int):
                    post[i] += (span - size - pre[i] - post[i]) % strides[i]
                elif strides[i] > 1:
                    raise emit.misfit(
                        "EXPLICIT_ROUND_UP takes known sizes; use EXPLICIT_ROUND_DOWN or SAME_UPPER"
                    )
        return {"pads": (*pre, *post), "strides": strides}


def window_defaults(count: int) -> dict[str, Any]:
    """Strides of 1 and no padding."""
    return {"stride_nd": (1,) * count, "pre_padding": (0,) * count, "post_padding": (0,) * count}
