"""The three engines of the demo: built once with dynamic shapes, kept in a folder."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import braze
from braze.core.errors import BrazeError
from braze.core.trace import Progress
from ocr.detection import LONG_SIDE, SHORT_SIDE, STEP
from ocr.recognition import DIRECTION_WIDTH, LEAST_WIDTH, MOST_BATCH, MOST_WIDTH, TEXT_HEIGHT

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Network:
    """One network: its file, and the (min, opt, max) shape of its only input."""

    name: str
    file: str
    shapes: tuple[Shape, Shape, Shape]


NETWORKS = (
    Network(
        "detection",
        "ppocrv4_det.onnx",
        ((1, 3, STEP, STEP), (1, 3, SHORT_SIDE, SHORT_SIDE), (4, 3, LONG_SIDE, LONG_SIDE)),
    ),
    Network(
        "direction",
        "ppocr_cls.onnx",
        (
            (1, 3, TEXT_HEIGHT, DIRECTION_WIDTH),
            (4, 3, TEXT_HEIGHT, DIRECTION_WIDTH),
            (MOST_BATCH, 3, TEXT_HEIGHT, DIRECTION_WIDTH),
        ),
    ),
    Network(
        "recognition",
        "ppocrv4_rec.onnx",
        (
            (1, 3, TEXT_HEIGHT, LEAST_WIDTH),
            (4, 3, TEXT_HEIGHT, LEAST_WIDTH),
            (MOST_BATCH, 3, TEXT_HEIGHT, MOST_WIDTH),
        ),
    ),
)


@dataclass(frozen=True)
class LoadedNetwork:
    """A network that runs: `run` maps its input to its output."""

    network: Network
    model: Path
    engine: braze.Engine

    def run(self, x: Array) -> Array:
        """The only output for the only input."""
        (y,) = self.engine({self.input_name: x}).values()
        return np.asarray(y)

    @property
    def input_name(self) -> str:
        """Name of the only input."""
        return self.engine.plan.inputs[0].name


def engine_path(network: Network, model: Path, folder: Path, threads: int | None) -> Path:
    """Where the engine of this model, these shapes and this thread count is kept."""
    key = hashlib.sha256(model.read_bytes())
    key.update(repr((network.shapes, threads, braze.__version__)).encode())
    return folder / f"{network.name}-{key.hexdigest()[:16]}.engine"


def load_network(
    network: Network,
    model: Path,
    folder: Path,
    threads: int | None,
    rebuild: bool,
    progress: Progress | None,
) -> LoadedNetwork:
    """Load the engine from `folder`, building it when it is missing, unusable or `rebuild`."""
    path = engine_path(network, model, folder, threads)
    if path.exists() and not rebuild:
        try:
            return LoadedNetwork(network, model, braze.load(path))
        except BrazeError as e:
            print(f"{path.name} cannot be used and is built again: {e}")
    engine = braze.build(
        model,
        threads=threads,
        shapes={input_name(model): network.shapes},
        timing_cache=str(folder / "timing.cache"),
        progress=progress,
    )
    engine.save(path)
    return LoadedNetwork(network, model, engine)


def input_name(model: Path) -> str:
    """Name of the first input of an ONNX file that is no initializer."""
    import onnx

    graph = onnx.load(model, load_external_data=False).graph
    constants = {t.name for t in graph.initializer}
    return str(next(i.name for i in graph.input if i.name not in constants))


def characters(model: Path) -> list[str]:
    """Class number to character: the recognition model keeps them in its metadata.

    Class 0 is the blank of the decoder, the last one a space.
    """
    import onnx

    properties = onnx.load(model, load_external_data=False).metadata_props
    text = next(p.value for p in properties if p.key == "character")
    return ["", *text.splitlines(), " "]
