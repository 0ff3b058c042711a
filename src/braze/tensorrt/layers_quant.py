"""Quantization: to integers and narrow floats, back, and by scales that the run finds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import core_type
from braze.tensorrt.enums_layers import LayerType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, member, sizes, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_NARROW: Final = (DataType.INT8, DataType.FP8, DataType.INT4, DataType.FP4, DataType.UINT8)
_LARGEST: Final = {DataType.FP4: 6.0, DataType.FP8: 448.0, DataType.INT8: 127.0}


class _Quantizing(ILayer):
    """Input 1 is the scale: one, one a slice of `axis`, or one a block; input 2 the zero point."""

    most_inputs = 3
    axis = Param(whole, -1, "the axis that scales are along; -1 for none set")
    to_type = Param(member(DataType), DataType.INT8, "the type of the output")
    block_shape = Param(sizes, (), "how many elements share a scale, an axis")

    def _scaling(self, emit: Emitter, x: str, scale: str) -> dict[str, Any]:
        """The attributes that say what a scale is for."""
        rank, scales = emit.rank(x), emit.rank(scale)
        if scales == rank and rank > 1:
            return self._blocks(emit, x, scale)
        if scales == 0 or emit.type(scale).shape == (1,):
            return {}
        axis = self.axis + rank if self.axis < 0 else self.axis
        if scales != 1 or not 0 <= axis < rank:
            raise emit.misfit(f"a scale of {scales} axes does not fit an input of {rank}")
        return {"axis": axis}

    def _blocks(self, emit: Emitter, x: str, scale: str) -> dict[str, Any]:
        pairs = list(zip(emit.type(x).shape, emit.type(scale).shape, strict=True))
        differing = [i for i, (a, b) in enumerate(pairs) if a != b]
        if not differing:
            return {"axis": 0, "block_size": 1}
        at = differing[0]
        size, count = pairs[at]
        whole_blocks = isinstance(size, int) and isinstance(count, int) and count > 0
        if len(differing) > 1 or not whole_blocks or int(str(size)) % int(str(count)):
            raise emit.misfit("scales in blocks divide one axis of known size")
        return {"axis": at, "block_size": int(str(size)) // int(str(count))}

    def _scale_of(self, emit: Emitter) -> str:
        """The scale, without an axis where it is one number."""
        scale = emit.input(1)
        known = emit.peek(scale)
        if known is not None and not (known.astype(np.float32) > 0).all():
            raise emit.wrong("its scales are not all above 0; give positive ones")
        return emit.reshape(scale, ()) if emit.type(scale).shape == (1,) else scale


class IQuantizeLayer(_Quantizing):
    """round(x / scale) in a narrow type; ties go to even numbers."""

    layer_type, word = LayerType.QUANTIZE, "Quantize"

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x, scale = emit.alike(emit.input(0), self._scale_of(emit))
        more = self._scaling(emit, x, scale)
        zero = emit.cast(emit.input(2), self.to_type) if emit.has(2) else None
        if zero is None:
            more["output_dtype"] = core_type(self.to_type).onnx
        emit.give(0, emit.node("QuantizeLinear", x, scale, zero, **more))


class IDequantizeLayer(_Quantizing):
    """x * scale."""

    layer_type, word = LayerType.DEQUANTIZE, "Dequantize"
    to_type = Param(member(DataType), DataType.FLOAT, "the type of the output")

    def lower(self, emit: Emitter) -> None:
        """One node, with the scale in the type of the output."""
        x, scale = emit.input(0), emit.cast(self._scale_of(emit), self.to_type)
        zero = emit.cast(emit.input(2), emit.type(x).dtype) if emit.has(2) else None
        more = self._scaling(emit, x, scale)
        emit.give(0, emit.node("DequantizeLinear", x, scale, zero, **more))


class IDynamicQuantizeLayer(ILayer):
    """Blocks in a narrow type with the scales that their largest elements need.

    The outputs are the quantized blocks and the scales; input 1 is a scale of the scales.
    """

    layer_type, word, outputs, most_inputs = LayerType.DYNAMIC_QUANTIZE, "DynamicQuantize", 2, 2
    axis = Param(whole, -1, "the axis that is cut into blocks")
    block_size = Param(whole, 16, "how many elements share a scale")
    block_shape = Param(sizes, (), "the same, an axis")
    to_type = Param(member(DataType), DataType.FP4, "the type of the blocks")
    scale_type = Param(member(DataType), DataType.FP8, "the type of the scales")

    def lower(self, emit: Emitter) -> None:
        """The largest of each block, the scale from it, and a division."""
        x, rank = emit.input(0), emit.rank(emit.input(0))
        axis = self.axis + rank if self.axis < 0 else self.axis
        size = emit.type(x).shape[axis] if 0 <= axis < rank else None
        block = self.block_size
        if not isinstance(size, int) or block < 1 or size % block:
            raise emit.misfit(f"axis {axis} is not cut into blocks of {block}; its size is {size}")
        cut: list[int] = [0] * axis + [size // block, block]
        behind = list(range(axis + 1, rank))
        if behind:
            raise emit.misfit("blocks are along the last axis")
        wide = emit.cast(x, DataType.FLOAT)
        blocks = emit.node("Reshape", wide, emit.ints(cut))
        largest = emit.node("ReduceMax", emit.node("Abs", blocks), emit.ints([rank]), keepdims=1)
        scale = emit.node("Div", largest, emit.constant(np.float32(_LARGEST[self.to_type])))
        if emit.has(1):
            scale = emit.node("Div", scale, emit.cast(emit.input(1), DataType.FLOAT))
        scale = self._rounded(emit, scale)
        stored = emit.cast(scale, self.scale_type)
        used = emit.cast(stored, DataType.FLOAT)
        if emit.has(1):
            used = emit.node("Mul", used, emit.cast(emit.input(1), DataType.FLOAT))
        zero = emit.constant(np.float32(0))
        safe = emit.node(
            "Where", emit.node("Equal", used, zero), emit.constant(np.float32(1)), used
        )
        divided = emit.node("Div", blocks, safe)
        flat = emit.node("Reshape", divided, emit.ints([0] * axis + [size]))
        emit.give(0, self._narrow(emit, flat))
        emit.give(1, emit.node("Squeeze", stored, emit.ints([rank])))

    def _rounded(self, emit: Emitter, scale: str) -> str:
        """The scale as a power of two that is not below it, for E8M0."""
        if self.scale_type is not DataType.E8M0:
            return scale
        least = emit.constant(np.float32(2.0**-126))
        log = emit.node("Log", emit.node("Max", scale, least))
        exponent = emit.node("Ceil", emit.node("Div", log, emit.constant(np.float32(np.log(2.0)))))
        return emit.node("Pow", emit.constant(np.float32(2)), exponent)

    def _narrow(self, emit: Emitter, x: str) -> str:
        if self.to_type is DataType.INT8:
            one = emit.constant(np.float32(1))
            return emit.node("QuantizeLinear", x, one, emit.constant(np.int8(0)))
        return emit.cast(x, self.to_type)


class AddQuant(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_quantize(
        self, input: ITensor, scale: ITensor, output_type: DataType = DataType.INT8
    ) -> IQuantizeLayer | None:
        """A tensor in a narrow type."""
        if output_type not in _NARROW:
            self._refuse(f"add_quantize: {output_type!r} is no narrow type; use INT8 or FP8")
            return None
        return self._add(IQuantizeLayer, [input, scale], to_type=output_type)

    def add_dequantize(
        self, input: ITensor, scale: ITensor, output_type: DataType = DataType.FLOAT
    ) -> IDequantizeLayer | None:
        """A tensor back from a narrow type."""
        if output_type not in (DataType.FLOAT, DataType.HALF, DataType.BF16):
            self._refuse(f"add_dequantize: {output_type!r} is no float; use FLOAT, HALF or BF16")
            return None
        return self._add(IDequantizeLayer, [input, scale], to_type=output_type)

    def add_dynamic_quantize(
        self,
        input: ITensor,
        axis: int,
        block_size: int,
        output_type: DataType,
        scale_type: DataType,
    ) -> IDynamicQuantizeLayer | None:
        """Blocks in a narrow type with scales that the run finds."""
        if output_type not in _LARGEST:
            self._refuse(f"add_dynamic_quantize: {output_type!r} is none; use FP4 or FP8")
            return None
        types = {"to_type": output_type, "scale_type": scale_type}
        return self._add(IDynamicQuantizeLayer, [input], axis=axis, block_size=block_size, **types)

    def add_dynamic_quantize_v2(
        self, input: ITensor, block_shape: Dims, output_type: DataType, scale_type: DataType
    ) -> IDynamicQuantizeLayer | None:
        """The same by a shape of blocks, which are along the last axis."""
        shape = list(sizes(block_shape, "add_dynamic_quantize_v2"))
        if not shape or any(d != 1 for d in shape[:-1]):
            self._refuse(f"add_dynamic_quantize_v2: blocks of {shape} are not along the last axis")
            return None
        layer = self.add_dynamic_quantize(input, -1, shape[-1], output_type, scale_type)
        if layer is not None:
            layer.block_shape = block_shape
        return layer
