"""INT8 by calibrators and by dynamic ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import braze
import braze.tensorrt as trt
from tests.tensorrt.networks import floats, new_network

W = floats(8, 3, 3, 3, seed=1)


def conv_network() -> tuple[Any, Any]:
    network, log = new_network()
    x = network.add_input("x", trt.float32, (2, 3, 8, 8))
    conv = network.add_convolution_nd(x, 8, (3, 3), W)
    conv.get_output(0).name = "c"
    y = network.add_activation(conv.get_output(0), trt.ActivationType.RELU).get_output(0)
    y.name = "y"
    network.mark_output(y)
    return network, log


class Calibrator(trt.IInt8EntropyCalibrator2):
    """Gives some batches, and keeps the cache."""

    def __init__(self, batches: int = 3, cache: bytes | None = None) -> None:
        trt.IInt8EntropyCalibrator2.__init__(self)
        self.left = [floats(2, 3, 8, 8, seed=i) for i in range(batches)]
        self.cache, self.calls = cache, []

    def get_batch_size(self) -> int:
        self.calls.append("size")
        return 2

    def get_batch(self, names: list[str]) -> list[int] | None:
        assert names == ["x"]
        self.calls.append("batch")
        if not self.left:
            return None
        self.held = self.left.pop()
        return [int(self.held.ctypes.data)]

    def read_calibration_cache(self) -> bytes | None:
        self.calls.append("read")
        return self.cache

    def write_calibration_cache(self, cache: Any) -> None:
        self.calls.append("write")
        self.cache = cache.tobytes()  # a memoryview, as TensorRT gives it


def build(network: Any, calibrator: Any = None, int8: bool = True, *flags: Any) -> Any:
    config = network.builder.create_builder_config()
    config.builder_optimization_level = 1
    for flag in flags:
        config.set_flag(flag)
    if int8:
        config.set_flag(trt.BuilderFlag.INT8)
    if calibrator is not None:
        with pytest.warns(DeprecationWarning):
            config.int8_calibrator = calibrator
    return network.builder.build_serialized_network(network, config)


def kernels(data: Any) -> str:
    return str(braze.Engine.from_bytes(data).plan.record["decisions"])


def test_a_calibrator_gives_the_scales() -> None:
    network, log = conv_network()
    exact, calibrator = build(network, int8=False), Calibrator()
    data = build(network, calibrator)
    assert data is not None, log.errors
    assert calibrator.calls == ["size", "read", *["batch"] * 4, "write"]
    assert calibrator.cache.startswith(b"TRT-") and b"\nx: " in calibrator.cache
    x = floats(2, 3, 8, 8, seed=9)
    wanted, got = (braze.Engine.from_bytes(d)({"x": x})["y"] for d in (exact, data))
    # 27 products of numbers rounded to 1/127 of their range: a few percent of the largest
    difference = np.abs(got - wanted).max()
    assert 0 < difference < 0.05 * np.abs(wanted).max()
    again = Calibrator(cache=calibrator.cache)
    from_cache = build(conv_network()[0], again)
    assert again.calls == ["size", "read"]
    np.testing.assert_array_equal(braze.Engine.from_bytes(from_cache)({"x": x})["y"], got)


def test_a_refit_keeps_the_ranges_that_a_calibrator_gave() -> None:
    data = build(conv_network()[0], Calibrator(), True, trt.BuilderFlag.STRIP_PLAN)
    engine = trt.Runtime(trt.Logger()).deserialize_cuda_engine(data)
    refitter = trt.Refitter(engine, trt.Logger())
    ((layer,), _) = refitter.get_missing()
    assert refitter.set_weights(layer, trt.WeightsRole.KERNEL, W) and refitter.refit_cuda_engine()
    x = floats(2, 3, 8, 8, seed=9)
    wanted = braze.Engine.from_bytes(build(conv_network()[0], Calibrator()))({"x": x})["y"]
    np.testing.assert_array_equal(engine.core({"x": x})["y"], wanted)


KINDS = (trt.IInt8EntropyCalibrator, trt.IInt8LegacyCalibrator, trt.IInt8MinMaxCalibrator)


@pytest.mark.parametrize("kind", KINDS)
def test_calibrators_of_every_kind(kind: type) -> None:
    class Other(kind, Calibrator):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            Calibrator.__init__(self, batches=1)

        get_batch_size = Calibrator.get_batch_size
        get_batch = Calibrator.get_batch
        read_calibration_cache = Calibrator.read_calibration_cache
        write_calibration_cache = Calibrator.write_calibration_cache

    network, log = conv_network()
    calibrator = Other()
    assert calibrator.get_algorithm() is kind().get_algorithm()
    data = build(network, calibrator)
    assert data is not None, log.errors
    assert calibrator.calls == ["size", "read", "batch", "batch", "write"]
    x = floats(2, 3, 8, 8, seed=9)
    exact = build(conv_network()[0], int8=False)
    wanted, got = (braze.Engine.from_bytes(d)({"x": x})["y"] for d in (exact, data))
    # 27 products of numbers rounded to 1/127 of a range that the batch need not fill
    assert 0 < np.abs(got - wanted).max() < 0.2 * np.abs(wanted).max()


def test_ranges_of_tensors_give_the_scales() -> None:
    network, log = conv_network()
    x, c = network.get_input(0), network[0].get_output(0)
    for tensor, size in ((x, 4.0), (c, 30.0)):
        with pytest.warns(DeprecationWarning):
            assert tensor.set_dynamic_range(-size, size)
        assert tensor.dynamic_range == (-size, size) and tensor.get_dynamic_range() == size
    with pytest.warns(DeprecationWarning):
        assert not x.set_dynamic_range(2, 1) and "empty" in log.errors[-1]
    for wrong in ((2, 1), (1,)):
        with pytest.warns(DeprecationWarning), pytest.raises(ValueError, match="ynamic range"):
            x.dynamic_range = wrong
    with pytest.warns(DeprecationWarning):
        x.dynamic_range = (-4, 4)
    data, exact = build(network), build(network, int8=False)
    feed = np.clip(floats(2, 3, 8, 8, seed=9), -4, 4)
    wanted, got = (braze.Engine.from_bytes(d)({"x": feed})["y"] for d in (exact, data))
    scale = np.float32(4 / 127)
    assert 0 < np.abs(got - wanted).max() < 0.05 * np.abs(wanted).max(), scale
    x.reset_dynamic_range()
    assert x.dynamic_range is None


def test_without_scales_int8_is_only_allowed() -> None:
    network, _ = conv_network()
    data, exact = build(network), build(network, int8=False)
    x = floats(2, 3, 8, 8)
    a, b = (braze.Engine.from_bytes(d)({"x": x})["y"] for d in (data, exact))
    np.testing.assert_array_equal(a, b)


def test_calibrators_that_give_nothing() -> None:
    network, log = conv_network()
    assert build(network, Calibrator(batches=0)) is not None
    assert any("no batches" in m for s, m in log.messages if s is trt.Logger.WARNING)
    config = network.builder.create_builder_config()
    profile = network.builder.create_optimization_profile()
    assert config.set_calibration_profile(profile)
    assert config.get_calibration_profile() is profile
    config.set_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.get_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.quantization_flags == 1
    config.clear_quantization_flag(trt.QuantizationFlag.CALIBRATE_BEFORE_FUSION)
    assert config.quantization_flags == 0


def test_algorithms_of_calibrators() -> None:
    kinds = {
        trt.IInt8EntropyCalibrator: "ENTROPY_CALIBRATION",
        trt.IInt8EntropyCalibrator2: "ENTROPY_CALIBRATION_2",
        trt.IInt8MinMaxCalibrator: "MINMAX_CALIBRATION",
        trt.IInt8LegacyCalibrator: "LEGACY_CALIBRATION",
    }
    for kind, name in kinds.items():
        assert kind().get_algorithm() is trt.CalibrationAlgoType[name]
        assert issubclass(kind, trt.IInt8Calibrator)
        with pytest.raises(NotImplementedError):
            kind().get_batch(["x"])
