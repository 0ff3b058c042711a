"""Engines of dynamic models that are built without a word about sizes."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import braze
from braze.core.errors import BrazeError
from braze.core.trace import Trace
from tests.e2e.test_data_sizes import INT, F, model, node

RNG = np.random.default_rng(3)
TARGETS = ["cpu", "reference"]


def weights(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def pictures() -> Any:
    """Convolutions, a pool and a residual; every size of the input is open."""
    return model(
        [
            node("Conv", "x w1 b1", "a", pads=[1] * 4, strides=[2, 2]),
            node("Relu", "a", "r"),
            node("MaxPool", "r", "p", kernel_shape=[2, 2], strides=[2, 2]),
            node("Conv", "p w2", "c", pads=[1] * 4),
            node("Add", "c p", "d"),
            node("GlobalAveragePool", "d", "g"),
            node("Flatten", "g", "f"),
            node("Gemm", "f w3", "y", transB=1),
        ],
        [("x", F, ["n", 3, "h", "w"])],
        [("y", F), ("d", F)],
        w1=weights(8, 3, 3, 3), b1=weights(8), w2=weights(8, 8, 3, 3), w3=weights(10, 8),
    )  # fmt: skip


def sentences() -> Any:
    """Embeddings, attention and a norm over open batch and length."""
    return model(
        [
            node("Gather", "emb ids", "e"),
            *(node("MatMul", f"e w{k}", k) for k in "qkv"),
            node("Transpose", "k", "t", perm=[0, 2, 1]),
            node("MatMul", "q t", "s"),
            node("Softmax", "s", "a", axis=-1),
            node("MatMul", "a v", "o"),
            node("Add", "o e", "r"),
            node("LayerNormalization", "r scale", "y", axis=-1),
        ],
        [("ids", INT, ["B", "S"])],
        [("y", F)],
        emb=weights(50, 16), scale=np.ones(16, np.float32),
        wq=weights(16, 16), wk=weights(16, 16), wv=weights(16, 16),
    )  # fmt: skip


PICTURES = [(1, 3, 16, 16), (2, 3, 31, 9), (3, 3, 64, 40), (1, 3, 4, 4), (0, 3, 8, 8)]
SENTENCES = [(1, 5), (2, 17), (4, 128), (1, 1), (3, 0), (0, 4)]


def feed(net: Any, shape: tuple[int, ...]) -> dict[str, np.ndarray]:
    if net.graph.input[0].name == "ids":
        return {"ids": RNG.integers(0, 50, shape)}
    return {"x": RNG.standard_normal(shape).astype(np.float32)}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize(("make", "shapes"), [(pictures, PICTURES), (sentences, SENTENCES)])
def test_any_size(make: Any, shapes: list[tuple[int, ...]], level: int, target: str) -> None:
    net = make()
    engine = braze.build(net, target=target, optimization_level=level, threads=2)
    for shape in shapes:
        given = feed(net, shape)
        name = next(iter(given))
        fixed = braze.build(net, shapes={name: shape}, target="reference", optimization_level=0)
        for (out, got), want in zip(engine(given).items(), fixed(given).values(), strict=True):
            assert got.shape == want.shape, (out, shape)
            # float32 sums of at most 128 terms of size one
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5, err_msg=out)


def test_memory_is_planned_when_shapes_are_set() -> None:
    """A chain of convolutions needs two buffers at a time, whatever its length."""
    count = 8
    nodes = [node("Conv", f"t{i} w", f"t{i + 1}", pads=[1] * 4) for i in range(count)]
    net = model(nodes, [("t0", F, ["n", 4, "h", "w"])], [(f"t{count}", F)], w=weights(4, 4, 3, 3))
    engine = braze.build(net, optimization_level=2, threads=1)
    context = engine.create_context()
    used = []
    for side in (32, 64):
        context.set_input_shape("t0", (1, 4, side, side))
        used.append(context.profile_in_use()[1])
    tensor = 4 * 4 * 64 * 64
    assert used[0] < used[1]
    assert 2 * tensor <= used[1] <= 4 * tensor


def test_two_contexts_in_threads() -> None:
    net = sentences()
    engine = braze.build(net, optimization_level=2, threads=1)
    given = [feed(net, (int(b), int(s))) for b, s in RNG.integers(1, 20, (40, 2))]
    want = [engine(g)["y"] for g in given]
    wrong: list[str] = []

    def work(start: int) -> None:
        try:
            for i in range(start, len(given), 2):
                np.testing.assert_array_equal(engine(given[i])["y"], want[i])
        except (AssertionError, BrazeError) as e:
            wrong.append(str(e))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_the_build_names_its_guesses() -> None:
    trace = Trace()
    braze.compile(pictures(), optimization_level=2, trace=trace)
    (guess,) = [d for d in trace.decisions if d["kind"] == "guess"]
    assert guess["sizes"] == {"n": 1, "h": 224, "w": 224}


def test_sizes_by_name() -> None:
    net = sentences()
    engine = braze.build(net, dims={"B": (1, 1, 8), "S": 17}, optimization_level=2)
    assert engine(feed(net, (3, 17)))["y"].shape == (3, 17, 16)
    with pytest.raises(BrazeError):
        engine(feed(net, (9, 17)))
    with pytest.raises(BrazeError):
        engine(feed(net, (3, 16)))


def test_some_sizes_given_and_some_not() -> None:
    net = sentences()
    engine = braze.build(net, dims={"B": (1, 1, 2)}, optimization_level=2)
    for length in (1, 300):
        assert engine(feed(net, (2, length)))["y"].shape == (2, length, 16)
