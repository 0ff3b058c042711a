"""Random ops: the generator's vectors, statistics, and the same bits whatever runs them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.api import build
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from braze.ops.random.philox import philox

ONES = 0xFFFFFFFF
# counter, key and the words that the generator's authors publish for them
VECTORS: list[tuple[tuple[int, ...], tuple[int, int], tuple[int, ...]]] = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES, ONES), (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    ((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0),
     (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]  # fmt: skip


@pytest.mark.parametrize(("counter", "key", "words"), VECTORS)
def test_published_vectors(counter: Any, key: tuple[int, int], words: Any) -> None:
    found = philox([np.array([c], np.uint64) for c in counter], key)
    assert tuple(int(w[0]) for w in found) == words


def model_of(
    op: str, inputs: Sequence[tuple[int, list[Any]]] = (), name: str = "draw", outputs: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:  # fmt: skip
    given = [helper.make_tensor_value_info(f"x{i}", t, s) for i, (t, s) in enumerate(inputs)]
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(op, [g.name for g in given], results, name, **attributes)
    infos = [onnx.ValueInfoProto(name=r) for r in results]
    graph = helper.make_graph([node], "g", given, infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def run(model: onnx.ModelProto, feeds: dict[str, Any] | None = None, **how: Any) -> Any:
    context = build(model, optimization_level=1, **how).create_context()
    outputs = context.run(feeds or {})
    return [np.asarray(outputs[o.name]) for o in model.graph.output]


def reference(model: onnx.ModelProto, feeds: dict[str, Any] | None = None) -> Any:
    graph = import_network(model).graph
    values = evaluate(graph, feeds or {})
    return [values[name] for name, _ in graph.outputs]


def deviation_of_uniform(x: Any) -> float:
    """Kolmogorov's and Smirnov's statistic of x against the uniform distribution, times root n."""
    x, n = np.sort(x.reshape(-1)), x.size
    steps = np.arange(n)
    return float(max((x - steps / n).max(), ((steps + 1) / n - x).max()) * math.sqrt(n))


N = 40_000
SHAPE = [8, N // 8]


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_uniform_numbers(dtype: int) -> None:
    (y,) = run(model_of("RandomUniform", shape=SHAPE, dtype=dtype))
    assert y.min() >= 0 and y.max() < 1
    assert abs(y.mean() - 0.5) < 5 / math.sqrt(12 * N)
    assert abs(y.var() - 1 / 12) < 5 / math.sqrt(180 * N)
    assert deviation_of_uniform(y.astype("f8")) < 1.95  # exceeded once in 1,000 seeds
    assert abs(np.corrcoef(y.reshape(-1)[:-1], y.reshape(-1)[1:])[0, 1]) < 5 / math.sqrt(N)


@pytest.mark.parametrize("dtype", [TensorProto.FLOAT, TensorProto.DOUBLE])
def test_normal_numbers(dtype: int) -> None:
    (y,) = run(model_of("RandomNormal", shape=SHAPE, dtype=dtype, mean=2.0, scale=3.0))
    z = (y.astype("f8") - 2) / 3
    assert abs(z.mean()) < 5 / math.sqrt(N)
    assert abs(z.var() - 1) < 5 * math.sqrt(2 / N)
    assert abs((z**3).mean()) < 5 * math.sqrt(15 / N)
    assert abs((z**4).mean() - 3) < 5 * math.sqrt(96 / N)
    below = 0.5 * (1 + np.vectorize(math.erf)(z / math.sqrt(2)))
    assert deviation_of_uniform(below) < 1.95


@pytest.mark.parametrize("dtype", ["FLOAT", "DOUBLE", "FLOAT16", "BFLOAT16"])
@pytest.mark.parametrize("op", ["RandomUniform", "RandomNormal"])
def test_the_same_bits_on_any_number_of_threads(op: str, dtype: str) -> None:
    model = model_of(op, shape=[37, 65], dtype=getattr(TensorProto, dtype))
    first = run(model, target="cpu", threads=1)[0]
    for again in (run(model, target="cpu", threads=3)[0], run(model, target="cpu", threads=1)[0]):
        assert again.tobytes() == first.tobytes()
    (other,) = reference(model)
    if op == "RandomUniform":
        assert other.tobytes() == first.tobytes()
    else:  # numpy has another logarithm and cosine
        np.testing.assert_allclose(other.astype("f8"), first.astype("f8"), 2e-5, 2e-6)


def test_runs_repeat_and_streams_differ() -> None:
    engine = build(model_of("RandomUniform", shape=[100]), optimization_level=1)
    context = engine.create_context()
    first, again = (np.array(context.run({})["y0"]) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    other = run(model_of("RandomUniform", shape=[100], name="another"))[0]
    seeded = [run(model_of("RandomUniform", shape=[100], seed=s))[0] for s in (1.0, 2.0, 1.0)]
    same = run(model_of("RandomUniform", shape=[100], seed=1.0, name="another"))[0]
    assert not np.isclose(first, other).any() and not np.isclose(seeded[0], seeded[1]).any()
    np.testing.assert_array_equal(seeded[0], seeded[2])
    np.testing.assert_array_equal(seeded[0], same)


@pytest.mark.parametrize("op", ["RandomUniformLike", "RandomNormalLike"])
def test_like_forms_take_sizes_of_the_run(op: str) -> None:
    model = model_of(op, [(TensorProto.FLOAT16, ["n", 5])])
    shapes = {"x0": ((0, 5), (4, 5), (9, 5))}
    engine = build(model, shapes=shapes, optimization_level=1)
    long = np.array(engine.create_context().run({"x0": np.zeros((9, 5), "f2")})["y0"])
    short = np.array(engine.create_context().run({"x0": np.zeros((3, 5), "f2")})["y0"])
    assert long.dtype == np.float16 and long.shape == (9, 5)
    np.testing.assert_array_equal(short, long[:3])  # an element depends on its place alone


@pytest.mark.parametrize("dtype", [None, TensorProto.INT32, TensorProto.BOOL])
def test_bernoulli(dtype: int | None) -> None:
    p = np.repeat(np.array([0, 0.1, 0.5, 0.9, 1], "f4"), N // 5).reshape(5, -1)
    given = {} if dtype is None else {"dtype": dtype}
    model = model_of("Bernoulli", [(TensorProto.FLOAT, list(p.shape))], **given)
    (y,) = run(model, {"x0": p})
    assert set(np.unique(y.astype("i4"))) == {0, 1}
    spread = 5 * np.sqrt(p[:, 0] * (1 - p[:, 0]) / p.shape[1])
    assert (np.abs(y.astype("f8").mean(axis=1) - p[:, 0]) <= spread).all()
    np.testing.assert_array_equal(reference(model, {"x0": p})[0], y)


@pytest.mark.parametrize("dtype", [TensorProto.INT32, TensorProto.INT64])
def test_multinomial(dtype: int) -> None:
    p = np.array([[0.1, 0.2, 0.7, 0.0], [0.25, 0.25, 0.0, 0.5]])
    with np.errstate(divide="ignore"):
        logits = np.log(p).astype("f4")
    model = model_of("Multinomial", [(TensorProto.FLOAT, [2, 4])], sample_size=N, dtype=dtype)
    (y,) = run(model, {"x0": logits})
    assert y.shape == (2, N) and y.dtype == helper.tensor_dtype_to_np_dtype(dtype)
    for row, chances in zip(y, p, strict=True):
        share = np.bincount(row, minlength=4) / N
        assert (np.abs(share - chances) <= 5 * np.sqrt(chances * (1 - chances) / N)).all()


@pytest.mark.parametrize("dtype", ["FLOAT", "FLOAT16"])
def test_dropout_in_training(dtype: str) -> None:
    kind = getattr(TensorProto, dtype)
    model = model_of("Dropout", [(kind, [N]), (kind, []), (TensorProto.BOOL, [])], outputs=2)
    x = np.ones(N, helper.tensor_dtype_to_np_dtype(kind))
    feeds = {"x0": x, "x1": np.array(0.25, x.dtype), "x2": np.array(True)}
    y, kept = run(model, feeds)
    assert abs(kept.mean() - 0.75) < 5 * math.sqrt(0.75 * 0.25 / N)
    np.testing.assert_array_equal(y, np.where(kept, x / x.dtype.type(0.75), 0))
    y, kept = run(model, {**feeds, "x2": np.array(False)})
    assert kept.all()
    np.testing.assert_array_equal(y, x)


def test_integers_are_refused() -> None:
    with pytest.raises(BrazeError, match="not floating point"):
        import_network(model_of("RandomUniform", shape=[2], dtype=TensorProto.INT32))
