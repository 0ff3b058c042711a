"""What programs write and braze calls, and what happens where it raises: an error, no exception."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import braze.tensorrt as trt
from tests.tensorrt.engines import Log, Recorder, static_engine
from tests.tensorrt.networks import floats, new_network, plan_of
from tests.tensorrt.plugins import Creator, Halving, Old, OldCreator

A = floats(2, 8)


def broken(*_arguments: Any) -> Any:
    """In place of any method."""
    raise ValueError("the plugin is broken")


def ends(*_: Any) -> Any:
    """In place of any method: it asks for the end of the program."""
    raise SystemExit(3)


def plugin_plan(plugin: Any) -> Any:
    """An engine of one plugin, or None; then the log and what the builder's recorder heard."""
    network, log = new_network()
    network.builder.error_recorder = recorder = Recorder()
    x = network.add_input("x", trt.float32, (2, 8))
    if isinstance(plugin, Halving):
        out = network.add_plugin_v3([x], [], plugin).get_output(0)
    else:
        w = network.add_constant((1, 8), floats(1, 8)).get_output(0)
        layer = network.add_plugin_v2([x, w], plugin)
        out = layer.get_output(0)
        network.mark_output(network.add_cast(layer.get_output(1), trt.int32).get_output(0))
    out.name = "y"
    network.mark_output(out)
    return plan_of(network), log, recorder


BUILDING = [
    (Halving, "get_output_data_types"), (Halving, "get_output_shapes"),
    (Halving, "supports_format_combination"), (Halving, "configure_plugin"),
    (Halving, "get_valid_tactics"), (Halving, "get_workspace_size"),
    (Halving, "get_fields_to_serialize"),
    (Old, "get_output_datatype"), (Old, "get_output_dimensions"),
    (Old, "supports_format_combination"), (Old, "serialize"), (Old, "get_workspace_size"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "method"), BUILDING)
def test_plugins_that_raise_in_a_build(
    kind: Any, method: str, creators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind, method, broken)
    data, log, recorder = plugin_plan(kind())
    assert data is None and recorder.num_errors() == 1
    assert recorder.get_error_desc(0) == log.errors[-1]
    assert (
        "Error Code" in log.errors[-1]
        and "raised ValueError: the plugin is broken" in (log.errors[-1])
    )
    assert "bug of braze" not in log.errors[-1]


def test_plugins_that_raise_where_they_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Halving, "get_capability_interface", broken)
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    assert network.add_plugin_v3([x], [], Halving()) is None and network.num_layers == 0
    assert "the plugin raised ValueError: the plugin is broken" in log.errors[0]


@pytest.mark.parametrize("raising", [broken, ends])
def test_creators_that_raise_where_a_model_is_parsed(
    raising: Any, creators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = (helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 8]) for n in "xy")
    for creator in (Creator, OldCreator):
        monkeypatch.setattr(creator, "create_plugin", raising)
        name = next(c.name for c in creators if isinstance(c, creator))
        node = helper.make_node(name, ["x"], ["y"], domain="own")
        opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
        graph = helper.make_graph([node], "g", [x], [y])
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
        network, log = new_network()
        parser = trt.OnnxParser(network, log)
        assert not parser.parse(model.SerializeToString()) and parser.num_errors == 1
        assert "its creator raised" in parser.get_error(0).desc()


LOADING = [
    (Creator, "create_plugin"), (Halving, "attach_to_context"), (Halving, "set_tactic"),
    (OldCreator, "deserialize_plugin"), (Old, "initialize"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "method"), LOADING)
