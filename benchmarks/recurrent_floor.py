#!/usr/bin/env python3
"""How close a streamed recurrent network comes to reading its weights.

    python benchmarks/recurrent_floor.py [--threads 2] [--cells lstm,gru-after] [--hidden 64,512]

One step, states in and out, memory bound before. The floor is the time in which as many threads
read as many bytes as the weights have, again and again, from whichever cache they fit. Both are
the least of bursts in turns: what counts is their ratio.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable

import numpy as np
from llvmlite import ir
from recurrent import GATES, Network, spread, threads_now

import braze
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.product.register_tile import TileShape, add, zero
from braze.codegen.cpu.target import CpuTarget
from braze.runtime.native import LoadedKernel, host_isa

CHAINS = 16  # vectors of a turn of the loop
READS = 20  # of all bytes, in one run of the kernel, whose mean counts


def reading(size: int, threads: int) -> Callable[[], float]:
    """A timer of reading `size` bytes by as many threads, in microseconds."""
    target = CpuTarget(host_isa(), threads)
    shape = TileShape(1, 1, target.vector_bits // 32)
    fn = KernelFunction("read", target, 2)
    data, out = fn.buffer(0, shape.element), fn.buffer(1, shape.element)
    step = CHAINS * shape.lanes
    count = -(-size // 4 // step) * step
    begin, end = fn.split(count, step)
    with fn.carry_loop(0, READS, 1, [zero(shape.vector)] * CHAINS) as turn:
        with fn.carry_loop(begin, end, step, turn.values) as it:
            place = fn.at(data, it.index, shape.element)
            it.next = [
                add(fn, sums, fn.load(fn.at(place, i * shape.lanes, shape.element), shape.vector))
                for i, sums in enumerate(it.values)
            ]
        turn.next = it.results
    own = fn.at(out, fn.builder.mul(fn.worker, ir.Constant(ir.IntType(64), step)), shape.element)
    for i, sums in enumerate(turn.results):
        fn.store(sums, fn.at(own, i * shape.lanes, shape.element))
    kernel = LoadedKernel(fn.finish()[0], "read")
    memory = [np.zeros(count, np.float32), np.zeros(step * threads, np.float32)]

    def run() -> float:
        return float(min(kernel.time(memory, [], workers=threads, repeats=3))) / READS * 1e6

    return run


def streaming(network: Network, threads: int) -> Callable[[], float]:
    """A timer of one step, in microseconds: the least of some."""
    engine = braze.build(network.model(), threads=threads)
    rng = np.random.default_rng(0)
    sizes = {i.name: list(map(int, i.shape)) for i in engine.inputs}
    feed = {name: rng.uniform(-1, 1, shape).astype(np.float32) for name, shape in sizes.items()}
    context = engine.create_context()
    for name, array in {**feed, **engine(feed)}.items():
        if name in feed:
            context.set_input_shape(name, array.shape)
        context.bind(name, array)

    def once() -> float:
        start = time.perf_counter()
        context.execute()
        return (time.perf_counter() - start) * 1e6

    def run() -> float:
        return min(once() for _ in range(50))

    return run


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seconds", type=float, default=1.5, help="for each network")
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(GATES))
    parser.add_argument("--hidden", default="64,128,256,512")
    options = parser.parse_args()
    processors = os.sched_getaffinity(0)
    for cell in options.cells:
        for hidden in map(int, options.hidden.split(",")):
            network = Network(cell, 1, False, hidden, 1, 1)
            before = threads_now()
            timers = [
                streaming(network, options.threads),
                *(reading(network.weight_bytes, n) for n in {1, options.threads}),
            ]
            best = [timer() for timer in timers]
            spread(threads_now() - before)
            os.sched_setaffinity(0, {min(processors)})
            end = time.perf_counter() + options.seconds
            while time.perf_counter() < end:
                best = [min(b, timer()) for b, timer in zip(best, timers, strict=True)]
            os.sched_setaffinity(0, processors)
            floor = min(best[1:])
            print(
                f"{network.cell:<10}{hidden:>4}  {network.weight_bytes / 1024:7.0f} KiB  "
                f"floor {floor:7.2f} us ({network.weight_bytes / floor / 1e3:4.0f} GB/s)  "
                f"step {best[0]:7.2f} us  {best[0] / floor:5.2f}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
