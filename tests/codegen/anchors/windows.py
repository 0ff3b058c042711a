"""Windows of convolutions as one parameter of a test, and lists of them that several tests run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from braze.core.dims import Dim
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel
from braze.ops.lowering import ConvSpec, Operand
from tests.codegen.anchors import harness


@dataclass(frozen=True)
class Window:
    """channels: in and out; the rest as ONNX has it."""

    channels: tuple[int, int]
    size: tuple[int, int]
    groups: int = 1
    strides: tuple[int, int] = (1, 1)
    dilations: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)

    def __str__(self) -> str:
        window = (self.channels, self.size, (self.groups,))
        numbers = (*window, self.strides, self.dilations, self.pads)
        return "-".join("x".join(map(str, n)) for n in numbers)

    def conv(self, images: Dim, height: Dim, width: Dim, kind: str = "none") -> AnchorKernel:
        """The convolution of such images in float32."""
        return harness.conv(
            images, height, width, self.channels, self.size, groups=self.groups,
            strides=self.strides, dilations=self.dilations, pads=self.pads, kind=kind,
        )  # fmt: skip


def depthwise(channels: int, size: tuple[int, int], **others: Any) -> Window:
    """A window over each channel by itself."""
    return Window((channels, channels), size, channels, **others)


PADDED: Final = Window((64, 64), (3, 3), pads=(1, 1, 1, 1))
STRIDED: Final = replace(PADDED, strides=(2, 2))
# the size of an image, a window on it, and the box of pixels that a program of Gluon takes
BOXED: Final = (
    ((9, 13), Window((64, 72), (3, 2), dilations=(2, 1), pads=(2, 0, 1, 1)), (8, 8)),
    ((14, 10), STRIDED, (2, 2)),
    ((14, 10), Window((128, 64), (1, 1), strides=(2, 2)), (1, 16)),
    ((12, 9), Window((40, 64), (5, 3), strides=(2, 1), pads=(2, 1, 1, 0)), (8, 8)),
    ((7, 12), Window((64, 40), (2, 4), strides=(1, 2), pads=(0, 1, 0, 1)), (2, 2)),
)  # fmt: skip


def among(kernel: AnchorKernel, before: int, channels: int) -> AnchorKernel:
    """The convolution or product of rows, its data `before` the others of so many channels."""
    data, (*outer, own) = kernel.inputs[0], kernel.inputs[0].shape
    if own == channels:
        return kernel
    wide = TensorSpec(data.dtype, (*outer, channels))
    strides = harness.contiguous(wide.shape)
    assert isinstance(own, int) and before + own <= channels
    spec = kernel.spec
    if isinstance(spec, ConvSpec):
        spec = replace(spec, data=Operand(0, strides, before))
    else:
        spec = replace(spec, lhs=Operand(0, strides, before))
    return replace(kernel, spec=spec, inputs=(wide, *kernel.inputs[1:]))


def infinite_beside(array: np.ndarray[Any, Any], channels: slice) -> np.ndarray[Any, Any]:
    """`array` with infinities beside these channels."""
    rest = np.full_like(array, np.inf)
    rest[..., channels] = array[..., channels]
    return rest
