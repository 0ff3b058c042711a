"""`python -m tests.zoo.export`: the process that exports, run by a Python that has torch & co.

Makes FOLDER/models/GROUP.NET.FORM.onnx and, beside it, .npz with the inputs of every run and the
network's own outputs, where its maker gives them.
"""

from __future__ import annotations

import contextlib
import importlib
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.zoo.families import load
from tests.zoo.net import Array, Net, draw
from tests.zoo.server import Job, serve


def export(job: Job) -> dict[str, Any]:
    """Export one form of one network, and what it is made from."""
    nets = {n.name: n for n in load(job["group"])}
    net = nets[job["net"]]
    base, _, change = job["form"].partition("+")
    folder = Path(job["folder"]) / "models"
    stem = f"{job['group']}.{net.name}"
    path = folder / f"{stem}.{base}.onnx"
    if not path.exists() or not path.with_suffix(".npz").exists():
        _export(net, base, path)
    if change:
        from tests.zoo.makers.changes import CHANGES

        target = folder / f"{stem}.{job['form']}.onnx"
        feeds = read(path.with_suffix(".npz"))[0]
        CHANGES[change](path, target, feeds, net)
        shutil.copyfile(path.with_suffix(".npz"), target.with_suffix(".npz"))
    return {"outcome": "exported"}


def _export(net: Net, form: str, path: Path) -> None:
    module, _, function = net.maker.partition(".")
    make = getattr(importlib.import_module(f"tests.zoo.makers.{module}"), function)
    exporter, _, dynamic = form.partition("-")
    feeds = draw(net, bool(dynamic))
    part = path.with_suffix(".part")
    expected = make(net, exporter, bool(dynamic), feeds, part)
    write(path.with_suffix(".npz"), feeds, expected)
    part.rename(path)


def write(path: Path, feeds: list[dict[str, Array]], expected: list[list[Array]]) -> None:
    """Store inputs as "run:name" and outputs as "run=index"."""
    arrays = {f"{i}:{n}": a for i, feed in enumerate(feeds) for n, a in feed.items()}
    arrays |= {f"{i}={k}": a for i, run in enumerate(expected) for k, a in enumerate(run)}
    np.savez(path, **arrays)  # type: ignore[arg-type]


def read(path: Path) -> tuple[list[dict[str, Array]], list[dict[int, Array]]]:
    """The inputs of each run by name, and the outputs by index."""
    feeds: dict[int, dict[str, Array]] = {}
    expected: dict[int, dict[int, Array]] = {}
    with np.load(path) as arrays:
        for key in arrays.files:
            if ":" in key:
                run, name = key.split(":", 1)
                feeds.setdefault(int(run), {})[name] = arrays[key]
            else:
                run, name = key.split("=", 1)
                expected.setdefault(int(run), {})[int(name)] = arrays[key]
    return [feeds[i] for i in sorted(feeds)], [expected.get(i, {}) for i in sorted(feeds)]


if __name__ == "__main__":
    sys.setrecursionlimit(10_000)
    for name in ("torch", "torch.onnx", "onnx", "onnxscript", "transformers"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    serve(export)
