"""Enums, Dims, Weights, Logger: what everything else in the package is said in."""

from __future__ import annotations

import io
import pkgutil
import re
import subprocess
import sys

import numpy as np
import pytest

import braze.tensorrt as trt


def test_enums_have_the_numbers_of_the_api() -> None:
    assert [int(t) for t in (trt.float32, trt.float16, trt.int8, trt.int32, trt.bool)] == [
        *range(5)
    ]
    assert int(trt.LayerType.DYNAMIC_QUANTIZE) == 50 and int(trt.UnaryOperation.ISNAN) == 24
    assert trt.BuilderFlag.STRIP_PLAN is trt.BuilderFlag.WEIGHTLESS
    assert trt.BuilderFlag.STRIP_PLAN.name == "WEIGHTLESS" and int(trt.BuilderFlag.STRIP_PLAN) == 19
    assert 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) == 2
    assert [0, 1, 2][trt.LoopOutput.REVERSE] == 2  # an index too


def test_members_equal_themselves_alone() -> None:
    assert trt.DataType.FLOAT not in (0, trt.ActivationType.RELU)
    assert trt.DataType(1) is trt.float16
    assert trt.DataType.HALF in {trt.float16} and repr(trt.float16) == "<DataType.HALF: 1>"
    assert trt.Logger.ERROR < trt.Logger.WARNING <= trt.Logger.Severity.WARNING
    with pytest.raises(TypeError):
        trt.Logger.ERROR < 2  # noqa: B015
    with pytest.raises(TypeError):
        trt.DataType.FLOAT < trt.DataType.HALF  # noqa: B015


def test_types_of_elements() -> None:
    assert trt.nptype(trt.float16) is np.float16 and trt.nptype(trt.bool) is np.bool_
    for extended in (trt.bfloat16, trt.fp8, trt.int4, trt.fp4, trt.e8m0):
        with pytest.raises(TypeError):
            trt.nptype(extended)
    sizes = {t.name: t.itemsize for t in trt.DataType}
    assert sizes["INT64"] == 8 and sizes["BF16"] == 2 and sizes["BOOL"] == 1
    assert sizes["INT4"] == sizes["FP4"] == 0.5 and sizes["E8M0"] is None


def test_volume() -> None:
    assert trt.volume(trt.Dims([2, 3, 4])) == 24 and trt.volume(()) == 1


def test_dims_behave_like_tuples() -> None:
    dims = trt.Dims((1, 3, 224, 224))
    assert dims == (1, 3, 224, 224) and dims == [1, 3, 224, 224] and dims != (1, 3)
    assert tuple(dims) == (1, 3, 224, 224) and dims[-1] == 224 and dims[1:3] == (3, 224)
    assert str(dims) == "(1, 3, 224, 224)" and repr(trt.Dims([5])) == "(5,)"
    assert str(trt.Dims()) == "()"
    dims[0] = -1
    dims[1:3] = (7, 8)
    assert dims == (-1, 7, 8, 224) and len(dims) == 4 and dims.MAX_DIMS == 8
    with pytest.raises(IndexError):
        dims[4]
    with pytest.raises(TypeError):
        {dims}  # noqa: B018


def test_dims_refuse_what_is_no_shape() -> None:
    with pytest.raises(ValueError):
        trt.Dims(range(9))
    for wrong in (3.5, "12", [1.5], None):
        with pytest.raises(TypeError):
            trt.Dims(wrong if wrong is not None else [None])


def test_dims_of_fixed_length() -> None:
    assert trt.Dims2(3, 4) == (3, 4) and trt.Dims3([1, 2, 3]) == (1, 2, 3)
    assert trt.Dims4() == (0, 0, 0, 0) and issubclass(trt.DimsHW, trt.Dims2)
    size = trt.DimsHW(h=2, w=5)
    size.h = 9
    assert (size.h, size.w) == (9, 5)
    with pytest.raises(ValueError):
        trt.Dims3([1, 2])


