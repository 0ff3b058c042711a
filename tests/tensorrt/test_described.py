"""Networks that braze.hpp describes: every layer it has equals numpy, and what is wrong is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from braze.cli.main import main
from braze.core.errors import BrazeError
from braze.tensorrt.described import CALLS, build_described
from tests.runtime.cpp_programs import compiled, run

Array = np.ndarray[Any, Any]
FOLDER = Path(__file__).parent / "cpp"
Folders = tuple[Path, Path]
pytestmark = pytest.mark.filterwarnings("ignore:add_fully_connected")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """What the C++ program describes: all layers, and a stripped network."""
    top = tmp_path_factory.mktemp("described")
    program = compiled(FOLDER / "layers.cc", top / "layers")
    layers, stripped = top / "all", top / "stripped"
    layers.mkdir()
    stripped.mkdir()
    result = run(program, layers, stripped)
    assert result.returncode == 0, result.stderr
    return layers, stripped


def built(folder: Path) -> bytes:
    heard: list[str] = []
    data = build_described(str(folder), lambda severity, text: heard.append(text))
    assert heard == []
    return bytes(data)


def numbers(*shape: int) -> Array:
    """Those of the C++ program."""
    count = int(np.prod(shape))
    return ((np.arange(count) % 7 - 3) / 4).reshape(shape)


def windows(x: Array, size: tuple[int, int], step: int) -> Array:
    view = np.lib.stride_tricks.sliding_window_view(x, size, axis=(2, 3))
    return view[:, :, ::step, ::step]


def filtered(x: Array) -> Array:
    """Two groups, windows of 3, stride 2, a border of zeros."""
    w, found = numbers(6, 2, 3, 3), []
    cut = windows(np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)]), (3, 3), 2)
    for g in range(2):
        own, part = w[3 * g : 3 * g + 3], cut[:, 2 * g : 2 * g + 2]
        found.append(np.einsum("nchwij,kcij->nkhw", part, own))
    return np.concatenate(found, 1) + numbers(6)[None, :, None, None]


def dilated(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (1, 1), (1, 1)])
    cut = windows(padded, (3, 3), 1)[..., ::2, ::2]
    return np.einsum("nchwij,kcij->nkhw", cut, numbers(1, 4, 2, 2))


def spread(x: Array) -> Array:
    made = np.einsum("nchw,ckij->nkhiwj", x, numbers(4, 3, 2, 2))
    return made.reshape(2, 3, 12, 12)


def padded_mean(x: Array) -> Array:
    padded = np.pad(x, [(0, 0), (0, 0), (0, 2), (0, 2)])
    result: Array = windows(padded, (2, 2), 2).mean((4, 5))
    return result


def neighbours(x: Array) -> Array:
    squares = np.pad(x * x, [(0, 0), (1, 1), (0, 0), (0, 0)])
    total = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return x / (2 + 0.5 / 3 * total) ** 0.75


def normalized(x: Array) -> Array:
    mean, variance = x.mean((2, 3), keepdims=True), x.var((2, 3), keepdims=True)
    per = numbers(4)[None, :, None, None]
    return (x - mean) / np.sqrt(variance + 0.125) * per + per


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(1, keepdims=True))
    result: Array = e / e.sum(1, keepdims=True)
    return result


def shuffled(x: Array) -> Array:
    return x.transpose(0, 2, 1, 3).reshape(2, 4, 36).transpose(1, 0, 2)


def stretched(x: Array) -> Array:
    """Eleven rows between six, the first and last of which stay."""
    made = x[:, :, :1].repeat(11, 2)
    made[:, :, ::2] = x
    made[:, :, 1::2] = (x[:, :, 1:] + x[:, :, :-1]) / 2
    return made


def cut(x: Array) -> Array:
    return x[:, 1:4:2, 5:0:-2]


def places(x: Array) -> Array:
    return np.argsort(-x, axis=3, kind="stable")[..., :2]


PER = numbers(4)[None, :, None, None]
EXPECTED: dict[str, Callable[[Array], Any]] = {
    "convolution": filtered,
    "dilated": dilated,
    "deconvolution": spread,
    "max_pool": lambda x: windows(x, (2, 2), 2).max((4, 5)),
    "mean_pool": padded_mean,
    "blend_pool": lambda x: (0.75 * x.max((2, 3)) + 0.25 * x.mean((2, 3)))[:, :, None, None],
    "padding": lambda x: np.pad(x, [(0, 0), (0, 0), (1, 0), (2, 0)])[..., :-1],
    "leaky": lambda x: np.where(x < 0, x / 4, x),
    "clip": lambda x: np.maximum(x, -0.5),
    "unary": np.abs,
    "elementwise": lambda x: x * x,
    "scale": lambda x: x * PER + PER,
    "scale_rows": lambda x: x * numbers(6)[None, None, :, None],
    "identity": lambda x: x,
    "cast": lambda x: x.astype(np.int32),
    "select": lambda x: np.where(x > 0, x, PER),
    "prelu": lambda x: np.where(x < 0, x * PER, x),
    "matmul": lambda x: x.swapaxes(2, 3) @ numbers(6, 5),
    "dense": lambda x: (x.reshape(2, 144) @ numbers(3, 144).T + numbers(3))[:, :, None, None],
    "einsum": lambda x: np.einsum("nchw,nkhw->nck", x, x),
    "reduce": lambda x: x.mean((2, 3), keepdims=True),
    "softmax": softmax,
    "lrn": neighbours,
    "normalization": normalized,
    "shuffle": shuffled,
    "reshape": lambda x: x.reshape(8, 36),
    "concatenation": lambda x: np.concatenate([x, x], 3),
    "slice": cut,
    "slice_clamped": lambda x: x[..., [4, 5, 5, 5]],
    "shape": lambda x: np.array(x.shape),
    "gather": lambda x: x[:, [3, 0, 3]],
    "gather_elements": lambda x: x[..., 2:3],
    "top": lambda x: np.take_along_axis(x, places(x), 3),
    "top_places": places,
    "resize": lambda x: x.repeat(2, 2)[..., ::2].repeat(1, 3)[:, :, :, :].reshape(2, 4, 12, 3),
    "resize_linear": stretched,
}


def test_every_layer_equals_numpy(folders: Folders) -> None:
    engine = braze.Engine.from_bytes(built(folders[0]))
    x = np.random.default_rng(3).standard_normal((2, 4, 6, 6)).astype(np.float32)
    got = engine({"x": x})
    assert set(got) == set(EXPECTED)
    for name, reference in EXPECTED.items():
        want = reference(x.astype(np.float64))
        assert got[name].shape == want.shape, name
        # sums of at most 144 products of numbers of size one, in float32
        np.testing.assert_allclose(got[name], want, rtol=2e-5, atol=2e-5, err_msg=name)


def test_all_calls_are_tried(folders: Folders) -> None:
    said = json.loads((folders[0] / "network.json").read_text())
    assert {step["call"] for step in said["steps"]} == CALLS
    assert next(s for s in said["steps"] if s["call"] == "add_elementwise")["name"] == "a product"


def test_a_configuration_arrives(folders: Folders) -> None:
    data = built(folders[1])
    logger = trt.Logger(trt.Logger.ERROR)
    engine = trt.Runtime(logger).deserialize_cuda_engine(data)
    assert engine.name == "stripped"
    assert [list(d) for d in engine.get_tensor_profile_shape("x", 0)] == [[1, 3], [2, 3], [5, 3]]
    assert engine.profiling_verbosity is trt.ProfilingVerbosity.DETAILED
    assert engine.get_engine_stat(trt.EngineStat.STRIPPED_WEIGHTS_SIZE) == 48
    refitter = trt.Refitter(engine, logger)
    assert refitter.get_missing_weights() == ["w"]
    w = numbers(3, 4).astype(np.float32)
    assert refitter.set_named_weights("w", w) and refitter.refit_cuda_engine()
    x = np.random.default_rng(4).standard_normal((5, 3)).astype(np.float32)
    # sums of three products
    np.testing.assert_allclose(
        engine.core({"x": x})["y"], np.maximum(x @ w, 0), rtol=1e-6, atol=1e-6
    )
    assert (folders[1] / "times").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format=2), "not of format 1"),
        (lambda d: d["steps"][1].update(call="add_loop"), "'add_loop' is no layer"),
        (lambda d: d["steps"][1].update(call="__init__"), "'__init__' is no layer"),
        (lambda d: d["steps"][-1]["set"].update(network=1), "no attribute 'network'"),
        (lambda d: d.pop("steps"), "use braze.hpp and braze of one release"),
        (lambda d: d["outputs"].append({"tensor": [99, 0]}), "use braze.hpp and braze of one"),
        (lambda d: d["config"].update(level="x"), "a whole number is expected"),
        (lambda d: d["weights_names"].append([{"weights": [0, 64, 9]}, "z"]), "cut short"),
        (lambda d: d["weights_names"].append([{"weights": [0, 64, 0]}, "z"]), "read by no layer"),
        (lambda d: d["steps"][1]["arguments"].pop(), "add_constant"),
        (lambda d: d["steps"][1]["arguments"].__setitem__(0, {"list": [5]}), "12"),
        (lambda d: d["config"]["profiles"][0].update(x=[[2, 3], [1, 3], [5, 3]]), "min <= opt"),
        (lambda d: d["config"]["profiles"].clear(), "no optimization profile"),
        (lambda d: d["outputs"].clear(), "no outputs"),
        (lambda d: d["steps"].append(dict(d["steps"][0])), "'x' already"),
    ],
)
def test_wrong_descriptions(
    folders: Folders, tmp_path: Path, change: Callable[[Any], Any], words: str
) -> None:
    said = json.loads((folders[1] / "network.json").read_text())
    change(said)
    (tmp_path / "network.json").write_text(json.dumps(said))
    (tmp_path / "weights.bin").write_bytes((folders[1] / "weights.bin").read_bytes())
    with pytest.raises(BrazeError) as failure:
        built(tmp_path)
    assert words in str(failure.value)


def test_the_command(folders: Folders, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = tmp_path / "e"
    assert main(["network", str(folders[1]), "-o", str(engine)]) == 0
    assert engine.stat().st_size > 1000
    (tmp_path / "network.json").write_text("{")
    assert main(["network", str(tmp_path), "-o", str(engine)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("braze network: network description ") and error.count("\n") == 1
    assert main(["network", str(tmp_path / "none"), "-o", str(engine)]) == 1
    assert main(["network", str(tmp_path)]) == 2
