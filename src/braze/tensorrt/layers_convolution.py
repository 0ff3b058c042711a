"""Convolutions, deconvolutions and fully connected layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from braze.tensorrt.adding import Adding
from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.dims import Dims, DimsHW
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, WeightsParam, sizes, whole
from braze.tensorrt.tensor import ITensor
from braze.tensorrt.weights import Weights
from braze.tensorrt.windows import Windows, window_defaults

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter


class _Filters(Windows):
    """Filters over windows; inputs 1 and 2 stand for kernel and bias."""

    most_inputs = 3
    num_output_maps = Param(whole, 1, "how many filters")
    kernel_size_nd = Param(sizes, (), "the window")
    kernel = WeightsParam("the filters")
    bias = WeightsParam("what is added to each map")
    dilation_nd = Param(sizes, (), "the distance of elements in a window")
    num_groups = Param(whole, 1, "how many groups of channels stay apart")

    def roles(self) -> dict[str, Weights]:
        """Filters and bias."""
        return {"KERNEL": self._kept("kernel"), "BIAS": self._kept("bias")}

    @property
    def kernel_size(self) -> DimsHW:
        """As kernel_size_nd, in releases before 10."""
        return DimsHW(list(self.kernel_size_nd))

    @kernel_size.setter
    def kernel_size(self, value: Any) -> None:
        self.kernel_size_nd = value

    @property
    def dilation(self) -> DimsHW:
        """As dilation_nd, in releases before 10."""
        return DimsHW(list(self.dilation_nd))

    @dilation.setter
    def dilation(self, value: Any) -> None:
        self.dilation_nd = value

    def _windows(self) -> dict[str, Dims]:
        return {**super()._windows(), "dilation": self.dilation_nd}

    def _operands(self, emit: Emitter, x: str, transposed: bool) -> tuple[str, str, str | None]:
        """Input, filters and bias in one element type."""
        self._check_rank(emit, x, len(self.kernel_size_nd))
        channels = emit.type(x).shape[1]
        if not isinstance(channels, int):
            raise emit.misfit("the number of channels must be known when the network is built")
        if self.num_groups < 1 or channels % self.num_groups:
            raise emit.misfit(f"{channels} channels are not {self.num_groups} equal groups")
        maps = self.num_output_maps
        pair = (channels, maps) if transposed else (maps, channels)
        shape = (pair[0], pair[1] // self.num_groups, *self.kernel_size_nd)
        if emit.has(1):
            x, w = emit.alike(x, emit.input(1))
        else:
            w = emit.weights(self._kept("kernel"), shape, like=x)
        if emit.has(2):
            return x, w, emit.cast(emit.input(2), emit.type(x).dtype)
        return x, w, emit.weights(self._kept("bias"), (maps,), like=x) if self.bias.size else None


_F = TypeVar("_F", bound=_Filters)


class IConvolutionLayer(_Filters):
    """A convolution over the last two or three axes."""

    layer_type, word = LayerType.CONVOLUTION, "Convolution"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, w, b = self._operands(emit, emit.input(), transposed=False)
        borders = self._borders(emit, x, list(self.kernel_size_nd), list(self.dilation_nd))
        dilations = tuple(self.dilation_nd)
        made = emit.node("Conv", x, w, b, group=self.num_groups, dilations=dilations, **borders)
        emit.give(0, made)


class IDeconvolutionLayer(_Filters):
    """The transpose of a convolution."""

    layer_type, word = LayerType.DECONVOLUTION, "Deconvolution"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, w, b = self._operands(emit, emit.input(), transposed=True)
        strides, modes = tuple(self.stride_nd), ("SAME_UPPER", "SAME_LOWER")
        mode = self.padding_mode.name
        borders: dict[str, Any] = {"strides": strides}
        if mode in modes:
            borders["auto_pad"] = mode
        else:
            borders["pads"] = (*self.pre_padding, *self.post_padding)
        dilations = tuple(self.dilation_nd)
        made = emit.node(
            "ConvTranspose", x, w, b, group=self.num_groups, dilations=dilations, **borders
        )
        emit.give(0, made)


class IFullyConnectedLayer(ILayer):
    """A product with all of the last three axes, of releases before 10."""

    layer_type, word = LayerType.MATRIX_MULTIPLY, "Fully Connected"
    num_output_channels = Param(whole, 1, "how many sums")
    kernel = WeightsParam("the matrix, a row a sum")
    bias = WeightsParam("what is added to each sum")

    def roles(self) -> dict[str, Weights]:
        """Matrix and bias."""
        return {"KERNEL": self._kept("kernel"), "BIAS": self._kept("bias")}

    def lower(self, emit: Emitter) -> None:
        """A product of the flattened input."""
        x = emit.input()
        rank, maps = emit.rank(x), self.num_output_channels
        if rank < 4:
            raise emit.misfit(f"it takes an input of 4 axes, not {rank}")
        flat = emit.node("Flatten", x, axis=rank - 3)
        depth = emit.type(flat).shape[1]
        if not isinstance(depth, int):
            raise emit.misfit("the last three sizes must be known when the network is built")
        w = emit.weights(self._kept("kernel"), (maps, depth), like=x)
        b = emit.weights(self._kept("bias"), (maps,), like=x) if self.bias.size else None
        made = emit.node("Gemm", flat, w, b, transB=1)
        front = emit.node("Slice", emit.shape_of(x), emit.ints([0]), emit.ints([rank - 3]))
        shape = emit.node("Concat", front, emit.ints([maps, 1, 1]), axis=0)
        emit.give(0, emit.node("Reshape", made, shape))


class AddConvolution(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_convolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Dims,
        kernel: Weights,
        bias: Weights | None = None,
    ) -> IConvolutionLayer | None:
        """A convolution over as many axes as the window has."""
        return self._filters(IConvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias)

    def add_deconvolution_nd(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Dims,
        kernel: Weights,
        bias: Weights | None = None,
    ) -> IDeconvolutionLayer | None:
        """The transpose of a convolution over as many axes as the window has."""
        return self._filters(
            IDeconvolutionLayer, input, num_output_maps, kernel_shape, kernel, bias
        )

    def _filters(
        self, kind: type[_F], input: ITensor, maps: int, shape: Any, kernel: Any, bias: Any
    ) -> _F | None:
        window = sizes(shape, kind.__name__)
        count = len(window)
        if count not in (2, 3) or min(window) < 1 or whole(maps, kind.__name__) < 1:
            self._refuse(f"{kind.word}: {maps} maps with a window of {window} cannot be made")
            return None
        return self._add(
            kind,
            [input],
            num_output_maps=maps,
            kernel_size_nd=window,
            kernel=kernel,
            bias=bias,
            dilation_nd=(1,) * count,
            **window_defaults(count),
        )

    # ---- releases before 10 -------------------------------------------------------------

    def add_convolution(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Dims,
        kernel: Weights,
        bias: Weights | None = None,
    ) -> IConvolutionLayer | None:
        """A convolution over two axes."""
        warn_deprecated("add_convolution", "8.0", "add_convolution_nd")
        return self.add_convolution_nd(input, num_output_maps, kernel_shape, kernel, bias)

    def add_deconvolution(
        self,
        input: ITensor,
        num_output_maps: int,
        kernel_shape: Dims,
        kernel: Weights,
        bias: Weights | None = None,
    ) -> IDeconvolutionLayer | None:
        """The transpose of a convolution over two axes."""
        warn_deprecated("add_deconvolution", "8.0", "add_deconvolution_nd")
        return self.add_deconvolution_nd(input, num_output_maps, kernel_shape, kernel, bias)

    def add_fully_connected(
        self, input: ITensor, num_outputs: int, kernel: Weights, bias: Weights | None = None
    ) -> IFullyConnectedLayer | None:
        """A product with all of the last three axes."""
        warn_deprecated("add_fully_connected", "8.4", "add_matrix_multiply")
        return self._add(
            IFullyConnectedLayer,
            [input],
            num_output_channels=num_outputs,
            kernel=kernel,
            bias=bias,
        )
