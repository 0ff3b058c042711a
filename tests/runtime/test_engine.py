"""Running engines from Python: results, inputs of all kinds, typed errors, debug tensors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from braze.core.dtypes import BF16, F32, U16
from braze.core.errors import (
    BindingError,
    DTypeError,
    ExecutionError,
    ProfileError,
    ShapeError,
)
from braze.runtime import Engine, hooks
from braze.runtime.arrays import address_of, as_input, empty_output, memory_for
from tests.runtime.plans import (
    branch_plan,
    chain_plan,
    chain_reference,
    expression_plan,
    gather_plan,
    rows,
)


@pytest.mark.parametrize("parallel", [False, True])
@pytest.mark.parametrize("num_steps", [1, 2, 9])
def test_results_for_every_shape_and_number_of_workers(parallel: bool, num_steps: int) -> None:
    plan = chain_plan(num_steps, parallel=parallel)
    engine = Engine.from_plan(plan)
    for n in (4, 1, 16, 3):
        x = rows(n)
        expected = chain_reference(plan, x)
        for workers in (0, 1, 2, 7):
            got = engine({"x": x}, workers=workers)["y"]
            assert got.tobytes() == expected.tobytes()
            assert got.shape == expected.shape
            assert got.ctypes.data % 64 == 0


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_steps_without_barriers_and_reused_memory(workers: int) -> None:
    context = Engine.from_plan(branch_plan()).create_context()
    for n in (16, 1, 5, 16, 7) * 20:
        x = np.arange(n * 1024, dtype=np.float32).reshape(n, 1024)
        np.testing.assert_array_equal(context.run({"x": x}, workers=workers)["y"], 9 * x)


def test_ways_to_load_give_the_same_engine(tmp_path: Path) -> None:
    plan = chain_plan()
    first = Engine.from_plan(plan)
    first.save(tmp_path / "a.engine")
    x = rows(5)
    expected = first({"x": x})["y"]
    for engine in (Engine.load(tmp_path / "a.engine"), Engine.from_bytes(first.to_bytes())):
        assert engine({"x": x})["y"].tobytes() == expected.tobytes()
        assert engine.plan == plan
    assert Engine.load(tmp_path / "a.engine", threads=1).threads == 1


def test_description_and_report() -> None:
    engine = Engine.from_plan(chain_plan())
    assert [(t.name, t.dtype, t.shape) for t in engine.inputs] == [("x", F32, ("n", 8))]
    assert [(t.name, t.dtype, t.shape) for t in engine.outputs] == [("y", F32, ("n", 8))]
    text = engine.inspect()
    for part in ("x  float32 [n, 8]", "n 1..4..16", "arena 1024 B", "add:plain", "node_1",
                 "add into add", "isa x86-64"):  # fmt: skip
        assert part in text
    assert [t.shape for t in Engine.from_plan(expression_plan()).inputs] == [("n", "n + 1")]


def test_inputs_of_other_layouts_are_copied_not_misread() -> None:
    engine = Engine.from_plan(plan := chain_plan())
    base = rows(16, 16)
    for x in (base[:, ::2], base[::-1, :8], np.asfortranarray(base[:, :8])):
        expected = chain_reference(plan, np.ascontiguousarray(x))
        assert engine({"x": x})["y"].tobytes() == expected.tobytes()
    raw = np.zeros(4 * 8 * 4 + 1, np.uint8)
    odd = raw[1:].view(np.float32).reshape(4, 8)
    odd[:] = rows(4)
    assert engine({"x": odd})["y"].tobytes() == chain_reference(plan, rows(4)).tobytes()

    class Like:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return rows(4)

    assert engine({"x": Like()})["y"].tobytes() == chain_reference(plan, rows(4)).tobytes()
    listed = engine({"x": memoryview(rows(4))})["y"]
    assert listed.tobytes() == chain_reference(plan, rows(4)).tobytes()


@pytest.mark.parametrize(
    ("inputs", "error", "words"),
    [
        ({}, BindingError, "missing"),
        ({"z": rows(4)}, BindingError, "unknown"),
        ({"x": rows(4), "z": rows(4)}, BindingError, "unknown"),
        ({"x": rows(4).astype(np.float64)}, DTypeError, "float64"),
        ({"x": rows(4).astype(">f4")}, DTypeError, "byte order"),
        ({"x": [["a"]]}, DTypeError, "holds no numbers"),
        ({"x": rows(4)[0]}, ShapeError, "2 axes"),
        ({"x": rows(4, 9)}, ShapeError, "axis 1 has size 9"),
        ({"x": rows(17)}, ProfileError, "axis 0 has size 17, outside 1..16"),
        ({"x": rows(0)}, ProfileError, "axis 0 has size 0"),
    ],
)
def test_errors_are_typed_and_leave_the_engine_usable(
    inputs: dict[str, Any], error: type[Exception], words: str
) -> None:
    engine = Engine.from_plan(plan := chain_plan())
    with pytest.raises(error, match=words):
        engine(inputs)
    assert engine({"x": rows(4)})["y"].tobytes() == chain_reference(plan, rows(4)).tobytes()


def test_data_errors_name_step_and_origins() -> None:
    engine = Engine.from_plan(gather_plan())
    x = np.arange(5, dtype=np.float32)
    good = {"x": x, "i": np.array([4, 0, 2])}
    np.testing.assert_array_equal(engine(good)["y"], [4, 0, 2])
    for workers in (1, 2):
        with pytest.raises(ExecutionError, match=r"step 0 'gather' \(from Gather_7, Reshape_8\)"):
            engine({"x": x, "i": np.array([4, 5, 2])}, workers=workers)
        np.testing.assert_array_equal(engine(good, workers=workers)["y"], [4, 0, 2])


def test_memory_that_runs_out_is_a_typed_error() -> None:
    with pytest.raises(ExecutionError, match="no memory for output 'y' of 4611686018427387904"):
        empty_output("y", (1 << 60,), np.dtype(np.float32), 1 << 62)
    with pytest.raises(ExecutionError, match=r"no memory for a copy \(12 bytes\)"):  # noqa: SIM117
        with memory_for("a copy", 12):
            raise MemoryError


def test_an_exception_in_a_callback_ends_in_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = Engine.from_plan(chain_plan(num_steps=4))

    def fail(*_args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(hooks.ctypes, "memmove", fail)
    with pytest.raises(KeyboardInterrupt):
        engine({"x": rows(4)}, debug=("t_0",))
    monkeypatch.undo()
    assert "t_0" in engine({"x": rows(4)}, debug=("t_0",))


def test_an_output_over_an_input_is_refused() -> None:
    context = Engine.from_plan(chain_plan()).create_context()
    context.set_input_shape("x", (4, 8))
    both = np.ones((8, 8), np.float32)
    context.bind("x", both[:4])
    for at in (0, 1, 3):
        context.bind("y", both[at : at + 4])
        with pytest.raises(BindingError, match="overlaps"):
            context.execute()
    context.bind("y", both[4:])
    context.execute()


def test_inputs_specialised_to_a_value() -> None:
    value = tuple(float(v) for v in range(6))
    engine = Engine.from_plan(expression_plan(value=value))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(engine({"x": x})["y"], 2 * x)
    with pytest.raises(ExecutionError, match="differs from the constant content"):
        engine({"x": x + 1})
    with pytest.raises(ShapeError, match="specialised"):
        engine({"x": rows(3, 4)})


def test_addresses_of_arrays_of_every_kind() -> None:
    """Those without a buffer that may be written are described by numpy."""
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    plain = [np.zeros((2, 3), t) for t in (np.float32, np.bool_, np.float16, BF16.numpy)]
    for array in (*plain, np.zeros((), np.int64), np.zeros((0, 2)), frozen, plain[0][1:]):
        assert address_of(array) == array.ctypes.data


def test_bfloat16_inputs() -> None:
    values = np.array([[1.5, -2.0]], ml_dtypes.bfloat16)
    assert as_input("x", BF16, BF16.numpy, values) is values
    for bits in (values.view(np.uint16), values.view("V2")):
        taken = as_input("x", BF16, BF16.numpy, bits)
        assert taken.dtype == values.dtype and np.shares_memory(taken, values)
        np.testing.assert_array_equal(taken, values)
    for wrong in (values.view(np.float16), values.view(np.int16), values.view("V4")):
        with pytest.raises(DTypeError, match="takes bfloat16 of ml_dtypes"):
            as_input("x", BF16, BF16.numpy, wrong)
    with pytest.raises(DTypeError, match="takes uint16"):
        as_input("x", U16, U16.numpy, values)
    with pytest.raises(DTypeError, match="takes bfloat16 of ml_dtypes"):
        as_input("x", BF16, BF16.numpy, np.zeros((1, 2), np.float32))


def test_profile_and_debug_tensors() -> None:
    plan = chain_plan(num_steps=4)
    engine = Engine.from_plan(plan)
    x = rows(4)
    times = engine.profile({"x": x})
    assert len(times) == 4
    assert all(t >= 0 for t in times)
    weight = plan.weight_data[0][:4]
    for workers in (1, 2):
        found = engine({"x": x}, workers=workers, debug=("t_0", "t_2"))
        np.testing.assert_array_equal(found["t_0"], x + weight)
        np.testing.assert_array_equal(found["t_2"], x + weight + weight + weight)
        assert found["y"].tobytes() == chain_reference(plan, x).tobytes()
    with pytest.raises(BindingError, match="no debug tensors"):
        engine({"x": x}, debug=("nothing",))
