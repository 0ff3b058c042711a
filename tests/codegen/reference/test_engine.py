"""`braze.build(target="reference")`: the face of an engine over the plan's memory, in numpy."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import braze
from braze.codegen.reference.engine import ReferenceEngine
from braze.core.errors import BrazeError
from braze.frontend.onnx.importer import import_network
from braze.ops.evaluator import evaluate
from braze.runtime import Stream
from tests.stages.models import MODELS, StageModel, floats

# Both sides round to float32; the order of sums of at most a few hundred terms differs. float16
# results may round to the next number.
TOLERANCES = {"f4": 1e-5, "f2": 2e-3}


def build(case: StageModel, target: str = "reference", **options: Any) -> braze.Engine:
    return braze.build(case.model, target=target, shapes=case.shapes, threads=2, **options)


def assert_close(got: dict[str, Any], want: dict[str, Any]) -> None:
    assert list(got) == list(want)
    for name, value in want.items():
        assert got[name].dtype == value.dtype and got[name].shape == value.shape
        limit = TOLERANCES.get(value.dtype.str[1:], 0)
        np.testing.assert_allclose(got[name], value, rtol=limit, atol=limit)


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("name", MODELS)
def test_reference_equals_cpu_and_the_ops_one_by_one(name: str, level: int) -> None:
    case = MODELS[name]()
    reference = build(case, optimization_level=level)
    cpu = build(case, "cpu", optimization_level=level)
    graph = import_network(case.model, shapes=case.shapes).graph
    for feed in case.feeds:
        got = reference(feed)
        assert_close(got, cpu(feed))
        assert_close(got, evaluate(graph, feed))


def test_sums_in_float64_are_nearer_to_the_truth() -> None:
    case = MODELS["mlp_layernorm"]()
    case = StageModel(case.model, [{"x": floats(32, 16)}], case.shapes)
    single, double = build(case), build(case, "reference:float64")
    graph = import_network(case.model, shapes=case.shapes).graph
    (feed,) = case.feeds
    want = evaluate(graph, feed, float64=True)["y"]
    errors = [float(np.abs(e(feed)["y"] - want).mean()) for e in (single, double)]
    assert errors[1] < errors[0]


@pytest.mark.parametrize("name", ["dynamic_batch", "attention_dynamic", "mlp_layernorm"])
def test_equal_rows_have_equal_bits(name: str) -> None:
    case = MODELS[name]()
    engine = build(case)
    feed = case.feeds[-1]
    whole = engine(feed)["y"]
    for row in range(len(whole)):
        alone = engine({"x": feed["x"][row : row + 1]})["y"]
        assert alone.tobytes() == whole[row : row + 1].tobytes()


def test_saved_loaded_and_pickled_engines_are_the_same(tmp_path: Path) -> None:
    case = MODELS["dynamic_batch"]()
    engine = build(case)
    engine.save(tmp_path / "net.engine")
    want = [engine(f)["y"] for f in case.feeds]
    for again in (
        braze.load(tmp_path / "net.engine"),
        braze.Engine.from_bytes(engine.to_bytes()),
        pickle.loads(pickle.dumps(engine)),
    ):
        assert isinstance(again, ReferenceEngine)
        assert again.plan == engine.plan
        for feed, y in zip(case.feeds, want, strict=True):
            np.testing.assert_array_equal(again(feed)["y"], y)
    double = build(case, "reference:float64")
    double.save(tmp_path / "double.engine")
    again = braze.load(tmp_path / "double.engine")
    for feed in case.feeds:
        np.testing.assert_array_equal(again(feed)["y"], double(feed)["y"])


def test_description_report_and_profile() -> None:
    case = MODELS["dynamic_batch"]()
    engine = build(case)
    cpu = build(case, "cpu")
    assert engine.inputs == cpu.inputs and engine.outputs == cpu.outputs
    assert "Conv_c1" in engine.inspect() and "reference" in engine.inspect()
    engine.verify()
    spent = engine.profile(case.feeds[0])
    assert len(spent) == len(engine.plan.steps) and min(spent) > 0
    context = engine.create_context()
    context.set_input_shape("x", (5, 3, 8, 8))
    assert context.profile_in_use() == (1, engine.plan.profiles[1].arena_bytes)


def test_debug_tensors() -> None:
    case = MODELS["conv_residual_2d"]()
    engine, cpu = (build(case, t, debug=["*"]) for t in ("reference", "cpu"))
    names = [d.name for d in engine.plan.debug]
    assert len(names) == len(engine.plan.steps) - 1
    (feed,) = case.feeds
    shared = set(names) & {d.name for d in cpu.plan.debug}
    assert shared
    got, want = engine(feed, debug=shared), cpu(feed, debug=shared)
    for name in shared:
        np.testing.assert_allclose(got[name], want[name], rtol=1e-5, atol=1e-5)
    with pytest.raises(braze.BindingError, match="nothere"):
        engine(feed, debug=["nothere"])


def test_the_stateful_way_and_streams() -> None:
    case = MODELS["dynamic_batch"]()
    engine = build(case)
    context, stream = engine.create_context(), Stream()
    outputs = []
    for feed in case.feeds:
        context.set_input_shape("x", feed["x"].shape)
        outputs.append(np.empty(context.shape("y"), np.float32))
        context.bind("x", feed["x"].copy())  # only the stream keeps this array alive
        context.bind("y", outputs[-1])
        context.enqueue(stream)
    stream.synchronize()
    for feed, y in zip(case.feeds, outputs, strict=True):
        np.testing.assert_array_equal(y, engine(feed)["y"])
    outputs[-1][:] = 0
    context.execute()
    np.testing.assert_array_equal(outputs[-1], engine(case.feeds[-1])["y"])


BATCH = floats(1, 3, 8, 8)


def stateful(engine: braze.Engine, *calls: tuple[Any, ...]) -> None:
    """Calls of one context's methods by name."""
    context = engine.create_context()
    for name, *arguments in calls:
        getattr(context, name)(*arguments)


