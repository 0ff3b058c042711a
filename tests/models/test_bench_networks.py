"""The benchmark networks, where a folder of them is given in BRAZE_BENCH (they are large)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import braze
from braze.cli.feeds import random_array
from braze.core.dtypes import from_onnx
from braze.frontend.onnx.importer import import_model
from braze.ops.evaluator import evaluate
from tests.distances import assert_close

FOLDER = os.environ.get("BRAZE_BENCH", "")
FILES = sorted(Path(FOLDER).glob("*.onnx")) if FOLDER else []
# these have no layer that amplifies rounding, so the error stays near that of one product
TOLERANCE = 1e-5
# the worst element (see tests/distances.py): twenty times the whole is ample for rounding, and a
# hundredth of what one wrong element is off by
WORST = 2e-4


def make_feed(path: Path) -> dict[str, np.ndarray[Any, Any]]:
    """Random inputs of the declared shapes."""
    graph = onnx.load(path, load_external_data=False).graph
    rng = np.random.default_rng(0)
    feed = {}
    for i in graph.input:
        tensor = i.type.tensor_type
        shape = tuple(d.dim_value or 1 for d in tensor.shape.dim)
        feed[i.name] = random_array(from_onnx(tensor.elem_type, i.name), shape, rng)
    return feed


@pytest.mark.skipif(not FILES, reason="BRAZE_BENCH names no folder with benchmark networks")
@pytest.mark.parametrize("path", FILES or [Path("none")], ids=lambda p: p.stem)
def test_error_is_that_of_rounding(path: Path) -> None:
    feed = make_feed(path)
    shapes = {n: x.shape for n, x in feed.items()}
    got = braze.build(path, shapes=shapes, threads=2)(feed)
    references = {"float64": evaluate(import_model(path, shapes=shapes), feed, float64=True)}
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    references["onnxruntime"] = dict(zip(names, session.run(names, feed), strict=True))
    for want in references.values():
        assert_close(got, want, TOLERANCE, WORST)
