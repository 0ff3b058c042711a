"""Weight streaming: how much of an engine's weights may lie in the memory of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import braze.runtime.engine as core
from braze.core.errors import BrazeError
from braze.tensorrt.deprecation import warn_deprecated
from braze.tensorrt.enums_build import BuilderFlag
from braze.tensorrt.recorder import Reporter

if TYPE_CHECKING:
    from braze.tensorrt.context import IExecutionContext


class EngineWeights:
    """The part of ICudaEngine about weight streaming; on a CPU all weights are on the host."""

    _engine: core.Engine
    _reporter: Reporter
    _budget: int | None = None

    if TYPE_CHECKING:

        def _has(self, *flags: BuilderFlag) -> bool: ...

        def _take(self, engine: core.Engine) -> None: ...

        @property
        def contexts(self) -> list[IExecutionContext]: ...

    @property
    def streamable_weights_size(self) -> int:
        """Bytes of weights that may be streamed; 0 unless the engine was built for it."""
        if not self._has(BuilderFlag.WEIGHT_STREAMING):
            return 0
        return sum(w.bytes for w in self._engine.plan.weights)

    @property
    def weight_streaming_budget_v2(self) -> int:
        """Bytes of weights that lie on the device; all of them at first."""
        return self.streamable_weights_size if self._budget is None else self._budget

    @weight_streaming_budget_v2.setter
    def weight_streaming_budget_v2(self, budget: int) -> None:
        where = "ICudaEngine::setWeightStreamingBudgetV2"
        if not self._has(BuilderFlag.WEIGHT_STREAMING):
            self._reporter.wrong(where, "The engine was not built with WEIGHT_STREAMING.")
        elif budget < 0:
            self._reporter.wrong(where, f"The budget {budget} is negative.")
        elif self.contexts:
            self._reporter.wrong(where, "The budget cannot change while contexts exist.")
        else:
            within = min(budget, self.streamable_weights_size)
            if self._engine.on_gpu:
                image = self._engine.to_bytes()
                try:
                    self._take(core.Engine.from_bytes(image, weight_budget=within))
                except BrazeError as e:
                    self._reporter.wrong(where, str(e))
                    return
            self._budget = within

    @property
    def weight_streaming_budget(self) -> int:
        """As weight_streaming_budget_v2, in the way of 10.0: -1 for no limit."""
        warn_deprecated("ICudaEngine.weight_streaming_budget", "10.1", "weight_streaming_budget_v2")
        full = self.streamable_weights_size
        return -1 if self.weight_streaming_budget_v2 >= full else self.weight_streaming_budget_v2

    @weight_streaming_budget.setter
    def weight_streaming_budget(self, budget: int) -> None:
        warn_deprecated("ICudaEngine.weight_streaming_budget", "10.1", "weight_streaming_budget_v2")
        self.weight_streaming_budget_v2 = (
            self.streamable_weights_size if budget in (-1, 0) else budget
        )

    @property
    def minimum_weight_streaming_budget(self) -> int:
        """The least budget a run works with."""
        warn_deprecated(
            "ICudaEngine.minimum_weight_streaming_budget", "10.1", "weight_streaming_budget_v2"
        )
        return 0

    @property
    def weight_streaming_scratch_memory_size(self) -> int:
        """Bytes that streaming needs beside the budget."""
        return 0

    def get_weight_streaming_automatic_budget(self) -> int:
        """A budget that suits the device: all weights."""
        return self.streamable_weights_size
