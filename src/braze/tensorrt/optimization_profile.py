"""IOptimizationProfile: the sizes that an engine is made for."""

from __future__ import annotations

from collections.abc import Sequence

from braze.tensorrt.dims import Dims, as_dims, whole_numbers
from braze.tensorrt.params import text


class InconsistentError(ValueError, RuntimeError):
    """Sizes that contradict each other: TensorRT documents a ValueError, and raises the other."""


class IOptimizationProfile:
    """(min, opt, max) of shapes, and of the content of inputs that decide sizes."""

    def __init__(self) -> None:
        self._shapes: dict[str, tuple[Dims, Dims, Dims]] = {}
        self._contents: dict[str, tuple[list[int], list[int], list[int]]] = {}
        self._memory = 1.0

    def set_shape(
        self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> None:
        """The shapes an input may have; InconsistentError where they contradict each other."""
        where = f"profile of input {text(input, 'set_shape')!r}"
        low, best, high = (as_dims(d, where) for d in (min, opt, max))
        _check(where, list(low), list(best), list(high))
        if any(d < 0 for d in low):
            raise InconsistentError(f"{where}: min {low} has a negative size")
        self._shapes[input] = (low, best, high)

    def get_shape(self, input: str) -> list[Dims]:
        """[min, opt, max] of an input; empty where none are set."""
        return list(self._shapes.get(text(input, "get_shape"), ()))

    def set_shape_input(
        self, input: str, min: Sequence[int], opt: Sequence[int], max: Sequence[int]
    ) -> None:
        """The content that an input may have; InconsistentError where it contradicts itself."""
        where = f"profile of input {text(input, 'set_shape_input')!r}"
        low, best, high = (whole_numbers(v, where) for v in (min, opt, max))
        _check(where, low, best, high)
        self._contents[input] = (low, best, high)

    def get_shape_input(self, input: str) -> list[list[int]]:
        """[min, opt, max] of the content of an input; empty where none are set."""
        return [list(v) for v in self._contents.get(text(input, "get_shape_input"), ())]

    @property
    def extra_memory_target(self) -> float:
        """A hint of how much memory this profile may take, from 0 to 1."""
        return self._memory

    @extra_memory_target.setter
    def extra_memory_target(self, value: float) -> None:
        if not 0.0 <= float(value) <= 1.0:
            raise ValueError(f"extra_memory_target {value} is not in 0..1")
        self._memory = float(value)

    def __bool__(self) -> bool:
        return True  # set_shape lets nothing wrong in

    def __nonzero__(self) -> bool:
        return bool(self)


def _check(where: str, low: list[int], best: list[int], high: list[int]) -> None:
    if not len(low) == len(best) == len(high):
        raise InconsistentError(f"{where}: min, opt and max have different lengths")
    if not all(a <= b <= c for a, b, c in zip(low, best, high, strict=True)):
        raise InconsistentError(f"{where}: need min <= opt <= max, got {low}, {best}, {high}")
