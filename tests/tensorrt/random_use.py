"""Random calls of the runtime API: `python -m tests.tensorrt.random_use STEPS SEED...`.

Addresses are those of device memory, of freed memory, of large arrays and of nothing; streams may
be destroyed. Every call gives its value or raises what the API raises; afterwards a run is right.
"""

from __future__ import annotations

import faulthandler
import random
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

import braze.tensorrt as trt
from braze.shim.device import host_device
from braze.shim.errors import DeviceError
from tests.tensorrt import engines
from tests.tensorrt.test_runtime import Allocator, Listener, Times

LARGE = 256  # floats of an array: more than any tensor here has
NOWHERE = (0, 1, 8, 1 << 20, (1 << 63) - 8, 1 << 62)
SIZES = (0, 1, 2, 3, 4, 5, 17, -1, 1 << 40)


class Calls:
    """The state of one sequence: contexts, memory and streams that are there or were."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.device, self.log = host_device(), engines.Log()
        self.contexts: list[tuple[Any, Any]] = []
        self.memory: list[int] = []
        self.freed: list[int] = []
        self.streams, self.dead = [0], [12345]
        self.arrays = [np.zeros(LARGE, np.float32) for _ in range(4)]
        self.runs = self.good = 0
        self.calls: list[Callable[[], Any]] = [
            self.make, self.allocate, self.free, self.shape, self.good_shape, self.address,
            self.address, self.address, self.allocator, self.profile, self.stream, self.destroy,
            self.enqueue, self.execute, self.listen, self.ask,
        ]  # fmt: skip

    def step(self) -> None:
        """One call."""
        call = self.make if not self.contexts else self.random.choice(self.calls)
        try:
            call()
        except (DeviceError, RuntimeError):
            return  # what the API raises for wrong use

    def place(self) -> int:
        """An address of any kind."""
        r = self.random
        kinds = [NOWHERE, [a.ctypes.data for a in self.arrays]]
        kinds += [self.memory] * 4 + [self.freed]
        chosen = r.choice([k for k in kinds if k])
        return r.choice(chosen) + (r.choice((0, 0, 64)) if chosen is self.memory else 0)

    def one(self) -> tuple[Any, Any, list[str]]:
        engine, context = self.random.choice(self.contexts)
        return engine, context, [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]

    def make(self) -> None:
        kinds = (engines.static_engine, engines.dynamic_engine, engines.non_zero_engine,
                 engines.debug_engine, engines.gather_engine)  # fmt: skip
        engine = engines.load(self.random.choice(kinds)(), self.log)
        strategy = self.random.choice(list(trt.ExecutionContextAllocationStrategy))
        self.contexts = [*self.contexts[-3:], (engine, engine.create_execution_context(strategy))]

    def allocate(self) -> None:
        if len(self.memory) < 20:
            self.memory.append(self.device.memory.allocate(self.random.choice((1, 64, 4096))))

    def free(self) -> None:
        if self.memory:
            address = self.memory.pop(self.random.randrange(len(self.memory)))
            self.freed = [*self.freed[-4:], address]
            self.device.free(address)

    def shape(self) -> None:
        _, context, names = self.one()
        sizes = [self.random.choice(SIZES) for _ in range(self.random.choice((0, 1, 2, 2, 3)))]
        context.set_input_shape(self.random.choice(names), sizes)

    def good_shape(self) -> None:
        _, context, names = self.one()
        context.set_input_shape(names[0], (self.random.randrange(1, 17), 4))

    def address(self) -> None:
        _, context, names = self.one()
        context.set_tensor_address(self.random.choice(names), self.place())

    def allocator(self) -> None:
        _, context, names = self.one()
        chosen = self.random.choice((None, Allocator()))
        context.set_output_allocator(self.random.choice(names), chosen)

    def profile(self) -> None:
        self.one()[1].set_optimization_profile_async(self.random.choice((0, 0, 1, 2, -1)), 0)

    def stream(self) -> None:
        if len(self.streams) < 6:
            self.streams.append(self.device.create_stream())

    def destroy(self) -> None:
        if len(self.streams) > 1:
            handle = self.streams.pop()
            self.dead.append(handle)
            self.device.destroy_stream(handle)

    def enqueue(self) -> None:
        self.count(
            self.one()[1].execute_async_v3(self.random.choice(self.streams + self.dead[-2:]))
        )

    def execute(self) -> None:
        _, context, names = self.one()
        count = self.random.choice((len(names), len(names), 1))
        self.count(context.execute_v2([self.place() for _ in range(count)]))

    def count(self, result: object) -> None:
        assert isinstance(result, bool)
        self.runs += 1
        self.good += result

    def listen(self) -> None:
        context = self.one()[1]
        context.profiler = self.random.choice((None, Times()))
        context.set_debug_listener(self.random.choice((None, Listener())))
        context.set_all_tensors_debug_state(self.random.random() < 0.5)
        context.enqueue_emits_profile = self.random.random() < 0.5
        context.set_device_memory(self.place(), self.random.choice((0, 1 << 20)))

    def ask(self) -> None:
        _, context, names = self.one()
        for name in names:
            context.get_tensor_shape(name)
            context.get_tensor_strides(name)
            context.get_max_output_size(name)
        context.report_to_profiler()
        context.update_device_memory_size_for_shapes()
        context.infer_shapes()


def check_a_run() -> None:
    """A right run is right, whatever was before it."""
    context = engines.load(engines.dynamic_engine()).create_execution_context()
    x, y = np.ones((3, 4), np.float32), np.zeros((3, 3), np.float32)
    assert context.set_input_shape("x", x.shape)
    assert context.execute_v2([x.ctypes.data, y.ctypes.data])
    np.testing.assert_allclose(y, engines.scale_reference(x), rtol=1e-5, atol=1e-5)


def main(seed: int, steps: int) -> None:
    """One sequence; prints how many runs there were, and how many of them were good."""
    calls = Calls(seed)
    for _ in range(steps):
        calls.step()
    with suppress(DeviceError):  # an index out of range in a run that was enqueued
        calls.device.synchronize()
    check_a_run()
    assert calls.log.errors
    print(calls.runs, calls.good)


if __name__ == "__main__":
    faulthandler.enable()
    for seed in sys.argv[2:]:
        main(int(seed), int(sys.argv[1]))