def test_names_of_old_releases() -> None:
    size = trt.DimsNCHW(1, 3, 4, 5)
    size.c = 2
    assert (size.n, size.c, size.h, size.w) == size == (1, 2, 4, 5)
    image = trt.DimsCHW((3, 4, 5))
    assert (image.c, image.h, image.w) == (3, 4, 5) and isinstance(image, trt.Dims3)
    assert trt.ResizeMode.LINEAR is trt.InterpolationMode.LINEAR
    assert trt.SliceMode.WRAP is trt.SampleMode.WRAP


def test_axes_of_old_releases_have_kinds() -> None:
    kind = trt.DimensionType
    nchw = trt.DimsNCHW(1, 3, 4, 5)
    assert [nchw.get_type(i) for i in range(4)] == [
        kind.INDEX,
        kind.CHANNEL,
        kind.SPATIAL,
        kind.SPATIAL,
    ]
    assert trt.DimsCHW(3, 4, 5).get_type(0) is kind.CHANNEL
    assert trt.Dims((2, 3)).get_type(1) is kind.SPATIAL and int(kind.SEQUENCE) == 3
    with pytest.raises(IndexError):
        trt.Dims((2, 3)).get_type(2)


def test_permutations() -> None:
    order = trt.Permutation([1, 2, 0])
    order[0], order[2] = 0, 1
    assert list(order) == [0, 2, 1] and str(order) == "(0, 2, 1)"


def test_weights_point_to_the_array() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    weights = trt.Weights(array)
    array[0, 0] = 9
    assert weights.numpy()[0] == 9 and (weights.size, weights.nbytes, len(weights)) == (6, 24, 6)
    assert weights.dtype == trt.float32
    by_address = trt.Weights(trt.float32, array.ctypes.data, 6)
    assert by_address.numpy().tolist() == array.reshape(-1).tolist()
    empty = trt.Weights(trt.int8)
    assert (empty.dtype, empty.size) == (trt.int8, 0) and trt.Weights().dtype == trt.float32
    bf16 = trt.Weights(trt.bfloat16, array.ctypes.data, 12)
    assert bf16.nbytes == 24 and bf16.numpy() is bf16  # numpy has no such type
    with pytest.raises(TypeError):
        trt.Weights(array.astype(np.complex64))


def test_host_memory_is_a_buffer() -> None:
    memory = trt.IHostMemory(b"abc")
    file = io.BytesIO()
    file.write(memory)
    assert file.getvalue() == b"abc" == bytes(memory) and memory.nbytes == 3
    assert np.frombuffer(memory, np.uint8).tolist() == [97, 98, 99]


def test_logger_prints_what_is_severe_enough(capfd: pytest.CaptureFixture[str]) -> None:
    logger = trt.Logger(trt.Logger.WARNING)
    logger.log(trt.Logger.INFO, "quiet")
    logger.log(trt.ILogger.WARNING, "loud")
    logger.min_severity = trt.Logger.VERBOSE
    logger.log(trt.Logger.VERBOSE, "all")
    out = capfd.readouterr().out.splitlines()
    assert len(out) == 2 and re.fullmatch(
        r"\[\d\d/\d\d/\d{4}-[\d:]{8}\] \[TRT\] \[W\] loud", out[0]
    )
    assert out[1].endswith("[TRT] [V] all")


def test_loggers_begin_as_the_base_does() -> None:
    class Bare(trt.ILogger):
        def __init__(self) -> None:
            return None

    class Printer(trt.Logger):
        def __init__(self) -> None:
            return None

    class Good(trt.Logger):
        pass

    text = r"__init__\(\) must be called when overriding __init__"
    with pytest.raises(TypeError, match=r"ILogger\." + text):
        Bare()
    with pytest.raises(TypeError, match=r"tensorrt\.Logger\." + text):
        Printer()
    assert Good(trt.Logger.INFO).min_severity is trt.Logger.INFO


def test_with_is_accepted_and_warned_about() -> None:
    with pytest.warns(DeprecationWarning), trt.Logger() as logger:
        assert isinstance(logger, trt.Logger)


def test_the_compiler_is_not_imported_before_it_is_named() -> None:
    code = (
        "import sys, braze.tensorrt; print([m for m in ('onnx', 'llvmlite') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_no_module_of_the_package_takes_a_name_of_the_api() -> None:
    modules = {m.name for m in pkgutil.iter_modules(trt.__path__)}
    assert not modules & set(trt.__all__)
