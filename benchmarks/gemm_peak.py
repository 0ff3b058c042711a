"""How close the register tile comes to the core's own limit.

    python benchmarks/gemm_peak.py [--isa avx512] [--m 256 --n 3072 --k 768] [--seconds 2]

Times a loop of nothing but multiply-adds in registers and each tactic of one float32 product
with packed weights, in turns within one run on one core, and prints the best of each and their
ratio. The ratio is what to look at: clocks differ between machines and moments.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from braze.codegen.cpu.anchors import anchor_tactics, compile_anchor
from braze.codegen.cpu.llvm.function import KernelFunction
from braze.codegen.cpu.packing import pack_anchor
from braze.codegen.cpu.product.dot import multiply_add
from braze.codegen.cpu.product.register_tile import TileShape
from braze.codegen.cpu.target import CpuTarget
from braze.core.config import EFFORTS
from braze.core.dims import evaluate
from braze.core.dtypes import F32
from braze.expr.loops import TensorSpec
from braze.expr.scalar import hole
from braze.fusion.kernel import AnchorKernel, Tactic
from braze.ops.lowering import MatmulSpec, Operand
from braze.runtime.native import LoadedKernel, host_isa

CHAINS = 12  # independent sums: covers the latency of a multiply-add on every known core
STEPS = 200_000


def register_loop(target: CpuTarget) -> tuple[Callable[[], float], float]:
    """A timer of one run of a loop of multiply-adds that never touches memory, and its flops."""
    shape = TileShape(1, 1, target.vector_bits // F32.bits)
    fn = KernelFunction("peak", target, 1)
    out = fn.buffer(0, shape.element)
    x = fn.load(out, shape.vector)
    with fn.carry_loop(0, STEPS, 1, [x] * CHAINS) as it:
        it.next = [multiply_add(fn, value, x, x) for value in it.values]
    for i, value in enumerate(it.results):
        fn.store(value, fn.at(out, i * shape.lanes, shape.element))
    kernel = LoadedKernel(fn.finish()[0], "peak")
    memory = np.zeros(CHAINS * shape.lanes, np.float32)

    def run() -> float:
        return float(kernel.time([memory], [], workers=1, warmup=0, repeats=1)[0])

    return run, 2.0 * STEPS * CHAINS * shape.lanes


def product(m: int, n: int, k: int) -> AnchorKernel:
    """[m, k] x constant [k, n]."""
    spec = MatmulSpec((), m, n, k, Operand(0, (k, 1)), Operand(1, (n, 1)), Operand(0, (n, 1)), F32)
    inputs = (TensorSpec(F32, (m, k)), TensorSpec(F32, (k, n)))
    return AnchorKernel(spec, inputs, TensorSpec(F32, (m, n)), hole(0, F32), frozenset({1}))


def tactic_loop(kernel: AnchorKernel, tactic: Tactic, target: CpuTarget) -> Callable[[], float]:
    """A timer of one run of `kernel` compiled by `tactic`."""
    code = compile_anchor(kernel, tactic, target)
    loaded = LoadedKernel(code.own_code.data, code.own_code.entry)
    rng = np.random.default_rng(0)
    shapes = [[evaluate(d, {}) for d in t.shape] for t in (*kernel.inputs, kernel.output)]
    buffers: list[Any] = [rng.standard_normal(s).astype(np.float32) for s in shapes[:-1]]
    for slot, packing in code.packings:
        buffers[slot] = pack_anchor(buffers[slot], packing)
    buffers.append(np.zeros(shapes[-1], np.float32))
    if code.launch.scratch_bytes:
        buffers.append(np.zeros(evaluate(code.launch.scratch_bytes, {}), np.uint8))

    def run() -> float:
        return float(loaded.time(buffers, [], workers=1, warmup=0, repeats=1)[0])

    return run


def in_turns(timers: list[Callable[[], float]], seconds: float) -> list[float]:
    """The best time of each, measured one after another until `seconds` have passed."""
    best = [float("inf")] * len(timers)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for i, timer in enumerate(timers):
            best[i] = min(best[i], timer())
    return best


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa", default=host_isa())
    parser.add_argument("--m", type=int, default=256)
    parser.add_argument("--n", type=int, default=3072)
    parser.add_argument("--k", type=int, default=768)
    parser.add_argument("--seconds", type=float, default=2.0)
    args = parser.parse_args()
    target = CpuTarget(args.isa, 1)
    kernel = product(args.m, args.n, args.k)
    tactics = anchor_tactics(kernel, target, EFFORTS[3])
    peak, peak_flops = register_loop(target)
    started = time.perf_counter()
    runs = [tactic_loop(kernel, tactic, target) for tactic in tactics]
    compile_ms = 1e3 * (time.perf_counter() - started) / len(runs)
    times = in_turns([peak, *runs], args.seconds)
    limit = peak_flops / times[0] / 1e9
    unit = "multiply-add" if target.has_fma else "multiply and add"
    print(f"{args.isa} m={args.m} n={args.n} k={args.k}, {compile_ms:.0f} ms to compile a tactic")
    print(f"{limit:7.1f} GFLOP/s  1.000  registers only ({unit})")
    for tactic, best in zip(tactics, times[1:], strict=True):
        rate = 2.0 * args.m * args.n * args.k / best / 1e9
        print(f"{rate:7.1f} GFLOP/s  {rate / limit:.3f}  {tactic}")


if __name__ == "__main__":
    main()
