"""Networks in tests: built, run, and compared with numpy, with fixed sizes and any batch."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np

import braze
import braze.tensorrt as trt
from braze.shim.finder import TARGET

Array = np.ndarray[Any, Any]
Feeds = Mapping[str, Array]
# (network, inputs by name) -> outputs, by name
Make = Callable[[Any, Mapping[str, Any]], Mapping[str, Any]]


class Log(trt.ILogger):
    """Keeps messages."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[tuple[Any, str]] = []

    def log(self, severity: Any, msg: str) -> None:
        self.messages.append((severity, msg))

    @property
    def errors(self) -> list[str]:
        return [m for s, m in self.messages if s <= trt.Logger.ERROR]


def new_network(flags: int = 0) -> tuple[Any, Log]:
    """An empty network, and the log of its builder."""
    log = Log()
    return trt.Builder(log).create_network(flags), log


def plan_of(network: Any, shapes: Mapping[str, Any] | None = None, level: int = 1) -> Any:
    """The bytes of the engine, or None. shapes: (min, opt, max) by input."""
    config = network.builder.create_builder_config()
    config.builder_optimization_level = level
    config.clear_flag(trt.BuilderFlag.TF32)  # tolerances are those of float32, on GPUs too
    if shapes:
        profile = network.builder.create_optimization_profile()
        for name, triple in shapes.items():
            profile.set_shape(name, *triple)
        config.add_optimization_profile(profile)
    return network.builder.build_serialized_network(network, config)


def run_plan(data: Any, **feeds: Array) -> dict[str, Array]:
    """What the bytes of an engine compute."""
    return braze.Engine.from_bytes(data)(dict(feeds))


def outputs_of(
    make: Make, feeds: Feeds, dynamic: bool, types: Mapping[str, Any] = {}, flags: int = 0
) -> dict[str, Array]:
    """What a network gives for inputs; dynamic: any first axis, with a profile around it."""
    network, log = new_network(flags)
    inputs, shapes = {}, {}
    for name, array in feeds.items():
        batched = dynamic and array.ndim > 0
        shape = (-1, *array.shape[1:]) if batched else array.shape
        kind = types.get(name) or next(
            t for t in trt.DataType if t is not trt.e8m0 and _numpy(t) == array.dtype
        )
        inputs[name] = network.add_input(name, kind, shape)
        if batched:
            n, rest = array.shape[0], array.shape[1:]
            shapes[name] = ((min(1, n), *rest), array.shape, (n + 2, *rest))
    made = make(network, inputs)
    for name, tensor in made.items():
        assert tensor is not None, f"{name}: {log.errors}"
        tensor.name = name
        network.mark_output(tensor)
    told = {name: tuple(t.shape) for name, t in made.items()}
    kinds = {name: t.dtype for name, t in made.items()}
    data = plan_of(network, shapes)
    assert data is not None, log.errors
    outputs = braze.Engine.from_bytes(data)(dict(feeds))
    for name, array in outputs.items():
        assert len(told[name]) == array.ndim, (name, told[name], array.shape)
        fits = all(a in (-1, b) for a, b in zip(told[name], array.shape, strict=True))
        assert fits, f"{name}: the network says {told[name]}, the engine gives {array.shape}"
        assert _numpy(kinds[name]) == array.dtype, (name, kinds[name], array.dtype)
    return outputs


@contextmanager
def on_reference() -> Iterator[None]:
    """What is built is for the reference backend."""
    with mock.patch.dict(os.environ, {TARGET: "reference"}):
        yield


def check(
    make: Make,
    feeds: Feeds,
    expected: Mapping[str, Array],
    *,
    rtol: float = 1e-5,
    atol: float = 1e-6,
    dynamic: bool = True,
    types: Mapping[str, Any] = {},
) -> None:
    """Compare a network with what numpy computes, with fixed sizes and with any batch.

    Kernels of the host are compiled for any batch; with fixed sizes the reference backend runs what
    the network means, which compiles nothing. The tolerances are a few units in the last place of
    float32 sums of some hundred terms.
    """
    for any_batch in (False, True) if dynamic else (False,):
        with on_reference() if dynamic and not any_batch else nullcontext():
            outputs = outputs_of(make, feeds, any_batch, types)
        assert set(outputs) == set(expected)
        for name, wanted in expected.items():
            got = outputs[name]
            assert got.dtype == wanted.dtype, (name, got.dtype, wanted.dtype)
            np.testing.assert_allclose(
                got.astype(np.float64) if got.dtype.kind == "f" else got,
                wanted.astype(np.float64) if wanted.dtype.kind == "f" else wanted,
                rtol=rtol, atol=atol, err_msg=f"{name}, {'any' if any_batch else 'fixed'} batch",
            )  # fmt: skip


def _numpy(kind: Any) -> Any:
    from braze.tensorrt.dtypes import array_type

    return array_type(kind)


def floats(*shape: int, seed: int = 0) -> Array:
    """Normally distributed float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
