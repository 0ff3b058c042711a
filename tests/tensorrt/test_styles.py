"""Scripts in the styles of four major releases, run by `braze shim` on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

import braze
from tests.tensorrt.engines import scale_model, scale_reference

SCRIPTS = Path(__file__).with_name("scripts")


@pytest.mark.parametrize("style", ["style_8", "style_10", "style_11"])
def test_a_script_runs_as_it_is(style: str, tmp_path: Path) -> None:
    """Release 7 is that of `listings.py`."""
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    onnx.save(scale_model(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "braze", "shim", str(SCRIPTS / f"{style}.py"),
         "model.onnx", "x.npy", "y.npy"],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(braze.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    # float32 sums of 4 products and a constant, of numbers below 10
    np.testing.assert_allclose(
        np.load(tmp_path / "y.npy"), scale_reference(x), rtol=1e-5, atol=1e-5
    )
