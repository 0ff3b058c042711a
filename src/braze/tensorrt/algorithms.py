"""IAlgorithmSelector of release 10 and before: it hears which tactics were chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from braze.tensorrt.dims import Dims
from braze.tensorrt.enums_runtime import DataType


@dataclass(frozen=True)
class IAlgorithmIOInfo:
    """A tensor of an algorithm."""

    dtype: DataType = DataType.FLOAT
    strides: Dims | tuple[int, ...] = ()
    vectorized_dim: int = -1
    components_per_element: int = 1


@dataclass(frozen=True)
class IAlgorithmVariant:
    """Which implementation, and which tactic of it."""

    implementation: int = 0
    tactic: int = 0


@dataclass(frozen=True)
class IAlgorithm:
    """A way to run a layer."""

    algorithm_variant: IAlgorithmVariant = IAlgorithmVariant()
    timing_msec: float = 0.0
    workspace_size: int = 0
    tensors: tuple[IAlgorithmIOInfo, ...] = ()

    def get_algorithm_io_info(self, index: int) -> IAlgorithmIOInfo:
        """A tensor of it."""
        return self.tensors[index]


@dataclass(frozen=True)
class IAlgorithmContext:
    """The layer that an algorithm is for."""

    name: str = ""
    num_inputs: int = 0
    num_outputs: int = 0
    shapes: tuple[Sequence[Dims], ...] = ()

    def get_shape(self, index: int) -> list[Dims]:
        """[min, opt, max] of a tensor."""
        return list(self.shapes[index])


class IAlgorithmSelector:
    """Chooses algorithms; derive from it."""

    def __init__(self) -> None:
        return None

    def select_algorithms(
        self, context: IAlgorithmContext, choices: Sequence[IAlgorithm]
    ) -> list[int]:
        """The choices that may be used."""
        return list(range(len(choices)))

    def report_algorithms(
        self, contexts: Sequence[IAlgorithmContext], choices: Sequence[IAlgorithm]
    ) -> None:
        """What was chosen for each layer."""
