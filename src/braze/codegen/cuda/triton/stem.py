"""Convolutions of a picture: few channels, a window of stride 2.

Loads of three channels fit no tensor core and no wide load. So a first launch folds 2 x 2 pixels of
up to four channels into one of 16, with the padding around them, and a second one convolves that
with stride 1: the taps along a line of the window are then one run of memory. Both launches share
the workspace. The first may read channels that lie apart, as pictures mostly come.
"""

from __future__ import annotations

from dataclasses import replace

from braze.codegen.cuda.triton.conv import conv_source
from braze.codegen.cuda.triton.nests import TritonSource, storage_type
from braze.codegen.cuda.triton.source import RELEASE, WAIT
from braze.codegen.cuda.triton.tile import Tile
from braze.core.dims import is_static, static, static_size
from braze.expr.loops import TensorSpec
from braze.fusion.kernel import AnchorKernel, Packing
from braze.ops.lowering import ConvSpec

FOLDED = 16  # channels of a folded pixel: two lines, two columns, four channels
PIXELS = 256  # of a program that folds


def folds(spec: ConvSpec) -> bool:
    """Whether a convolution is one of a picture, and its data lies where that is known."""
    if len(spec.kernel) != 2 or spec.groups > 1 or spec.in_channels > 4:
        return False
    if spec.strides != (2, 2) or spec.dilations != (1, 1):
        return False
    data, _ = spec.operands["data"]
    places = (*data.strides, data.offset)
    sizes = (spec.batch, *spec.in_spatial, *spec.out_spatial, *places)
    return 2 <= min(spec.kernel) <= max(spec.kernel) <= 8 and is_static(sizes)


def folded_kernel(kernel: AnchorKernel) -> AnchorKernel | None:
    """The second convolution, whose slot 0 is the workspace; None where this does not fit."""
    spec = kernel.spec
    if not isinstance(spec, ConvSpec) or not folds(spec):
        return None
    taps = tuple(-(-k // 2) for k in spec.kernel)
    spatial = tuple(
        d + t - 1 for d, t in zip(spec.out_spatial, taps, strict=True) if isinstance(d, int)
    )
    changed = replace(
        spec, in_spatial=spatial, in_channels=FOLDED, kernel=taps, strides=(1, 1), pads=(0,) * 4,
        data=None,
    )  # fmt: skip
    image = TensorSpec(kernel.inputs[0].dtype, (spec.batch, *spatial, FOLDED))
    weight = TensorSpec(kernel.inputs[1].dtype, (spec.out_channels, FOLDED, *taps))
    return replace(kernel, spec=changed, inputs=(image, weight, *kernel.inputs[2:]))


def stem_sources(kernel: AnchorKernel, tile: Tile) -> tuple[TritonSource, ...]:
    """The launch that folds and the launch that convolves; the sum is not split."""
    folded = folded_kernel(kernel)
    assert folded is not None and tile.split == 1
    plain = conv_source(folded, tile)
    ((slot, taps),) = plain.packings
    packings = ((slot, Packing("stem", taps.dtype, taps.parameters)),)
    first = fold_source(kernel, folded, packings)
    (_, kind), room = first.pointers[-2], first.scratch_bytes
    *tensors, status = plain.pointers
    # the workspace is what the convolution knows as its input
    renamed = (("unused", kind), *tensors[1:], ("in0", kind), status)
    names = ", ".join(name for name, _ in renamed)
    body = plain.text.split("):\n", 1)[1]
    second = replace(
        plain, text=f"@triton.jit\ndef conv({names}):\n{body}", pointers=renamed,
        scratch_bytes=room, packings=packings,
    )  # fmt: skip
    return first, second


def fold_source(
    kernel: AnchorKernel, folded: AnchorKernel, packings: tuple[tuple[int, Packing], ...]
) -> TritonSource:
    """The launch that fills the workspace. packings: what the one behind it asks for."""
    spec, image = kernel.spec, folded.inputs[0]
    tensors = (*kernel.inputs, kernel.output)
    pointers = (
        *((f"in{i}", storage_type(t.dtype)) for i, t in enumerate(tensors)),
        ("scratch", storage_type(image.dtype)),
        ("status", "int32"),
    )
    assert isinstance(spec, ConvSpec)
    _, high, wide, _ = static(image.shape)
    height, width = spec.in_spatial
    data, _ = spec.operands["data"]
    of_image, of_line, of_pixel, of_channel = data.strides
    total = static_size(static(image.shape[:-1]))
    lines = (
        WAIT,
        f"pixel = tl.program_id(0) * {PIXELS} + tl.arange(0, {PIXELS})[:, None]",
        f"inner = tl.arange(0, {FOLDED})[None, :]",
        "channel, right, down = inner % 4, inner // 4 % 2, inner // 8",
        f"x = pixel % {wide} * 2 - {spec.pads[1]}",
        f"y = pixel // {wide} % {high} * 2 - {spec.pads[0]}",
        f"image = pixel // {wide * high}",
        f"inside = (x + right >= 0) & (x + right < {width})",
        f"inside = inside & (y + down >= 0) & (y + down < {height})",
        f"inside = inside & (channel < {spec.in_channels}) & (pixel < {total})",
        f"place = image * {of_image} + y * {of_line} + x * {of_pixel} + {data.offset}",
        f"place = place + (down * {of_line} + right * {of_pixel} + channel * {of_channel})",
        "value = tl.load(in0 + place, mask=inside, other=0)",
        RELEASE,
        f"tl.store(scratch + (pixel * {FOLDED} + inner), value, mask=pixel < {total})",
    )
    names = ", ".join(name for name, _ in pointers)
    text = f"@triton.jit\ndef fold({names}):\n" + "".join(f"    {x}\n" for x in lines)
    room = total * FOLDED * image.dtype.itemsize
    return TritonSource(
        "fold", text, pointers, (), -(-total // PIXELS), 4, scratch_bytes=room, waits=True,
        packings=packings,
    )  # fmt: skip
