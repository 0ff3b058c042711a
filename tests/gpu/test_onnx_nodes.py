"""The onnx package's backend tests on the GPU: the cases that CPU engines run, run here too."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import pytest

from braze.api import build
from braze.codegen.cuda import backend
from braze.frontend.onnx.records import ModelRecord
from braze.onnx_backend import BrazeBackend, Runner
from tests.onnx_backend.cases import Case, load_cases
from tests.onnx_backend.test_onnx_nodes import check_case


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
    check_case(case, CudaEngineBackend)
