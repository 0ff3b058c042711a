"""`tensorrt.plugin`: plugins as functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import braze.tensorrt as trt
import braze.tensorrt.plugin as trtp
from tests.tensorrt.networks import floats, new_network, plan_of
from tests.tensorrt.test_plugins import run_engine


@pytest.fixture(autouse=True)
def registered() -> Any:
    """The registry as it was, after a test."""
    registry = trt.get_plugin_registry()
    before = list(registry.all_creators)
    yield
    for creator in registry.all_creators:
        if creator not in before:
            registry.deregister_creator(creator)


def define_pad() -> list[Any]:
    """Pads around the last axis; what the implementation is called with goes into the list."""
    seen: list[Any] = []

    @trtp.register("own::pad")
    def describe(
        x: trtp.TensorDesc, pads: NDArray[np.int32], name: str, twice: bool
    ) -> tuple[trtp.TensorDesc, trtp.TensorDesc]:
        out = x.like()
        assert out.ndim == x.ndim and len(out.shape_expr) == x.ndim
        out.shape_expr[1] = x.shape_expr[1] + int(pads[0]) + int(pads[1])
        return out, trtp.from_shape_expr((x.shape_expr[0], 1), dtype=trt.int32)

    @trtp.autotune("own::pad")
    def tune(x: trtp.TensorDesc, outputs: Any) -> list[Any]:
        assert x.dtype is trt.float32 and outputs[1].dtype is trt.int32
        return [
            trtp.AutoTuneCombination("FP16, FP16, INT32"),
            trtp.AutoTuneCombination("FP32|FP16, FP32|FP16, INT32", "LINEAR", [4, 5]),
        ]

    @trtp.impl("own::pad")
    def run(
        x: Any, pads: Any, name: str, twice: bool, outputs: Any, stream: int, tactic: int
    ) -> None:
        seen.append((x.shape, pads.tolist(), name, twice, stream, tactic, x.dtype, x.numel()))
        assert x.data_ptr and x.strides == (x.shape[1], 1)
        y, rows = (np.asarray(o) for o in outputs)
        y[...] = np.pad(np.asarray(x), ((0, 0), tuple(pads))) * (2 if twice else 1)
        rows[...] = np.arange(len(rows))[:, None]

    return seen


def test_functions_run_as_plugins() -> None:
    seen = define_pad()
    flag = trt.NetworkDefinitionCreationFlag.PREFER_JIT_PYTHON_PLUGINS
    network, log = new_network(1 << int(flag))
    assert network.get_flag(flag)
    x = network.add_input("x", trt.float32, (-1, 4))
    before = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    pads = np.array([1, 2], np.int32)
    layer = network.add_plugin(trtp.op.own.pad(before, pads=pads, name="p", twice=True))
    assert network[1].type is trt.LayerType.PLUGIN_V3 and layer.num_outputs == 2
    creator = trt.get_plugin_registry().get_creator("pad", "1", "own")
    assert isinstance(creator, trt.IPluginCreatorV3Quick) and creator.name == "pad"
    parts = (trt.IPluginV3QuickCore, trt.IPluginV3QuickBuild, trt.IPluginV3QuickRuntime)
    assert all(isinstance(layer.plugin, part) for part in parts)
    assert (creator.plugin_namespace, creator.plugin_version) == ("own", "1")
    assert [f.name for f in creator.field_names] == ["pads", "name", "twice"]
    fields = trt.PluginFieldCollection([trt.PluginField("pads", pads)])
    again = creator.create_plugin("again", "own", fields, trt.TensorRTPhase.BUILD)
    for plugin in (layer.plugin, again):
        told = (plugin.plugin_name, plugin.plugin_namespace, plugin.plugin_version)
        assert told == ("pad", "own", "1")
    assert tuple(layer.get_output(0).shape) == (-1, 7) and layer.get_output(1).dtype is trt.int32
    y = network.add_unary(layer.get_output(0), trt.UnaryOperation.NEG).get_output(0)
    for name, tensor in (("y", y), ("rows", layer.get_output(1))):
        tensor.name = name
        network.mark_output(tensor)
    data = plan_of(network, {"x": ((1, 4), (3, 4), (6, 4))})
    assert data is not None, log.errors
    a = floats(5, 4)
    made = {"y": np.zeros((5, 7), np.float32), "rows": np.zeros((5, 1), np.int32)}
    run_engine(data, {"x": a}, made)
    wanted = -2 * np.pad(np.maximum(a, 0), ((0, 0), (1, 2)))
    np.testing.assert_array_equal(made["y"], wanted)
    assert made["rows"].reshape(-1).tolist() == [0, 1, 2, 3, 4]
    assert seen == [((5, 4), [1, 2], "p", True, 0, 4, trt.float32, 20)]


def test_attributes_keep_their_kinds() -> None:
    seen: list[Any] = []

    @trtp.register("own::scale")
    def describe(x: trtp.TensorDesc, factor: float, count: int) -> trtp.TensorDesc:
        return x.like()

    @trtp.impl("own::scale")
    def run(x: Any, factor: float, count: int, outputs: Any) -> None:
        seen.append((type(factor), type(count)))
        np.asarray(outputs[0])[...] = np.asarray(x) * factor + count

    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    out = network.add_plugin(trt.plugin.op.own.scale(x, factor=0.5, count=3)).get_output(0)
    out.name = "y"
    network.mark_output(out)
    data, a = plan_of(network), floats(2, 3)
    assert data is not None, log.errors
    made = {"y": np.zeros((2, 3), np.float32)}
    run_engine(data, {"x": a}, made)
    np.testing.assert_allclose(made["y"], a * 0.5 + 3, rtol=1e-6)
    assert seen == [(float, int)]


def test_sizes_have_arithmetic() -> None:
    known = trtp.ShapeExpr(7)
    results = [known + 1, 1 + known, known - 2, 9 - known, known * 2, known // 2, 20 // known]
    assert [r.constant_value() for r in results] == [8, 8, 5, 2, 14, 3, 2]
    assert trtp.cdiv(known, 2).constant_value() == 4
    assert trtp.max(known, 9).constant_value() == 9 and trtp.min(known, 9).constant_value() == 7
    assert (known < 8).constant_value() == 1 and (known == 8).constant_value() == 0
    assert trtp.ShapeExprs([2, 3, known]).numel().constant_value() == 42
    desc = trtp.TensorDesc((2, 3), trt.float16)
    assert desc.shape == (2, 3) and desc.has_shape() and desc.aliased().dtype is trt.float16
    with pytest.raises(NotImplementedError):
        trtp.size_tensor(known, known)


def test_wrong_use() -> None:
    define_pad()
    with pytest.raises(ValueError):
        define_pad()
    for wrong in ("pad", "own::", "own::none"):
        with pytest.raises(ValueError):
            trtp.impl(wrong)
    with pytest.raises(AttributeError):
        _ = trtp.op.own.none
    network, _ = new_network()
    x = network.add_input("x", trt.int32, (2, 4))
    good = {"pads": np.zeros(2, np.int32), "name": "p", "twice": False}
    assert len(trtp.op.own.pad(x, **good)) == 2
    for tensors, attributes, message in (
        ([x], {"size": 3}, "in this order, pads=, name=, twice=; it was given 1 and size"),
        ([x], {}, "given 1 and no attributes"),
        ([x], {**good, "more": 1}, "twice, more"),
        ([x], dict(reversed(good.items())), "in this order"),
        ([x, x], good, "takes 1 tensors"),
        ([], good, "given 0"),
        ([None], good, "an ITensor is expected, not None"),
        ([np.ones(3)], good, "an ITensor is expected"),
        ([x, 3], good, "attributes by their names"),
        ([x], {**good, "name": 3}, "'name' is 3; str is expected"),
        ([x], {**good, "twice": 1}, "'twice' is 1; bool is expected"),
        ([x], {**good, "pads": [1, 2]}, "'pads'"),
        ([x], {**good, "pads": np.zeros(2)}, "'pads' is of float64; int32 is expected"),
        ([x], {**good, "name": np.zeros(2)}, "'name'"),
    ):
        with pytest.raises(ValueError, match=message):
            trtp.op.own.pad(*tensors, **attributes)
    with pytest.raises(TypeError):
        network.add_plugin(x)


def test_plugins_that_cannot_run_here() -> None:
    @trtp.register("own::kernel")
    def describe(x: trtp.TensorDesc) -> trtp.TensorDesc:
        return x.like()

    @trtp.aot_impl("own::kernel")
    def kernel(x: Any, outputs: Any, tactic: int) -> Any:
        return "name", b"ptx", trtp.KernelLaunchParams(), None

    network, log = new_network()
    x = network.add_input("x", trt.float16, (2, 4))
    assert network.add_plugin(trtp.op.own.kernel(x), aot=True) is None
    assert "not launched" in log.errors[-1]
    out = network.add_plugin(trtp.op.own.kernel(x)).get_output(0)
    network.mark_output(out)
    assert plan_of(network) is None and "kernels are not launched" in log.errors[-1]

    @trtp.impl("own::kernel")
    def run(x: Any, outputs: Any) -> None: ...

    @trtp.autotune("own::kernel")
    def tune(x: Any, outputs: Any) -> Any:
        combination = trtp.AutoTuneCombination()
        combination.pos([0, 1], "FP32")
        combination.tactics([1])
        return [combination]

    assert plan_of(network) is None and "FP16, FP16" in log.errors[-1]


T = trtp.TensorDesc


def no_annotation(x, k: int) -> T: ...


def a_default(x: T, k: int = 3) -> T: ...


def attributes_first(k: int, x: T) -> T: ...


def mixed(x: T, k: int, y: T) -> T: ...


def no_result(x: T): ...


def another_result(x: T) -> tuple[T, int]: ...


def a_list(x: T, k: list) -> T: ...


def open_array(x: T, k: np.ndarray) -> T: ...


def complex_array(x: T, k: NDArray[np.complex64]) -> T: ...


def taken(x: T, stream: int) -> T: ...


def any_number(*x: T) -> T: ...


def unreadable(x: Nothing) -> T: ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (no_annotation, "argument 'x' has no annotation"),
        (a_default, "argument 'k' has a default value"),
        (attributes_first, "'k' is in front of the tensors"),
        (mixed, "'y' is behind attributes"),
        (no_result, "nothing is annotated as returned"),
        (another_result, "say TensorDesc or Tuple"),
        (a_list, "'k' is of <class 'list'>"),
        (open_array, "'k' is of <class 'numpy.ndarray'>"),
        (complex_array, "'k' is of "),
        (taken, "may be called 'stream'"),
        (any_number, "'x' cannot be given by name"),
        (unreadable, "cannot be read: name 'Nothing'"),
    ],
)
def test_functions_that_declare_no_plugin(function: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trtp.register("own::wrong")(function)


def test_arrays_of_any_type_and_bytes() -> None:
    seen: list[Any] = []

    @trtp.register("own::kinds", lazy_register=True)
    def describe(x: T, a: np.ndarray, b: NDArray[np.bool_], c: bytes) -> T:
        return x.like()

    @trtp.impl("own::kinds")
    def run(x: Any, a: Any, b: Any, c: Any, outputs: Any, stream: int) -> None:
        seen.append((a.tolist(), b.dtype, b.tolist(), c))
        np.asarray(outputs[0])[...] = np.asarray(x)

    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    kinds = {"a": np.array([1.5]), "b": np.array([True, False]), "c": b"\xff\x00"}
    out = network.add_plugin(trtp.op.own.kinds(x, **kinds)).get_output(0)
    out.name = "y"
    network.mark_output(out)
    data = plan_of(network)
    assert data is not None, log.errors
    run_engine(data, {"x": floats(2, 3)}, {"y": np.zeros((2, 3), np.float32)})
    assert seen == [([1.5], np.dtype(bool), [True, False], b"\xff\x00")]


def test_functions_that_raise_where_they_are_added() -> None:
    @trtp.register("own::ends")
    def describe(x: T) -> T:
        raise SystemExit(3)

    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3))
    assert network.add_plugin(trtp.op.own.ends(x)) is None
    assert "the plugin raised SystemExit: 3" in log.errors[0]