def test_plugins_that_raise_where_an_engine_is_loaded(
    kind: Any, method: str, creators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, _, _ = plugin_plan(Halving() if kind in (Creator, Halving) else Old())
    monkeypatch.setattr(kind, method, broken)
    log, recorder = Log(), Recorder()
    runtime = trt.Runtime(log)
    runtime.error_recorder = recorder
    assert runtime.deserialize_cuda_engine(data) is None
    assert recorder.num_errors() == 1
    assert "IRuntime::deserializeCudaEngine: Error Code" in log.errors[0]
    assert "the plugin is broken" in log.errors[0]


@pytest.mark.parametrize(("kind", "method"), [
    (Halving, "enqueue"), (Halving, "on_shape_change"), (Old, "enqueue"),
])  # fmt: skip
@pytest.mark.parametrize("by_bindings", [False, True])
def test_plugins_that_raise_in_a_run(
    kind: Any, method: str, by_bindings: bool, creators: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    log, recorder = Log(), Recorder()
    context = loaded(kind, log, recorder)
    assert ran(context, by_bindings)
    monkeypatch.setattr(kind, method, broken)
    assert ran(context, by_bindings) is False
    assert recorder.num_errors() == 1 and recorder.get_error_desc(0) == log.errors[0]
    where = "executeV2" if by_bindings else "enqueueV3"
    assert f"IExecutionContext::{where}: Error Code 2: Internal Error" in log.errors[0]
    assert "the plugin is broken" in log.errors[0]
    monkeypatch.undo()
    context.engine.plugins.plugins[0].plugin.calls = []
    assert ran(context, by_bindings)  # and everything still works


def test_plugins_that_return_a_status(creators: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    log, recorder = Log(), Recorder()
    context = loaded(Old, log, recorder)
    monkeypatch.setattr(Old, "enqueue", lambda *_: 7)
    assert ran(context, False) is False
    assert recorder.get_error_code(0) is trt.ErrorCodeTRT.FAILED_EXECUTION
    assert "failed with 7" in log.errors[0]


@pytest.mark.parametrize(
    ("kind", "method"), [(Halving, "enqueue"), (Halving, "on_shape_change"), (Old, "enqueue")]
)
def test_plugins_that_end_the_program(
    kind: Any, method: str, creators: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, recorder = Log(), Recorder()
    context = loaded(kind, log, recorder)
    monkeypatch.setattr(kind, method, ends)
    assert ran(context, False) is False
    assert recorder.num_errors() == 1 and "SystemExit: 3" in log.errors[0]


def test_other_callbacks_that_end_the_program(
    creators: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log, recorder = Log(), Recorder()
    context = loaded(Halving, log, recorder)
    context.profiler = profiler = trt.Profiler()
    monkeypatch.setattr(profiler, "report_layer_time", ends)
    assert ran(context, False) is False and "SystemExit: 3" in log.errors[0]
    monkeypatch.setattr(Halving, "attach_to_context", ends)
    data, _, _ = plugin_plan(Halving())
    assert trt.Runtime(log).deserialize_cuda_engine(data) is None
    for method in ("get_output_shapes", "get_workspace_size"):
        monkeypatch.setattr(Halving, method, ends)
        data, log, _ = plugin_plan(Halving())
        assert data is None and "SystemExit: 3" in log.errors[-1]
    monkeypatch.setattr(Log, "log", ends)
    monkeypatch.setattr(Recorder, "report_error", ends)
    assert ran(context, False) is False
    err = capsys.readouterr().err
    assert "caught in log(): 3" in err and "caught in report_error(): 3" in err


@pytest.mark.parametrize("what", ["monitor", "calibrator"])
def test_listeners_of_a_build_that_end_the_program(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "broken", ends)
    data, log = listened(what)
    assert data is None and "SystemExit: 3" in log.errors[-1]


def loaded(kind: Any, log: Log, recorder: Recorder) -> Any:
    """A context of an engine of one plugin."""
    runtime = trt.Runtime(log)
    runtime.error_recorder = recorder
    return runtime.deserialize_cuda_engine(plugin_plan(kind())[0]).create_execution_context()


def ran(context: Any, by_bindings: bool) -> bool:
    """Whether a run went well."""
    names = [context.engine.get_tensor_name(i) for i in range(context.engine.num_io_tensors)]
    room = np.zeros((len(names), 16), np.float32)  # more than any output here takes
    places = [A.ctypes.data, *(row.ctypes.data for row in room[1:])]
    if by_bindings:
        return bool(context.execute_v2(places))
    for name, place in zip(names, places, strict=True):
        context.set_tensor_address(name, place)
    return bool(context.execute_async_v3(0))


class Reader(trt.IStreamReader):
    def read(self, size: int) -> bytes:
        return broken()


class Writer(trt.IStreamWriter):
    def write(self, data: bytes) -> int:
        return int(broken())


class Monitor(trt.IProgressMonitor):
    def phase_start(self, phase_name: str, parent_phase: Any, num_steps: int) -> None:
        broken()

    def phase_finish(self, phase_name: str) -> None:
        broken()

    def step_complete(self, phase_name: str, step: int) -> bool:
        return bool(broken())


class Calibrator(trt.IInt8MinMaxCalibrator):
    def get_batch_size(self) -> int:
        return 1

    def get_batch(self, names: list[str]) -> Any:
        return broken()

    def read_calibration_cache(self) -> None:
        return None

    def write_calibration_cache(self, cache: Any) -> None:
        return None


def test_streams_that_raise() -> None:
    log = Log()
    assert trt.Runtime(log).deserialize_cuda_engine(Reader()) is None
    assert "IRuntime::deserializeCudaEngine" in log.errors[0] and "broken" in log.errors[0]
    network, log = relu_network()
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    assert not network.builder.build_serialized_network_to_stream(network, config, Writer())
    assert "the plugin is broken" in log.errors[0]


@pytest.mark.parametrize("what", ["monitor", "calibrator"])
def test_listeners_of_a_build_that_raise(what: str) -> None:
    data, log = listened(what)
    assert data is None
    assert "IBuilder::buildSerializedNetwork: Error Code" in log.errors[-1]
    assert "the plugin is broken" in log.errors[-1]


def listened(what: str) -> Any:
    """What a build gives that something listens to which raises; the log."""
    network, log = relu_network()
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    if what == "monitor":
        config.progress_monitor = Monitor()
    else:
        config.set_flag(trt.BuilderFlag.INT8)
        with pytest.warns(DeprecationWarning):
            config.int8_calibrator = Calibrator()
    return network.builder.build_serialized_network(network, config), log


def relu_network() -> Any:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 8))
    y = network.add_activation(x, trt.ActivationType.RELU).get_output(0)
    network.mark_output(y)
    return network, log


def test_a_logger_that_raises_does_not_hide_an_engine(capsys: pytest.CaptureFixture[str]) -> None:
    class Raising(trt.ILogger):
        def log(self, severity: Any, msg: str) -> None:
            raise ValueError("logger")

    network = trt.Builder(Raising()).create_network()
    assert network.add_input("x", trt.float32, (-2,)) is None  # refused, and the refusal logged
    assert "Exception caught in log(): logger" in capsys.readouterr().err
    assert trt.Runtime(Raising()).deserialize_cuda_engine(static_engine()) is not None
