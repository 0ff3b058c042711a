"""The onnx package's backend tests on the GPU: the cases that CPU engines run, run here too, but
for those of refused.txt, which engines of a GPU refuse."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from braze.api import build
from braze.codegen.cuda import backend
from braze.core.errors import CompileError, UnsupportedOpError
from braze.frontend.onnx.records import ModelRecord
from braze.onnx_backend import BrazeBackend, Runner
from tests.onnx_backend.cases import Case, load_cases
from tests.onnx_backend.test_onnx_nodes import check_case

LINES = (Path(__file__).parent / "refused.txt").read_text().splitlines()
REFUSED = frozenset(line for line in LINES if line and not line.startswith("#"))


class CudaEngineBackend(BrazeBackend):
    """Engines of the GPU here."""

    @staticmethod
    def compile_model(model: ModelRecord, shapes: Mapping, values: Mapping) -> Runner:
        # workers that compile take longer to start than a case has to compile
        with pytest.MonkeyPatch.context() as here:
            here.setattr(backend, "FEW", sys.maxsize)
            return build(model, target="cuda", shapes=shapes, values=values, optimization_level=2)


@pytest.mark.parametrize("case", load_cases(), ids=lambda c: c.name)
def test_case(case: Case) -> None:
    if case.name not in REFUSED:
        check_case(case, CudaEngineBackend)
        return
    with pytest.raises((UnsupportedOpError, CompileError)):
        CudaEngineBackend.prepare(case.model).run(list(case.data_sets[0][0]))


def test_every_line_is_a_case() -> None:
    assert {c.name for c in load_cases()} >= REFUSED
