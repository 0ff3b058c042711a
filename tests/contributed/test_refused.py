"""Ops of com.microsoft that are not imported, and what their refusal says to do."""

from __future__ import annotations

import re

import numpy as np
import pytest

from braze.core.errors import UnsupportedOpError
from braze.frontend.onnx.importer import import_network
from braze.ops.catalog import IMPORTERS, REMEDIES
from tests.contributed.peer import node_model


@pytest.mark.parametrize(("domain", "op"), sorted(REMEDIES))
def test_refusals_say_what_to_do(domain: str, op: str) -> None:
    assert (domain, op) not in IMPORTERS
    inputs = [np.zeros((1, 3), "f4"), np.zeros((1, 2), "i4")]
    model = node_model(op, inputs[: 1 if domain == "ai.onnx.ml" else 2], domain=domain)
    with pytest.raises(UnsupportedOpError, match=re.escape(REMEDIES[domain, op])):
        import_network(model)
