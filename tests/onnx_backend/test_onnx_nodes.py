"""The onnx package's backend tests, through the reference ops and through built engines.

A case that braze refuses must be listed in refused.txt, a listed case must be refused, and every
other case must give the expected numbers.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping

import pytest

from braze.api import build
from braze.core.errors import DTypeError, UnsupportedOpError
from braze.frontend.onnx.importer import import_model
from braze.frontend.onnx.records import ModelRecord
from braze.onnx_backend import BrazeBackend, Runner, compile_engine
from braze.ops.evaluator import evaluate
from tests.onnx_backend.cases import (
    Case,
    difference,
    expected_refusal,
    load_cases,
    load_refusals,
    needs_content,
)


def compile_reference(model: ModelRecord, shapes: Mapping, values: Mapping) -> Runner:
    """The numpy meaning of the imported graph."""
    graph = import_model(model, shapes=shapes, values=values)
    return lambda arrays: evaluate(graph, arrays)


class ReferenceBackend(BrazeBackend):
    compile_model = staticmethod(compile_reference)


class EngineBackend(BrazeBackend):
    compile_model = staticmethod(compile_engine)


class ReferenceEngineBackend(BrazeBackend):
    """Engines of the reference target: the plan, its memory and kernels, in numpy."""

    @staticmethod
    def compile_model(model: ModelRecord, shapes: Mapping, values: Mapping) -> Runner:
        return build(model, target="reference", shapes=shapes, values=values, optimization_level=2)


HAS_ENGINE = importlib.util.find_spec("braze.runtime.engine") is not None
BACKENDS = {"reference": ReferenceBackend, "engine": EngineBackend}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> type[BrazeBackend]:
    if request.param == "engine" and not HAS_ENGINE:
        pytest.skip("the engine runtime is not built")
    return BACKENDS[request.param]


@pytest.mark.parametrize("case", load_cases(), ids=lambda c: c.name)
def test_case(case: Case, backend: type[BrazeBackend]) -> None:
    check_case(case, backend)


@pytest.mark.parametrize("case", load_cases()[::4], ids=lambda c: c.name)
def test_a_share_on_reference_engines(case: Case) -> None:
    check_case(case, ReferenceEngineBackend)


def check_case(case: Case, backend: type[BrazeBackend]) -> None:
    """Refused as listed, or the expected numbers."""
    refusal = expected_refusal(case.name)
    try:
        prepared = backend.prepare(case.model)
        results = [prepared.run(list(inputs)) for inputs, _ in case.data_sets]
    except (UnsupportedOpError, DTypeError) as e:
        assert refusal is not None, f"refused but not listed in refused.txt: {e}"
        return
    assert refusal is None, f"runs, but refused.txt lists it ({refusal}): remove the line"
    asked, listed = prepared.content_names, needs_content(case.name)
    assert bool(asked) == listed, f"built for the content of {set(asked)}; content.txt: {listed}"
    for actual, (_, expected) in zip(results, case.data_sets, strict=True):
        assert len(actual) == len(expected)
        for i, (a, e) in enumerate(zip(actual, expected, strict=True)):
            wrong = difference(case.name, a, e)
            assert wrong is None, f"output {i}: {wrong}"


def test_every_line_of_the_list_matches_a_case() -> None:
    used = {expected_refusal(c.name) and c.name for c in load_cases()}
    for pattern, reason in load_refusals():
        assert reason, f"{pattern}: give a reason"
        alone = [n for n in used if n is not None and _first_pattern(n) == pattern]
        assert alone, f"{pattern}: matches no case that an earlier line does not match"


def _first_pattern(name: str) -> str | None:
    from fnmatch import fnmatchcase

    return next((p for p, _ in load_refusals() if fnmatchcase(name, p)), None)
