"""`braze tune` on a card: an engine of estimates becomes one of measured tactics."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import braze
from braze.cli.main import main
from braze.engine.read import read_file
from braze.engine.write import write_file
from tests.gpu.families import card_target
from tests.gpu.test_engines import DYNAMIC, TOLERANCE, conv_feed
from tests.meta import small_models


def test_an_engine_of_estimates_is_tuned(tmp_path: Path) -> None:
    model, path = tmp_path / "net.onnx", tmp_path / "net.engine"
    onnx.save(small_models.conv_net(), model)
    plan = braze.compile(str(model), target=card_target(), shapes=DYNAMIC, optimization_level=2)
    write_file(plan, path)
    feed = conv_feed(3)
    want = braze.load(path)(feed)["y"]
    cache = tmp_path / "net.times"
    assert main(["tune", str(path), f"--onnx={model}", f"--timingCacheFile={cache}"]) == 0
    tuned = read_file(path)
    assert cache.exists() and tuned.profiles[0].ranges == plan.profiles[0].ranges
    assert any(d["kind"] == "tactic" for d in tuned.record["decisions"])
    got = braze.load(path)(feed)["y"]
    np.testing.assert_allclose(got, want, rtol=TOLERANCE, atol=TOLERANCE)
