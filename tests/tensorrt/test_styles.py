"""Scripts in the styles of four major releases, run by `braze shim` on a CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

import braze
from tests.tensorrt.engines import scale_model, scale_reference

SCRIPTS = Path(__file__).with_name("scripts")
STYLES = ("style_8", "style_10", "style_11")  # release 7 is that of `listings.py`
# each as the main program, one after the other: most of the time is that of the imports
RUN = """
import runpy, sys
for script, output in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
    sys.argv[1:] = ["model.onnx", "x.npy", output]
    runpy.run_path(script, run_name="__main__")
"""


def test_scripts_run_as_they_are(tmp_path: Path) -> None:
    x = np.random.default_rng(2).standard_normal((3, 4)).astype(np.float32)
    onnx.save(scale_model(), tmp_path / "model.onnx")
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "run.py").write_text(RUN)
    given = [part for s in STYLES for part in (str(SCRIPTS / f"{s}.py"), f"{s}.npy")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "braze", "shim", "run.py", *given],
        capture_output=True, text=True, timeout=240, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(braze.__file__).parent.parent)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    for style in STYLES:
        # float32 sums of 4 products and a constant, of numbers below 10
        np.testing.assert_allclose(
            np.load(tmp_path / f"{style}.npy"), scale_reference(x), rtol=1e-5, atol=1e-5
        )
