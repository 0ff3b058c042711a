"""The search for layers that stay float: each layer's own error, the bound, and the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.main import main
from braze.core.trace import Trace
from braze.quantization.options import Options
from braze.quantization.recipe import Recipe
from braze.quantization.search import Found, Outputs, relative_error, search
from braze.quantization.thresholds import Method
from tests.quantized.networks import NETWORKS, Net, data

Array = np.ndarray[Any, Any]
MINMAX = Options(method=Method("minmax"))
FEEDS = [np.random.default_rng(seed).normal(size=(4, 32)).astype(np.float32) for seed in range(4)]


def spiky(bad: int = 1) -> onnx.ModelProto:
    """Five products; what number `bad` reads has a channel a thousand times larger than others,
    which its weights take back: int8 loses those."""
    n = Net(8)
    x = "x"
    for k in range(5):
        w = n.rng.normal(0, 0.2, (32, 32)).astype(np.float32)
        if k == bad:
            w[0] /= 1000
        if k == bad - 1:
            w[:, 0] *= 1000
        x = n.add("MatMul", x, n.const(w), name="y" if k == 4 else "")
        if k != 4:
            x = n.add("LeakyRelu", x, alpha=0.3)
    return n.model(["n", 32], ["n", 32])


@pytest.fixture(scope="module")
def found() -> Found:
    return search(spiky(), FEEDS, 0.05, MINMAX)


def test_the_layer_that_hurts_stays_float(found: Found) -> None:
    products = [n.name for n in spiky().graph.node if n.op_type == "MatMul"]
    assert found.kept == (products[1],)
    assert found.all_error > 0.1 and found.error <= 0.05
    assert [x.name for x in found.layers] == products
    assert max(found.layers, key=lambda x: x.error).name == products[1]
    assert {x.runs for x in found.layers} == {"int8", "float32"}
    assert all(x.op == "MatMul" and x.time_ms is not None for x in found.layers)
    assert found.quantized.kept == {products[1]: "excluded"}
    assert found.time_ms > 0 and found.float_time_ms > 0 and found.builds >= 2


def test_errors_are_those_of_models_with_one_layer_quantized(found: Found) -> None:
    model = spiky()
    engine = braze.build(model, shapes={"x": (4, 32)}, optimization_level=1, threads=1)
    want = [{"y": engine({"x": x})["y"].copy()} for x in FEEDS]
    for layer in found.layers:
        others = [x.name for x in found.layers if x.name != layer.name]
        q = braze.quantize(model, FEEDS, method="minmax", exclude=others)
        assert q.layers == (layer.name,)
        alone = braze.build(q.model, shapes={"x": (4, 32)}, optimization_level=1, threads=1)
        got = [{"y": alone({"x": x})["y"].copy()} for x in FEEDS]
        # the same codes, but for sums that round otherwise
        assert layer.error == pytest.approx(relative_error(want, got), rel=0.01)


def test_nothing_is_kept_where_the_bound_holds_already() -> None:
    loose = search(spiky(), FEEDS, 2.0, MINMAX)
    assert loose.kept == () and loose.error == loose.all_error and loose.builds == 1


def test_convolutions_and_a_users_own_metric() -> None:
    seen = []

    def largest(reference: Outputs, got: Outputs) -> float:
        seen.append(len(reference))
        off = [np.abs(a["y"] - b["y"]).max() for a, b in zip(reference, got, strict=True)]
        return float(max(off))

    feeds = [data("pictures", 2, seed) for seed in range(6)]
    wide = search(NETWORKS["pictures"][0](), feeds, 0.03, MINMAX, metric=largest, samples=2)
    assert wide.error <= 0.03 < wide.all_error
    assert 0 < len(wide.kept) < len(wide.layers) == 5
    assert set(seen) == {2}


def test_remedies_come_first() -> None:
    smoothed = search(spiky(), iter(FEEDS), 0.05, Options(method=Method("minmax"), smooth=0.5,
                                                          correct_bias=True))  # fmt: skip
    assert smoothed.kept == ()


def test_budgets_that_cannot_be() -> None:
    with pytest.raises(braze.ConfigError, match="above 0"):
        search(spiky(), FEEDS, 0.0, MINMAX)
    with pytest.raises(braze.ConfigError, match="raise the budget"):
        search(spiky(), FEEDS, 1e-12, MINMAX)
    with pytest.raises(braze.ConfigError, match="needs data"):
        braze.build(spiky(), precision="int8", calibration=Recipe(cache="x", budget=0.1))


def test_a_build_with_a_budget_records_why() -> None:
    trace = Trace()
    recipe = Recipe(FEEDS, MINMAX, budget=0.05)
    engine = braze.build(spiky(), precision="int8", calibration=recipe, shapes={"x": (4, 32)},
                         optimization_level=1, threads=1, trace=trace)  # fmt: skip
    assert engine({"x": FEEDS[0]})["y"].shape == (4, 32)
    why = [d["why"] for d in trace.decisions if d["kind"] == "precision" and "alone" in d["why"]]
    assert len(why) == 5 and sum(w.startswith("kept for accuracy") for w in why) == 1
    assert any("within 0.05" in d.get("text", "") for d in trace.decisions)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(spiky(), tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.concatenate(FEEDS))
    options = [str(tmp_path / "net.onnx"), "-o", str(tmp_path / "q.onnx"), "--threads=1"]
    assert main(["quantize", *options, f"--data={tmp_path / 'x.npy'}", "--precisionBudget=0.05",
                 "--method=minmax"]) == 0  # fmt: skip
    out = capsys.readouterr().out
    assert "1 of 5 layers stay float" in out and "within 0.05" in out
    assert "float32  MatMul" in out
    assert main(["quantize", *options, "--calib=x", "--precisionBudget=0.05"]) == 2
    build = ["build", options[0], "--int8", "--precisionBudget=0.1", "--shapes=x:4x32"]
    assert main([*build, "-o", str(tmp_path / "e"), "--builderOptimizationLevel=1",
                 f"--calibData={tmp_path / 'x.npy'}"]) == 0  # fmt: skip
    assert main([*build, "-o", str(tmp_path / "e")]) == 2
