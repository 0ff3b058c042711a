"""Scale, LRN, softmax and normalizations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import LayerType, ScaleMode
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, WeightsParam, member, real, whole
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter


def axes_of(emit: Emitter, mask: int, rank: int) -> list[int]:
    """The axes whose bits are set; raises for axes that are not there."""
    mask <<= emit.batch
    if mask < 0 or mask >> rank:
        raise emit.misfit(f"axes {mask:#b} are set but the input has {rank}")
    return [i for i in range(rank) if mask >> i & 1]


class IScaleLayer(ILayer):
    """(x * scale + shift) ** power: one number for all, one a channel, or one an element."""

    layer_type, word = LayerType.SCALE, "Scale"
    mode = Param(member(ScaleMode), ScaleMode.UNIFORM, "over what the numbers vary")
    shift = WeightsParam("what is added")
    scale = WeightsParam("what is multiplied with")
    power = WeightsParam("the exponent")
    channel_axis = Param(whole, 1, "the axis of the channels")

    def roles(self) -> dict[str, Weights]:
        """Scale and shift; the exponent cannot be refitted."""
        return {"SCALE": self._kept("scale"), "SHIFT": self._kept("shift")}

    def lower(self, emit: Emitter) -> None:
        """Up to three nodes."""
        x = emit.input()
        made, shape = x, self._shape(emit, x)
        for op, name in (("Mul", "scale"), ("Add", "shift"), ("Pow", "power")):
            numbers = self._kept(name)
            if numbers.size:
                made = emit.node(op, made, emit.weights(numbers, shape, like=x))
        emit.give(0, made)

    def _shape(self, emit: Emitter, x: str) -> list[int]:
        shape, axis = emit.type(x).shape, 1 if emit.batch else self.channel_axis
        if self.mode is ScaleMode.UNIFORM:
            return [1]
        if not 0 <= axis < len(shape):
            raise emit.misfit(f"axis {axis} of the channels is not there: the input is {shape}")
        own = shape[axis:] if self.mode is ScaleMode.ELEMENTWISE else shape[axis : axis + 1]
        if not all(isinstance(d, int) for d in own):
            raise emit.misfit("sizes that weights are given for must be known")
        rest = [] if self.mode is ScaleMode.ELEMENTWISE else [1] * (len(shape) - axis - 1)
        return [*(int(str(d)) for d in own), *rest]


class ILRNLayer(ILayer):
    """Each element over the power of the mean square of its neighbours in other channels."""

    layer_type, word = LayerType.LRN, "LRN"
    window_size = Param(whole, 1, "how many channels")
    alpha = Param(real, 1e-4, "the factor")
    beta = Param(real, 0.75, "the exponent")
    k = Param(real, 1.0, "what is added")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        more = {"alpha": self.alpha, "beta": self.beta, "bias": self.k}
        emit.give(0, emit.node("LRN", emit.input(), size=self.window_size, **more))


class ISoftMaxLayer(ILayer):
    """exp(x) over its sum along an axis: the third from last where none is set."""

    layer_type, word = LayerType.SOFTMAX, "SoftMax"
    _axes = Param(whole, 0, "bits of the axis; 0 for none set")

    @property
    def axes(self) -> int:
        """A bit for the axis."""
        if self._axes:
            return self._axes
        tensor = self.get_input(0)
        return 1 << max(0, len(tensor.shape) - 3) if tensor is not None else 1

    @axes.setter
    def axes(self, value: int) -> None:
        self._axes = value

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x = emit.input()
        rank = emit.rank(x)
        axes = axes_of(emit, self._axes or 1 << max(0, rank - emit.batch - 3), rank)
        if len(axes) != 1:
            raise emit.misfit(f"softmax is along one axis, but {len(axes)} are set")
        emit.give(0, emit.node("Softmax", x, axis=axes[0]))


class IRaggedSoftMaxLayer(ILayer):
    """Softmax along the last axis of as many elements as the second input says; zeros behind."""

    layer_type, word, most_inputs = LayerType.RAGGED_SOFTMAX, "Ragged SoftMax", 2

    def lower(self, emit: Emitter) -> None:
        """Softmax of what a mask leaves."""
        x, bounds = emit.input(0), emit.cast(emit.input(1), DataType.INT64)
        if emit.rank(x) != emit.rank(bounds):
            raise emit.misfit("its bounds have another number of axes than its input")
        last = emit.constant(np.int64(emit.rank(x) - 1))
        size = emit.node("Gather", emit.shape_of(x), last, axis=0)
        places = emit.node("Range", emit.constant(np.int64(0)), size, emit.constant(np.int64(1)))
        inside = emit.node("Less", places, bounds)
        masked = emit.node("Where", inside, x, emit.scalar(-np.inf, x))
        made = emit.node("Softmax", masked, axis=-1)
        emit.give(0, emit.node("Where", inside, made, emit.scalar(0, x)))


class INormalizationLayer(ILayer):
    """(x - mean) / sqrt(variance + epsilon) * scale + bias, over axes or over groups of channels.

    Numbers of scale and bias for groups are one a group, in version 2 one a channel.
    """

    layer_type, word, most_inputs = LayerType.NORMALIZATION, "Normalization", 3
    axes = Param(whole, 0, "bits of the axes of mean and variance")
    epsilon = Param(real, 1e-5, "what is added to the variance")
    num_groups = Param(whole, 1, "how many groups of channels")
    compute_precision = Param(member(DataType), DataType.FLOAT, "the type of mean and variance")
    _version = Param(whole, 1, "which constructor made it")

    @property
    def is_v2(self) -> bool:
        """Whether add_normalization_v2 made it."""
        return self._version == 2

    def lower(self, emit: Emitter) -> None:
        """The node of ONNX that fits, or the formula."""
        x, scale, bias = emit.alike(emit.input(0), emit.input(1), emit.input(2))
        rank = emit.rank(x)
        axes = axes_of(emit, self.axes, rank)
        if not axes:
            raise emit.misfit("no axes are set to normalize over")
        if self.num_groups > 1:
            emit.give(0, self._groups(emit, x, scale, bias))
            return
        trailing = axes == list(range(axes[0], rank))
        ones = all(
            all(d == 1 for d in emit.type(s).shape[: axes[0]]) and emit.rank(s) == rank
            for s in (scale, bias)
        )
        if trailing and ones and axes[0] > 0:
            kept = [emit.type(x).shape[i] for i in axes]
            if all(emit.type(s).shape[axes[0] :] == tuple(kept) for s in (scale, bias)):
                flat = [emit.reshape(s, [int(str(d)) for d in kept]) for s in (scale, bias)]
                made = emit.node("LayerNormalization", x, *flat, axis=axes[0], epsilon=self.epsilon)
                emit.give(0, made)
                return
        emit.give(0, self._formula(emit, x, scale, bias, axes))

    def _formula(self, emit: Emitter, x: str, scale: str, bias: str, axes: list[int]) -> str:
        mean = emit.node("ReduceMean", x, emit.ints(axes), keepdims=1)
        centered = emit.node("Sub", x, mean)
        square = emit.node("Mul", centered, centered)
        variance = emit.node("ReduceMean", square, emit.ints(axes), keepdims=1)
        above = emit.node("Add", variance, emit.scalar(self.epsilon, x))
        made = emit.node("Div", centered, emit.node("Sqrt", above))
        return emit.node("Add", emit.node("Mul", made, scale), bias)

    def _groups(self, emit: Emitter, x: str, scale: str, bias: str) -> str:
        channels = emit.type(x).shape[1]
        if not isinstance(channels, int) or channels % self.num_groups:
            raise emit.misfit(f"{channels} channels are not {self.num_groups} equal groups")
        numbers = []
        for name in (scale, bias):
            flat = emit.reshape(name, [-1])
            size = emit.type(flat).shape[0]
            if size == self.num_groups != channels:
                rows = emit.reshape(flat, [self.num_groups, 1])
                wide = emit.ints([self.num_groups, channels // self.num_groups])
                flat = emit.reshape(emit.node("Expand", rows, wide), [channels])
            numbers.append(flat)
        groups = {"num_groups": self.num_groups, "epsilon": self.epsilon}
        return emit.node("GroupNormalization", x, *numbers, **groups)


class AddNorm(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_scale(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: Weights | None = None,
        scale: Weights | None = None,
        power: Weights | None = None,
    ) -> IScaleLayer | None:
        """(x * scale + shift) ** power, channels on axis 1."""
        return self.add_scale_nd(input, mode, shift, scale, power, 1)

    def add_scale_nd(
        self,
        input: ITensor,
        mode: ScaleMode,
        shift: Weights | None = None,
        scale: Weights | None = None,
        power: Weights | None = None,
        channel_axis: int = 1,
    ) -> IScaleLayer | None:
        """(x * scale + shift) ** power."""
        values = {"shift": shift, "scale": scale, "power": power, "channel_axis": channel_axis}
        return self._add(IScaleLayer, [input], mode=mode, **values)

    def add_lrn(
        self, input: ITensor, window: int, alpha: float, beta: float, k: float
    ) -> ILRNLayer | None:
        """Normalization by neighbours in other channels."""
        if whole(window, "add_lrn") < 1 or window % 2 == 0:
            self._refuse(f"add_lrn: the window of {window} channels is not odd")
            return None
        return self._add(ILRNLayer, [input], window_size=window, alpha=alpha, beta=beta, k=k)

    def add_softmax(self, input: ITensor) -> ISoftMaxLayer | None:
        """exp(x) over its sum along an axis."""
        return self._add(ISoftMaxLayer, [input])

    def add_ragged_softmax(self, input: ITensor, bounds: ITensor) -> IRaggedSoftMaxLayer | None:
        """Softmax of as many elements as bounds say."""
        return self._add(IRaggedSoftMaxLayer, [input, bounds])

    def add_normalization(
        self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int
    ) -> INormalizationLayer | None:
        """Normalization over axes."""
        return self._add(INormalizationLayer, [input, scale, bias], axes=axesMask)

    def add_normalization_v2(
        self, input: ITensor, scale: ITensor, bias: ITensor, axesMask: int
    ) -> INormalizationLayer | None:
        """Normalization over axes; for groups, scale and bias are one a channel."""
        return self._add(INormalizationLayer, [input, scale, bias], axes=axesMask, _version=2)
