"""Reference engines: plans that run in numpy, behind the face of `braze.Engine`."""

from __future__ import annotations

import os

import numpy as np
import numpy.typing as npt

from braze.codegen.reference.context import ReferenceContext
from braze.codegen.reference.loaded import LoadedReference
from braze.codegen.reference.target import FLOAT64, ReferenceTarget
from braze.core.files import path_text
from braze.engine.read import from_bytes, read_file
from braze.engine.write import to_array
from braze.runtime.engine import Engine
from braze.runtime.native import thread_count


class ReferenceEngine(Engine):
    """Runs a plan of the reference backend; the native runtime is used for streams only.

    Everything is checked when it is loaded: bounds, checksums, and the text of every kernel.
    """

    def __init__(self, image: npt.NDArray[np.uint8]) -> None:
        plan = from_bytes(image.data)
        self._image = image
        float64 = plan.target.about == ReferenceTarget(FLOAT64).describe()
        self._reference = LoadedReference(plan, float64)
        self._free_contexts = []

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        threads: int = 0,
        weight_budget: int | None = None,
    ) -> ReferenceEngine:
        """The engine in the file at `path`; threads are checked and not used."""
        thread_count(threads)
        return cls(to_array(read_file(path_text(path))))

    @classmethod
    def _from_image(
        cls, image: npt.NDArray[np.uint8], threads: int, weight_budget: int | None = None
    ) -> ReferenceEngine:
        thread_count(threads)
        return cls(image)

    def create_context(
        self, profile: int | None = None, *, priority: int = 0, extra_streams: int = -1
    ) -> ReferenceContext:
        """See Engine.create_context."""
        return ReferenceContext(self._reference, profile)

    @property
    def threads(self) -> int:
        """See Engine.threads; every run is on the caller's thread."""
        return self._reference.plan.threads

    @property
    def on_gpu(self) -> bool:
        """See Engine.on_gpu."""
        return False

    def verify(self) -> None:
        """See Engine.verify; done when the engine was loaded."""

    def image(self) -> npt.NDArray[np.uint8]:
        """See Engine.image."""
        image: npt.NDArray[np.uint8] = self._image.view()
        image.flags.writeable = False
        return image
