"""The test cases that come with the onnx package, and how results are compared with them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

# "real" is left out: its models must be downloaded
KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted")
REFUSED_FILE = Path(__file__).parent / "refused.txt"
CONTENT_FILE = Path(__file__).parent / "content.txt"

# relative and absolute tolerance by element type. float32: onnx's runner takes rtol 1e-3; sums in
# another order differ by a few hundred ulp of 1.2e-7 at most. float16 and bfloat16: two ulp, since
# the expected values were rounded from another order of operations. Others must be equal.
TOLERANCES = {
    "float64": (1e-7, 1e-9),
    "float32": (1e-4, 1e-5),
    "float16": (2**-9, 1e-4),
    "bfloat16": (2**-6, 1e-3),
}

# the expected values of these cases are literals with four digits
FOUR_DIGITS = {
    "test_averagepool_2d_ceil_last_window_starts_on_pad": 1e-3,
    "test_gridsample_bicubic": 1e-3,
    "test_roialign_aligned_false": 1e-3,
    "test_roialign_aligned_true": 1e-3,
}

# their expected numbers were drawn from numpy's generator: types and shapes can be compared
DRAWN = (
    "test_bernoulli*",
    "test_training_dropout",
    "test_training_dropout_mask",
    "test_training_dropout_default",
    "test_training_dropout_default_mask",
)


@dataclass(frozen=True)
class Case:
    """One model with sets of inputs and expected outputs."""

    name: str
    model: onnx.ModelProto
    data_sets: Sequence[tuple[Sequence[Any], Sequence[Any]]]


@lru_cache(maxsize=1)
def load_cases() -> tuple[Case, ...]:
    """All cases with their data, in the order of the onnx package."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(_case(c) for kind in KINDS for c in load_model_tests(kind=kind))


def _case(case: Any) -> Case:
    if case.model is not None:
        return Case(case.name, case.model, case.data_sets)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    weights = {i.name for i in model.graph.initializer}
    inputs = [i for i in model.graph.input if i.name not in weights]
    data_sets = [
        (list(_read(d, "input", inputs)), list(_read(d, "output", model.graph.output)))
        for d in sorted(folder.glob("test_data_set_*"))
    ]
    return Case(case.name, model, data_sets)


def _read(folder: Path, kind: str, infos: Sequence[onnx.ValueInfoProto]) -> Iterator[Any]:
    for i, info in enumerate(infos):
        if info.type.WhichOneof("value") == "tensor_type":
            data = (folder / f"{kind}_{i}.pb").read_bytes()
            yield numpy_helper.to_array(onnx.TensorProto.FromString(data))
        else:
            yield None


@lru_cache(maxsize=2)
def load_refusals(file: Path = REFUSED_FILE) -> tuple[tuple[str, str], ...]:
    """(pattern, reason) of each line of refused.txt, or of another list."""
    lines = file.read_text().splitlines()
    pairs = [line.partition(":") for line in lines if line.strip() and not line.startswith("#")]
    return tuple((pattern.strip(), reason.strip()) for pattern, _, reason in pairs)


def expected_refusal(name: str) -> str | None:
    """Why the case is refused according to refused.txt, or None."""
    for pattern, reason in load_refusals():
        if fnmatchcase(name, pattern):
            return reason
    return None


def needs_content(name: str) -> bool:
    """Whether content.txt lists the case."""
    return any(fnmatchcase(name, pattern) for pattern, _ in load_refusals(CONTENT_FILE))


def difference(name: str, actual: Any, expected: Any) -> str | None:
    """How a result differs from what case `name` expects, or None.

    dtype and shape must be equal; of numbers that are drawn no more is said.
    """
    if isinstance(expected, onnx.TensorProto):
        expected = numpy_helper.to_array(expected)
    expected = np.asarray(expected)
    if actual.dtype != expected.dtype or actual.shape != expected.shape:
        return f"{actual.dtype}{actual.shape} instead of {expected.dtype}{expected.shape}"
    if any(fnmatchcase(name, pattern) for pattern in DRAWN):
        return None
    if expected.dtype.name not in TOLERANCES:
        is_float = expected.dtype.kind in "fV"  # ml_dtypes' types have kind V
        wide = (a.astype(np.float32) if is_float else a for a in (actual, expected))
        same = np.array_equal(*wide, equal_nan=is_float)
        return None if same else f"{actual.ravel()[:8]} instead of {expected.ravel()[:8]}"
    rtol, atol = TOLERANCES[expected.dtype.name]
    rtol = FOUR_DIGITS.get(name, rtol)
    wide, reference = actual.astype(np.float64), expected.astype(np.float64)
    if np.allclose(wide, reference, rtol=rtol, atol=atol, equal_nan=True):
        return None
    return f"{wide.ravel()[:8]} instead of {reference.ravel()[:8]}"
