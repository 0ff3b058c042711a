"""Loops of single steps, compared with one long run bit by bit, and their memory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import braze
from braze.runtime.engine import Engine
from tests.streams.networks import HEADS, SAMPLES, UNITS, WIDTH, Array, decoder, detector

LEVEL = 1
GROWTH = 2 << 20  # bytes that numpy and Python may keep for themselves


@dataclass(frozen=True)
class Loop:
    """What a loop of single steps has shown. Bytes: of the process, after the warm-up and at last,
    without what the loop itself keeps.
    """

    steps: int
    differing: int  # elements of results whose bits one long run has otherwise
    before: int
    after: int

    def __str__(self) -> str:
        grown = (self.after - self.before) / 1024
        return (
            f"{self.steps} steps: {self.differing} elements differ from one long run; resident "
            f"memory {self.before / 1e6:.1f} MB before, {self.after / 1e6:.1f} MB after "
            f"({grown:+.0f} KiB)"
        )


def resident() -> int:
    """Bytes of memory that the process uses."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def differing(got: Array, want: Array) -> int:
    """Elements whose bits are not the same."""
    assert got.shape == want.shape
    return int((got.view(np.uint32) != want.view(np.uint32)).sum())


def detect(steps: int, target: str = "cpu") -> Loop:
    """The detector, states carried."""
    x = np.random.default_rng(0).uniform(-1, 1, (steps, 1, SAMPLES)).astype(np.float32)
    zero = np.zeros((1, 1, UNITS), np.float32)
    dims = {"t": (1, 1, steps)}
    engine = braze.build(detector(), dims=dims, target=target, optimization_level=LEVEL)
    want = engine({"x": x, "h": zero, "c": zero})
    got, states = np.empty((steps, 1, 1), np.float32), {"h": zero, "c": zero}
    before = 0
    for t in range(steps):
        out = engine({"x": x[t : t + 1], **states})
        got[t] = out["y"]
        states = {s: out[f"{s}.next"] for s in states}
        if t == steps // 10:
            before = resident()
    after = resident()
    wrong = differing(got, want["y"])
    wrong += sum(differing(states[s], want[f"{s}.next"]) for s in states)
    return Loop(steps, wrong, before, after)


def generate(steps: int, target: str = "cpu") -> Loop:
    """The decoder: each token is the likeliest behind those before it, the cache grows by it."""
    dims = {"t": (1, 1, steps), "p": (0, min(64, steps), steps)}
    engine = braze.build(decoder(steps), dims=dims, target=target, optimization_level=LEVEL)
    names = [i.name for i in engine.inputs if i.name != "tokens"]
    empty = {n: np.zeros((1, HEADS, 0, WIDTH // HEADS), np.float32) for n in names}
    tokens, logits = np.zeros((1, steps), np.int64), []
    _warm_up(engine, names, steps)
    before, cache = resident(), empty
    for t in range(steps):
        out = engine({"tokens": tokens[:, t : t + 1], **cache})
        logits.append(out["logits"][0, 0])
        cache = {n: out[n.replace("past", "present")] for n in names}
        if t + 1 < steps:
            tokens[0, t + 1] = logits[-1].argmax()
    kept = sum(a.nbytes for a in cache.values()) + sum(a.nbytes for a in logits)
    after = resident() - kept
    want = engine({"tokens": tokens, **empty})
    wrong = differing(np.stack(logits), want["logits"][0])
    wrong += sum(differing(cache[n], want[n.replace("past", "present")]) for n in names)
    return Loop(steps, wrong, before, after)


def _warm_up(engine: Engine, names: list[str], steps: int) -> None:
    """One step behind the longest past, so that memory is what it will be."""
    shape = (1, HEADS, steps - 1, WIDTH // HEADS)
    engine(
        {"tokens": np.zeros((1, 1), np.int64), **{n: np.zeros(shape, np.float32) for n in names}}
    )