def overlapping(engine: braze.Engine) -> None:
    memory = np.zeros(3 * 64 + 5, np.float32)
    stateful(
        engine,
        ("set_input_shape", "x", (1, 3, 8, 8)),
        ("bind", "x", memory[:192].reshape(1, 3, 8, 8)),
        ("bind", "y", memory[190:195]),
        ("execute",),
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda e: e({}),
        lambda e: e([BATCH]),
        lambda e: e({"x": BATCH, "z": BATCH}),
        lambda e: e({"x": BATCH.astype(np.float64)}),
        lambda e: e({"x": BATCH[0]}),
        lambda e: e({"x": floats(1, 3, 8, 9)}),
        lambda e: e({"x": floats(3, 3, 8, 8)}),
        lambda e: e({"x": floats(0, 3, 8, 8)}),
        lambda e: e({"x": BATCH}, workers=-1),
        lambda e: e.create_context(2),
        lambda e: e.create_context(-2),
        lambda e: e.create_context(1).run({"x": BATCH}),
        lambda e: stateful(e, ("shape", "y")),
        lambda e: stateful(e, ("shape", "nothere")),
        lambda e: stateful(e, ("set_input_shape", "x", (1, 3))),
        lambda e: stateful(e, ("set_input_shape", "x", (1, 3, 8, -8)), ("shape", "y")),
        lambda e: stateful(e, ("set_input_shape", "x", (1, 3, 8, 8)), ("execute",)),
        lambda e: stateful(e, ("bind", "y", 4096)),
        lambda e: stateful(e, ("bind", "y", np.zeros((1, 10), np.float32)[:, ::2])),
        overlapping,
    ],
)
def test_errors_are_those_of_the_native_engine(call: Callable[[braze.Engine], object]) -> None:
    case = MODELS["dynamic_batch"]()
    raised = []
    for target in ("cpu", "reference"):
        engine = build(case, target, optimization_level=0)
        with pytest.raises(BrazeError) as e:
            call(engine)
        raised.append((type(e.value), str(e.value)))
        engine(case.feeds[0])  # still usable
    assert raised[0] == raised[1]


def test_guards_and_equal_sizes_are_checked_alike() -> None:
    from onnx import TensorProto, helper

    from tests.meta.small_models import model

    add = helper.make_node("Add", ["a", "b"], ["y"])
    flat = helper.make_node("Reshape", ["y", "s"], ["z"])
    made = model(
        [add, flat],
        {"a": (TensorProto.FLOAT, ["n", 4]), "b": (TensorProto.FLOAT, ["n", 4])},
        ["z"],
        {"s": np.array([-1, 3])},
    )
    shapes = dict.fromkeys("ab", ((3, 4), (3, 4), (9, 4)))
    for sizes in ((3, 4), (4, 4)):
        feed = {"a": floats(sizes[0], 4), "b": floats(sizes[1], 4)}
        raised = []
        for target in ("cpu", "reference"):
            engine = braze.build(made, target=target, shapes=shapes)
            with pytest.raises(braze.ShapeError) as e:
                engine(feed)
            raised.append(str(e.value))
        assert raised[0] == raised[1]


def test_data_errors_name_the_step() -> None:
    case = MODELS["gather_scatter"]()
    engine = build(case)
    (good,) = case.feeds
    with pytest.raises(braze.ExecutionError, match=r"step 0 '.*\(from Gather_e.*out of range"):
        engine({**good, "ids": np.array([0, 6, 0, 0])})
    assert np.isfinite(engine(good)["y"]).all()


@pytest.mark.parametrize("name", MODELS)
def test_damaged_kernels_are_refused(name: str) -> None:
    plan = build(MODELS[name](), optimization_level=0).plan
    for i, module in enumerate(plan.modules):
        for bad in (module.code[:-9], b"%0" + module.code, b"", module.code.replace(b"(", b"[")):
            modules = list(plan.modules)
            modules[i] = replace(module, code=bad)
            with pytest.raises(braze.EngineFormatError, match="kernel of the engine"):
                ReferenceEngine.from_plan(replace(plan, modules=tuple(modules)))


def test_loading_needs_neither_onnx_nor_a_compiler(tmp_path: Path) -> None:
    case = MODELS["conv_residual_1d"]()
    build(case).save(tmp_path / "net.engine")
    code = (
        "import sys, braze\n"
        f"braze.load({str(tmp_path / 'net.engine')!r})\n"
        "bad = {'onnx', 'llvmlite', 'braze.codegen.cpu.backend'} & set(sys.modules)\n"
        "assert not bad, bad\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
