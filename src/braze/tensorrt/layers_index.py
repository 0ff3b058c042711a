"""Layers that pick elements by indices: gather, scatter, one-hot, top-k, non-zero, boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.enums_layers import (
    BoundingBoxFormat,
    GatherMode,
    LayerType,
    ScatterMode,
    TopKOperation,
)
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.layers_norm import axes_of
from braze.tensorrt.params import Param, member, whole
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter


_INDEX: Final = (DataType.INT32, DataType.INT64)


class IGatherLayer(ILayer):
    """Elements by their places. num_elementwise_dims: leading axes that indices share with data."""

    layer_type, word, most_inputs = LayerType.GATHER, "Gather", 2
    axis = Param(whole, 0, "the axis that indices are along")
    mode = Param(member(GatherMode), GatherMode.DEFAULT, "which Gather of ONNX")
    num_elementwise_dims = Param(whole, 0, "leading axes in common")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        if emit.dtype(emit.input(1)) not in _INDEX:
            kind = emit.dtype(emit.input(1)).name
            raise emit.wrong(f"its indices are {kind}; give INT32 or INT64")
        x, where = emit.input(0), emit.cast(emit.input(1), DataType.INT64)
        shared = self.num_elementwise_dims
        if self.mode is GatherMode.ND:
            emit.give(0, emit.node("GatherND", x, where, batch_dims=shared))
            return
        rank = emit.rank(x)
        axis = self.axis + rank if self.axis < 0 else self.axis + emit.batch
        if not 0 <= axis < rank:
            raise emit.misfit(f"axis {self.axis} is not there: the input has {rank}")
        if self.mode is GatherMode.ELEMENT:
            emit.give(0, emit.node("GatherElements", x, where, axis=axis))
        elif shared == 0:
            emit.give(0, emit.node("Gather", x, where, axis=axis))
        elif shared == 1 and axis >= 1:
            emit.give(0, self._shared(emit, x, where, axis))
        else:
            raise emit.wrong(f"num_elementwise_dims {shared} with axis {axis} cannot be gathered")

    def _shared(self, emit: Emitter, x: str, where: str, axis: int) -> str:
        """Rows of the same batch: the axis goes to the front for it, and back."""
        rank, picked = emit.rank(x), emit.rank(where) - 1
        order = [0, axis, *(i for i in range(1, rank) if i != axis)]
        column = emit.node("Unsqueeze", where, emit.ints([-1]))
        made = emit.node("GatherND", emit.transpose(x, order), column, batch_dims=1)
        before = list(range(1 + picked, picked + axis))  # the axes between the batch and `axis`
        behind = list(range(picked + axis, picked + rank - 1))
        return emit.transpose(made, [0, *before, *range(1, 1 + picked), *behind])


class IScatterLayer(ILayer):
    """Data with elements replaced at places."""

    layer_type, word, most_inputs = LayerType.SCATTER, "Scatter", 3
    axis = Param(whole, 0, "the axis that indices are along, in ELEMENT")
    mode = Param(member(ScatterMode), ScatterMode.ELEMENT, "which Scatter of ONNX")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        data, updates = emit.alike(emit.input(0), emit.input(2))
        where = emit.cast(emit.input(1), DataType.INT64)
        if self.mode is ScatterMode.ND:
            emit.give(0, emit.node("ScatterND", data, where, updates))
        else:
            emit.give(0, emit.node("ScatterElements", data, where, updates, axis=self.axis))


class IOneHotLayer(ILayer):
    """A row with one value on and others off for each index; inputs are indices, values, depth."""

    layer_type, word, most_inputs, shape_inputs = LayerType.ONE_HOT, "OneHot", 3, (2,)
    axis = Param(whole, -1, "the new axis")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        depth = emit.cast(emit.input(2), DataType.INT64)
        emit.give(0, emit.node("OneHot", emit.input(0), depth, emit.input(1), axis=self.axis))


class ITopKLayer(ILayer):
    """The k largest or smallest along an axis, and their places. Input 1 stands for k."""

    layer_type, word, outputs = LayerType.TOPK, "TopK", 2
    most_inputs, shape_inputs = 2, (1,)
    op = Param(member(TopKOperation), TopKOperation.MAX, "the largest or the smallest")
    k = Param(whole, 1, "how many")
    axes = Param(whole, 1, "a bit for the axis")
    indices_type = Param(member(DataType), DataType.INT32, "the type of places")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        x = emit.input(0)
        axes = axes_of(emit, self.axes, emit.rank(x))
        if len(axes) != 1:
            raise emit.misfit(f"it is along one axis, but {len(axes)} are set")
        k = emit.cast(emit.input(1), DataType.INT64) if emit.has(1) else emit.ints([self.k])
        largest = int(self.op is TopKOperation.MAX)
        count = emit.reshape(k, [1])
        values, places = emit.nodes("TopK", (x, count), 2, axis=axes[0], largest=largest)
        emit.give(0, values)
        emit.give(1, emit.cast(places, self.indices_type))


class INonZeroLayer(ILayer):
    """The places of elements that are not zero: a column each."""

    layer_type, word = LayerType.NON_ZERO, "NonZero"
    indices_type = Param(member(DataType), DataType.INT32, "the type of places")

    def lower(self, emit: Emitter) -> None:
        """One node."""
        emit.give(0, emit.cast(emit.node("NonZero", emit.input()), self.indices_type))


class INMSLayer(ILayer):
    """Boxes that overlap no better one: (batch, class, box) of each, and how many there are.

    Inputs 3 and 4 are the overlap and the score that boxes may have.
    """

    layer_type, word, outputs = LayerType.NMS, "NMS", 2
    most_inputs, shape_inputs = 5, (2,)
    bounding_box_format = Param(
        member(BoundingBoxFormat), BoundingBoxFormat.CORNER_PAIRS, "how boxes are given"
    )
    topk_box_limit = Param(whole, 2000, "most boxes that are looked at")
    indices_type = Param(member(DataType), DataType.INT32, "the type of places")

    def lower(self, emit: Emitter) -> None:
        """One node: ONNX has scores by class before boxes."""
        boxes, scores = emit.input(0), emit.transpose(emit.input(1), [0, 2, 1])
        if emit.rank(boxes) == 4:
            boxes = emit.node("Squeeze", boxes, emit.ints([2]))  # boxes that all classes share
        most = emit.reshape(emit.cast(emit.input(2), DataType.INT64), [1])
        limits = [
            emit.reshape(emit.cast(emit.input(i), DataType.FLOAT), [1]) if emit.has(i) else None
            for i in (3, 4)
        ]
        center = int(self.bounding_box_format is BoundingBoxFormat.CENTER_SIZES)
        found = emit.node(
            "NonMaxSuppression", boxes, scores, most, *limits, center_point_box=center
        )
        count = emit.node("Gather", emit.shape_of(found), emit.constant(np.int64(0)), axis=0)
        emit.give(0, emit.cast(found, self.indices_type))
        emit.give(1, emit.cast(count, DataType.INT32))


class IReverseSequenceLayer(ILayer):
    """The first elements of each sequence in reverse order, as many as input 1 says."""

    layer_type, word, most_inputs = LayerType.REVERSE_SEQUENCE, "ReverseSequence", 2
    batch_axis = Param(whole, 1, "the axis of sequences")
    sequence_axis = Param(whole, 0, "the axis of their elements")

    def lower(self, emit: Emitter) -> None:
        """One node; ONNX has both axes in front."""
        x, lengths = emit.input(0), emit.cast(emit.input(1), DataType.INT64)
        axes = (self.batch_axis, self.sequence_axis)
        rank = emit.rank(x)
        if axes[0] == axes[1] or any(not 0 <= a < rank for a in axes):
            raise emit.misfit(f"axes {axes} are not two of its {rank}")
        order = [*axes, *(i for i in range(rank) if i not in axes)]
        back = [order.index(i) for i in range(rank)]
        moved = emit.transpose(x, order)
        made = emit.node("ReverseSequence", moved, lengths, batch_axis=0, time_axis=1)
        emit.give(0, emit.transpose(made, back))


class AddIndex(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_gather(self, input: ITensor, indices: ITensor, axis: int) -> IGatherLayer | None:
        """Slices of an axis."""
        return self._add(IGatherLayer, [input, indices], axis=axis)

    def add_gather_v2(
        self, input: ITensor, indices: ITensor, mode: GatherMode
    ) -> IGatherLayer | None:
        """Elements by their places."""
        return self._add(IGatherLayer, [input, indices], mode=mode)

    def add_scatter(
        self, data: ITensor, indices: ITensor, updates: ITensor, mode: ScatterMode
    ) -> IScatterLayer | None:
        """Data with elements replaced."""
        return self._add(IScatterLayer, [data, indices, updates], mode=mode)

    def add_one_hot(
        self, indices: ITensor, values: ITensor, depth: ITensor, axis: int
    ) -> IOneHotLayer | None:
        """A row with one value on for each index."""
        return self._add(IOneHotLayer, [indices, values, depth], axis=axis)

    def add_topk(
        self,
        input: ITensor,
        op: TopKOperation,
        k: int,
        axes: int,
        indices_type: DataType = DataType.INT32,
    ) -> ITopKLayer | None:
        """The k largest or smallest along an axis."""
        if whole(k, "add_topk") < 0:
            self._refuse(f"add_topk: {k} elements cannot be taken")
            return None
        return self._add(ITopKLayer, [input], op=op, k=k, axes=axes, indices_type=indices_type)

    def add_non_zero(
        self, input: ITensor, indices_type: DataType = DataType.INT32
    ) -> INonZeroLayer | None:
        """The places of elements that are not zero."""
        return self._add(INonZeroLayer, [input], indices_type=indices_type)

    def add_nms(
        self,
        boxes: ITensor,
        scores: ITensor,
        max_output_boxes_per_class: ITensor,
        indices_type: DataType = DataType.INT32,
    ) -> INMSLayer | None:
        """Boxes that overlap no better one."""
        inputs = [boxes, scores, max_output_boxes_per_class]
        return self._add(INMSLayer, inputs, indices_type=indices_type)

    def add_reverse_sequence(
        self, input: ITensor, sequence_lens: ITensor
    ) -> IReverseSequenceLayer | None:
        """The first elements of each sequence in reverse order."""
        return self._add(IReverseSequenceLayer, [input, sequence_lens])
