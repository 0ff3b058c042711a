"""What `braze exec` does with the outputs of the last run: prints, files, comparisons."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np

import braze
from braze.cli.contents import read_contents
from braze.cli.exec_log import Log
from braze.cli.exec_options import Accuracy, ExecOptions
from braze.cli.report import outputs_json, shape_string, write_json
from braze.core.dtypes import ALL_DTYPES
from braze.core.errors import BindingError, ExecutionError
from braze.core.files import replacing

Array = np.ndarray[Any, Any]


def report_outputs(
    o: ExecOptions, engine: braze.Engine, feed: Mapping[str, Array], outputs: Mapping[str, Array],
    log: Log,
) -> None:  # fmt: skip
    """Everything that was asked for; raises ExecutionError where outputs are not as expected."""
    if o.dump_output:
        log.say("Output Tensors:")
        for name, array in outputs.items():
            log.say(f"{name}: ({shape_string(array.shape)})")
            log.say(np.array2string(array, threshold=100, edgeitems=4))
    if o.export_output:
        write_json(o.export_output, outputs_json(outputs))
    if o.dump_raw:
        for side, arrays in (("input", feed), ("output", outputs)):
            for name, array in arrays.items():
                path = raw_name(name, side, array)
                log.say(f"Writing file for {side} tensor {name} to {path}")
                _write_raw(path, array)
    if o.debug_files or o.debug_formats:
        _debug(o, engine, feed, log)
    if o.accuracy.files:
        check_accuracy(o.accuracy, outputs, log)


def raw_name(name: str, side: str, array: Array) -> str:
    """The file of a tensor's raw bytes, as trtexec calls it: what it is stands in the name."""
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    dims = ".".join(map(str, array.shape)) or "scalar"
    return f"{safe}.{side}.{dims}.{_type_name(array)}.raw"


def _type_name(array: Array) -> str:
    names = {"float32": "Float", "float16": "Half", "bfloat16": "BFloat16", "int8": "Int8",
             "int32": "Int32", "int64": "Int64", "uint8": "UInt8", "bool": "Bool"}  # fmt: skip
    return names.get(str(array.dtype), str(array.dtype))


def _write_raw(path: str, array: Array) -> None:
    with replacing(path) as file:
        file.write(np.ascontiguousarray(array).tobytes())


def _debug(o: ExecOptions, engine: braze.Engine, feed: Mapping[str, Array], log: Log) -> None:
    known = [t.name for t in engine.plan.debug]
    missing = [n for n in o.debug_files if n not in known]
    if missing:
        raise BindingError(
            f"--saveDebugTensors names {missing[0]!r}, which is no debug tensor of the engine; "
            "build with --markDebug"
        )
    wanted = known if o.debug_formats else list(o.debug_files)
    tensors = {n: a for n, a in engine(feed, debug=wanted).items() if n in wanted}
    for name, path in o.debug_files.items():
        _write_raw(path, tensors[name])
        log.say(f"Saved debug tensor {name} to {path}")
    for name, array in tensors.items():
        for form in o.debug_formats:
            _save_debug(name, array, form, log)


def _save_debug(name: str, array: Array, form: str, log: Log) -> None:
    safe = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if form == "summary":
        values = array.astype(np.float64) if array.size else np.zeros(1)
        log.say(
            f"Debug tensor {name}: ({shape_string(array.shape)}) {array.dtype}, min = "
            f"{values.min():.6g}, max = {values.max():.6g}, mean = {values.mean():.6g}"
        )
    elif form == "string":
        log.say(f"Debug tensor {name}:", np.array2string(array, threshold=1000))
    elif form == "numpy":
        with replacing(f"{safe}.npy") as file:
            np.save(file, array, allow_pickle=False)
    else:
        _write_raw(f"{safe}.raw", array)


def check_accuracy(accuracy: Accuracy, outputs: Mapping[str, Array], log: Log) -> None:
    """Raise ExecutionError where an output is further from its file than allowed."""
    failed = []
    for name, content in read_contents(accuracy.files).items():
        if name not in outputs:
            raise BindingError(f"--loadRefOutputs names {name!r}; outputs are {', '.join(outputs)}")
        got = outputs[name]
        dtype = next(d for d in ALL_DTYPES if d.numpy == got.dtype)
        want = content.array(dtype, got.shape)
        lost = loss(accuracy, got, want)
        log.say(f"Accuracy of output {name}: {accuracy.algorithm} loss = {lost:.6g}")
        if not lost <= accuracy.threshold:
            failed.append(f"{name} ({lost:.6g})")
    if failed:
        raise ExecutionError(
            f"outputs differ from --loadRefOutputs by more than {accuracy.threshold:g} "
            f"({accuracy.algorithm}): {', '.join(failed)}"
        )


def loss(accuracy: Accuracy, got: Array, want: Array) -> float:
    """How far an output is off: l0 the part of elements outside of the tolerances, l1 and l2 means,
    lInf the most, cos 1 minus the cosine.
    """
    a, b = got.astype(np.float64).ravel(), want.astype(np.float64).ravel()
    if not a.size:
        return 0.0
    off = np.abs(a - b)
    if accuracy.algorithm == "l0":
        return float(np.mean(~(off <= accuracy.atol + accuracy.rtol * np.abs(b))))
    if accuracy.algorithm == "l1":
        return float(off.mean())
    if accuracy.algorithm == "l2":
        return float(np.sqrt(np.mean(off * off)))
    if accuracy.algorithm == "lInf":
        return float(off.max())
    norms = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1 - float(a @ b) / norms if norms else float(off.max())
