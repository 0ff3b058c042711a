"""Layers that make tensors of nothing: constants and fills."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from braze.tensorrt.adding import Adding
from braze.tensorrt.addresses import AddressError
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import array_type
from braze.tensorrt.enums_layers import FillOperation, LayerType
from braze.tensorrt.enums_runtime import DataType
from braze.tensorrt.layer import ILayer
from braze.tensorrt.params import Param, WeightsParam, member, precise, sizes
from braze.tensorrt.weights import Weights

if TYPE_CHECKING:
    from braze.tensorrt.emitter import Emitter

_SEED = 0  # of random fills: the same numbers in every run


class IConstantLayer(ILayer):
    """Weights as a tensor."""

    layer_type, word, most_inputs = LayerType.CONSTANT, "Constant", 0
    shape = Param(sizes, (), "the sizes")
    weights = WeightsParam("the content")

    def roles(self) -> dict[str, Weights]:
        """The content."""
        return {"CONSTANT": self._kept("weights")}

    def lower(self, emit: Emitter) -> None:
        """A constant."""
        emit.give(0, emit.weights(self._kept("weights"), [1] * emit.batch + list(self.shape)))


def _fill_number(value: Any, what: str) -> float | int:
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
        return int(value)
    return precise(value, what)


class IFillLayer(ILayer):
    """A tensor of numbers in a row, or of random numbers.

    LINSPACE: alpha at the first place, beta more at each next one of the last axis (with inputs 1
    and 2, a delta for each axis); RANDOM_UNIFORM: from alpha to beta; RANDOM_NORMAL: mean alpha,
    standard deviation beta. Inputs 0, 1 and 2 stand for shape, alpha and beta.
    """

    layer_type, word, most_inputs, shape_inputs = LayerType.FILL, "Fill", 3, (0,)
    shape = Param(sizes, (), "the sizes")
    operation = Param(member(FillOperation), FillOperation.LINSPACE, "what it is filled with")
    alpha = Param(_fill_number, 0.0, "its first number")
    beta = Param(_fill_number, 1.0, "its second number")
    to_type = Param(member(DataType), DataType.FLOAT, "the type")

    @property
    def is_alpha_beta_int64(self) -> bool:
        """Whether both were given as whole numbers."""
        return isinstance(self.alpha, int) and isinstance(self.beta, int)

    def lower(self, emit: Emitter) -> None:
        """Random nodes, or sums of ranges over the axes."""
        shape = emit.cast(emit.input(0), DataType.INT64) if emit.has(0) else None
        if self.operation is FillOperation.LINSPACE:
            emit.give(0, self._linspace(emit, shape or emit.ints(self.shape)))
            return
        if emit.has(1) or emit.has(2):
            emit.give(0, self._scaled(emit, shape or emit.ints(self.shape)))
            return
        emit.give(0, self._random(emit, shape or emit.ints(self.shape), self.alpha, self.beta))

    def _random(self, emit: Emitter, shape: str, alpha: float, beta: float) -> str:
        a, b = float(alpha), float(beta)
        zeros = emit.node("ConstantOfShape", shape, value=np.zeros(1, np.float32))
        if self.operation is FillOperation.RANDOM_UNIFORM:
            made = emit.node("RandomUniformLike", zeros, low=a, high=b, seed=float(_SEED), dtype=1)
        else:
            made = emit.node("RandomNormalLike", zeros, mean=a, scale=b, seed=float(_SEED), dtype=1)
        return emit.cast(made, self.to_type)

    def _scaled(self, emit: Emitter, shape: str) -> str:
        """Random numbers of limits that are tensors."""
        unit = emit.cast(self._random(emit, shape, 0.0, 1.0), self.to_type)
        alpha, beta = self._limit(emit, 1, self.alpha), self._limit(emit, 2, self.beta)
        if self.operation is FillOperation.RANDOM_UNIFORM:
            beta = emit.node("Sub", beta, alpha)
        return emit.node("Add", emit.node("Mul", unit, beta), alpha)

    def _limit(self, emit: Emitter, index: int, value: float) -> str:
        if emit.has(index):
            return emit.cast(emit.input(index), self.to_type)
        return emit.constant(np.asarray(value).astype(array_type(self.to_type)))

    def _linspace(self, emit: Emitter, shape: str) -> str:
        """alpha + sum over the axes of place times delta."""
        rank = emit.type(shape).shape[0]
        if not isinstance(rank, int):
            raise emit.wrong("the number of its axes is not known")
        deltas = self._deltas(emit, rank)
        made = self._limit(emit, 1, self.alpha)
        if emit.rank(made):
            made = emit.reshape(made, ())
        for axis, delta in deltas:
            size = emit.node("Gather", shape, emit.constant(np.int64(axis)), axis=0)
            places = emit.node(
                "Range", emit.constant(np.int64(0)), size, emit.constant(np.int64(1))
            )
            steps = emit.node("Mul", emit.cast(places, self.to_type), delta)
            rest = [1 if k != axis else -1 for k in range(rank)]
            made = emit.node("Add", made, emit.reshape(steps, rest))
        return emit.node("Expand", made, shape)

    def _deltas(self, emit: Emitter, rank: int) -> list[tuple[int, str]]:
        delta = self._limit(emit, 2, self.beta)
        if not emit.has(2) or emit.rank(delta) == 0:
            if rank > 1 and emit.has(2):
                raise emit.misfit(f"its delta is one number; give one for each of {rank} axes")
            return [(rank - 1, delta)] if rank else []
        each = []
        for axis in range(rank):
            each.append((axis, emit.node("Gather", delta, emit.constant(np.int64(axis)), axis=0)))
        return each


class AddConstant(Adding):
    """The part of INetworkDefinition that adds these layers."""

    def add_constant(self, shape: Dims, weights: Weights) -> IConstantLayer | None:
        """Weights as a tensor; None where there are not as many as the shape takes."""
        layer = self._made(IConstantLayer, shape=shape, weights=weights)
        count = int(np.prod(list(layer.shape), dtype=np.int64))
        try:
            given = layer.weights.size
        except AddressError as e:
            self._refuse(f"add_constant: {e}")
            return None
        if given != count or any(d < 0 for d in layer.shape):
            self._refuse(f"add_constant: {given} weights are given for the shape {layer.shape}")
            return None
        return self._append(layer)

    def add_fill(
        self, shape: Dims, op: FillOperation, output_type: DataType = DataType.FLOAT
    ) -> IFillLayer:
        """A tensor of numbers in a row, or of random numbers."""
        return self._append(self._made(IFillLayer, shape=shape, operation=op, to_type=output_type))
