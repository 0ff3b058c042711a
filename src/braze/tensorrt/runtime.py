"""Runtime: engines from their bytes."""

from __future__ import annotations

import importlib
from typing import Any

import braze.runtime.engine as core
from braze.core.errors import EngineFormatError
from braze.tensorrt.allocator import IGpuAllocator
from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.engine import ICudaEngine
from braze.tensorrt.enums_runtime import TempfileControlFlag
from braze.tensorrt.logger import ILogger
from braze.tensorrt.plugin_runs import unmarked
from braze.tensorrt.recorder import RAISED, Reporter, Reporting
from braze.tensorrt.stream_io import IStreamReader, IStreamReaderV2, read_all

WHERE = "IRuntime::deserializeCudaEngine"
_READERS = (IStreamReader, IStreamReaderV2)


class Runtime(Reporting, Scoped):
    """Makes engines of bytes."""

    def __init__(self, logger: ILogger) -> None:
        if not isinstance(logger, ILogger):
            raise TypeError(f"Runtime: an ILogger is expected, not {logger!r}")
        self._reporter = Reporter(logger)
        self.DLA_core = -1
        self.max_threads = 1
        self.gpu_allocator: IGpuAllocator | None = None
        self.engine_host_code_allowed = False
        self.temporary_directory: str | None = None
        self.tempfile_control_flags = 1 << int(
            TempfileControlFlag.ALLOW_IN_MEMORY_FILES
        ) | 1 << int(TempfileControlFlag.ALLOW_TEMPORARY_FILES)

    @property
    def logger(self) -> ILogger:
        """Where its messages go."""
        return self._reporter.logger

    @property
    def num_DLA_cores(self) -> int:
        """There are none."""
        return 0

    def deserialize_cuda_engine(
        self,
        serialized_engine: Any = None,
        *,
        stream_reader: IStreamReader | None = None,
        stream_reader_v2: IStreamReaderV2 | None = None,
    ) -> ICudaEngine | None:
        """The engine in bytes, or in what a stream reader gives; None with an error reported."""
        given = (serialized_engine, stream_reader, stream_reader_v2)
        source = _source(next((g for g in given if g is not None), None))
        try:
            data = read_all(source) if isinstance(source, _READERS) else _bytes_of(source)
            engine = core.Engine.from_bytes(unmarked(data))
            return ICudaEngine(engine, self.logger, self._reporter.recorder)
        except RAISED as e:  # of braze, of a stream reader, or of what makes plugins
            self._reporter.raised(WHERE, e)
            return None

    def deserialize_engine(self, serialized_engine: Any) -> ICudaEngine | None:
        """The same, as 9.1 had it."""
        return self.deserialize_cuda_engine(serialized_engine)

    def get_plugin_registry(self) -> Any:
        """The registry of plugins."""
        home = importlib.import_module("braze.tensorrt")
        return home.get_plugin_registry()

    def load_runtime(self, path: str) -> Runtime | None:
        """Engines of braze hold no runtime of their own, and need no other than this one."""
        self._reporter.wrong(
            "IRuntime::loadRuntime", f"{path}: engines need no other runtime than this one."
        )
        return None


def _source(given: Any) -> IStreamReader | IStreamReaderV2 | memoryview:
    if isinstance(given, _READERS):
        return given
    try:
        return memoryview(given)
    except TypeError:
        raise TypeError(
            "deserialize_cuda_engine: bytes or a stream reader are expected, not "
            f"{type(given).__name__}"
        ) from None


def _bytes_of(view: memoryview) -> bytes | memoryview:
    if view.nbytes == 0:
        raise EngineFormatError("the serialized engine is empty")
    return view.cast("B") if view.contiguous and view.ndim else view.tobytes()
