"""cuDNN in the process that builds: engines for a convolution, their plans as text, calls to time.

Through the backend API; numbers are those of cudnn_graph.h,
https://docs.nvidia.com/deeplearning/cudnn/backend/latest/api/cudnn-graph-library.html
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from threading import local
from typing import Any, Final

from braze.codegen.cuda.driver import Driver
from braze.codegen.cuda.libraries.convolution import (
    BETWEEN,
    BIAS,
    RESIDUAL,
    Convolution,
    W,
    X,
    Y,
)
from braze.core.dtypes import BF16, F16, F32, DType
from braze.core.errors import CompileError, ExecutionError, TargetError
from braze.runtime.libraries import open_library

DATA: Final[Mapping[DType, int]] = {F32: 0, F16: 2, BF16: 9}  # cudnnDataType_t
# cudnnBackendDescriptorType_t
POINTWISE, CONVOLUTION, ENGINE, CONFIG, HEURISTICS, PLAN = 0, 1, 2, 3, 4, 5
KNOB, FORWARD, OPERATION, GRAPH, PACK, TENSOR = 7, 10, 13, 15, 16, 17
# cudnnBackendAttributeType_t
HANDLE_T, DATA_T, BOOL_T, INT_T, FLOAT_T, POINTER_T, MODE_T = 0, 1, 2, 3, 4, 6, 7
HEURISTIC_T, KNOB_T, NAN_T, NOTE_T, POINTWISE_T, DESCRIPTOR_T, CHAR_T = 8, 9, 10, 11, 14, 15, 24
MODES: Final = (3, 1, 2)  # cudnnBackendHeurMode_t: A, B, fallback
ADD, RELU = 0, 100  # cudnnPointwiseMode_t
# cudnnBackendNumericalNote_t: inputs or sums of less precision, transforms, sums in no fixed order
UNWANTED: Final = frozenset({1, 2, 3, 4, 5, 6, 7, 8})
ALIGNMENT: Final = 16
WORKSPACE_LIMIT: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class Engine:
    """A choice of the library: the number of an engine, and "type=value" of its knobs."""

    number: int
    knobs: str


class _Descriptor:
    """A descriptor of the backend API, destroyed with this object."""

    def __init__(self, library: CuDnn, kind: int, handle: ctypes.c_void_p | None = None) -> None:
        self.library = library
        self.handle = ctypes.c_void_p()
        self._kept: list[Any] = []  # what it refers to
        library.call("cudnnBackendCreateDescriptor", kind, ctypes.byref(self.handle))

    def __del__(self) -> None:
        if getattr(self, "handle", None):
            self.library.functions.cudnnBackendDestroyDescriptor(self.handle)

    def set(self, attribute: int, kind: int, values: Any) -> _Descriptor:
        """Set an attribute to a ctypes value or array."""
        count = len(values) if isinstance(values, ctypes.Array) else 1
        self.library.call(
            "cudnnBackendSetAttribute", self.handle, attribute, kind, ctypes.c_int64(count),
            ctypes.byref(values),
        )  # fmt: skip
        return self

    def ints(self, attribute: int, *values: int) -> _Descriptor:
        return self.set(attribute, INT_T, (ctypes.c_int64 * len(values))(*values))

    def number(self, attribute: int, kind: int, value: int) -> _Descriptor:
        """An enumeration."""
        return self.set(attribute, kind, ctypes.c_int(value))

    def refer(self, attribute: int, *others: _Descriptor) -> _Descriptor:
        self._kept += others
        handles = (ctypes.c_void_p * len(others))(*[o.handle.value for o in others])
        return self.set(attribute, DESCRIPTOR_T, handles)

    def done(self) -> _Descriptor:
        self.library.call("cudnnBackendFinalize", self.handle)
        return self

    def get(self, attribute: int, kind: int, values: Any) -> int:
        """Fill a ctypes value or array; how many there are."""
        count = len(values) if isinstance(values, ctypes.Array) else 1
        found = ctypes.c_int64()
        self.library.call(
            "cudnnBackendGetAttribute", self.handle, attribute, kind, ctypes.c_int64(count),
            ctypes.byref(found), ctypes.byref(values),
        )  # fmt: skip
        return found.value

    def count(self, attribute: int, kind: int) -> int:
        found = ctypes.c_int64()
        self.library.call(
            "cudnnBackendGetAttribute", self.handle, attribute, kind, ctypes.c_int64(0),
            ctypes.byref(found), None,
        )  # fmt: skip
        return found.value

    def integer(self, attribute: int) -> int:
        value = ctypes.c_int64()
        self.get(attribute, INT_T, value)
        return value.value

    def children(self, attribute: int, kind: int, most: int) -> list[_Descriptor]:
        """Descriptors that this one gives."""
        made = [_Descriptor(self.library, kind) for _ in range(most)]
        if not made:
            return []
        handles = (ctypes.c_void_p * most)(*[m.handle.value for m in made])
        count = self.get(attribute, DESCRIPTOR_T, handles)
        return made[:count]


class CuDnn:
    """The library, with a handle for each thread on the primary context of device 0."""

    def __init__(self, functions: ctypes.CDLL) -> None:
        self.functions = functions
        functions.cudnnGetVersion.restype = ctypes.c_size_t
        functions.cudnnGetErrorString.restype = ctypes.c_char_p
        self.version = int(functions.cudnnGetVersion())
        self._driver = Driver()
        self._of_thread = local()
        self.handle()

    def handle(self) -> ctypes.c_void_p:
        """The handle of this thread."""
        found = getattr(self._of_thread, "handle", None)
        if found is None:
            self._driver.bind()
            found = self._of_thread.handle = ctypes.c_void_p()
            self.call("cudnnCreate", ctypes.byref(found))
        assert isinstance(found, ctypes.c_void_p)
        return found

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function; raises CompileError, as most refuse what the library does not do."""
        status = getattr(self.functions, name)(*arguments)
        if status:
            text = self.functions.cudnnGetErrorString(status).decode()
            raise CompileError(f"cuDNN's {name} does not take a convolution ({text}, {status})")

    def engines(self, convolution: Convolution, most: int) -> list[Engine]:
        """What the heuristics offer, their best guess first; none where the library cannot."""
        self._driver.bind()
        found: dict[Engine, None] = {}
        try:
            graph = self._graph(convolution)
        except CompileError:
            return []
        for mode in MODES:
            if len(found) >= most:
                break
            try:
                guess = _Descriptor(self, HEURISTICS)
                guess.refer(201, graph).number(200, HEURISTIC_T, mode).done()
                configs = guess.children(202, CONFIG, guess.count(202, DESCRIPTOR_T))
            except CompileError:
                continue
            for config in configs:
                engine = self._engine_of(config)
                if engine is not None and len(found) < most:
                    found[engine] = None
        return list(found)

    def _engine_of(self, config: _Descriptor) -> Engine | None:
        """A configuration as text; None for one whose sums have less precision or no order."""
        (engine,) = config.children(300, ENGINE, 1)
        notes = (ctypes.c_int * 32)()
        count = engine.get(1303, NOTE_T, notes)
        if UNWANTED & set(notes[:count]):
            return None
        knobs = []
        for choice in config.children(302, KNOB, config.count(302, DESCRIPTOR_T)):
            kind = ctypes.c_int()
            choice.get(600, KNOB_T, kind)
            knobs.append(f"{kind.value}={choice.integer(601)}")
        return Engine(engine.integer(1301), " ".join(knobs))

    def plan(self, convolution: Convolution, engine: Engine) -> tuple[str, int]:
        """The plan as text, and its workspace; raises CompileError."""
        self._driver.bind()
        graph = self._graph(convolution)
        chosen = _Descriptor(self, ENGINE).refer(1300, graph).ints(1301, engine.number).done()
        knobs = []
        for knob in engine.knobs.split():
            kind, value = knob.split("=")
            choice = _Descriptor(self, KNOB).number(600, KNOB_T, int(kind)).ints(601, int(value))
            knobs.append(choice.done())
        config = _Descriptor(self, CONFIG).refer(300, chosen)
        if knobs:
            config.refer(302, *knobs)
        plan = _Descriptor(self, PLAN).set(400, HANDLE_T, self.handle())
        plan.refer(401, config.done()).done()
        text = ctypes.create_string_buffer(plan.count(405, CHAR_T))
        plan.get(405, CHAR_T, text)
        return text.raw.rstrip(b"\0").decode(), plan.integer(402)

    def _graph(self, c: Convolution) -> _Descriptor:
        """The operations of a convolution and its epilogue."""
        y = self._tensor(Y, c.dtype, (c.batch, c.out_channels, *c.out_size))
        x = self._tensor(X, c.dtype, (c.batch, c.channels, *c.size))
        w = self._tensor(W, c.dtype, (c.out_channels, c.channels // c.groups, *c.kernel))
        after: list[tuple[int, _Descriptor | None]] = []
        if c.bias >= 0:
            after.append((ADD, self._tensor(BIAS, c.bias_type, (1, c.out_channels, 1, 1))))
        if c.residual >= 0:
            residual = self._tensor(RESIDUAL, c.dtype, (c.batch, c.out_channels, *c.out_size))
            after.append((ADD, residual))
        if c.activation == "relu":
            after.append((RELU, None))
        shape = (c.batch, c.out_channels, *c.out_size)
        between = [self._tensor(BETWEEN + i, F32, shape, True) for i in range(len(after))]
        results = [*between, y]
        window = _Descriptor(self, CONVOLUTION).number(100, DATA_T, DATA[F32])
        window.number(101, MODE_T, 1).ints(106, 2).ints(102, *c.dilations).ints(103, *c.strides)
        window.ints(105, *c.pads[:2]).ints(104, *c.pads[2:]).done()
        forward = _Descriptor(self, FORWARD)
        forward.refer(702, window).refer(704, x).refer(703, w).refer(705, results[0])
        forward.set(700, FLOAT_T, ctypes.c_float(1)).set(701, FLOAT_T, ctypes.c_float(0))
        operations = [forward.done()]
        for i, (mode, operand) in enumerate(after):
            how = _Descriptor(self, POINTWISE).number(0, POINTWISE_T, mode)
            how.number(1, DATA_T, DATA[F32])
            if mode == RELU:
                how.number(2, NAN_T, 1)
            step = _Descriptor(self, OPERATION).refer(750, how.done()).refer(751, results[i])
            if operand is not None:
                step.refer(752, operand)
            operations.append(step.refer(753, results[i + 1]).done())
        graph = _Descriptor(self, GRAPH).set(800, HANDLE_T, self.handle())
        return graph.refer(801, *operations).done()

    def _tensor(
        self, number: int, dtype: DType, shape: tuple[int, ...], between: bool = False
    ) -> _Descriptor:
        """A tensor whose shape is (n, c, h, w), channels last in memory."""
        _, c, h, w = shape
        t = _Descriptor(self, TENSOR).ints(906, number).number(901, DATA_T, DATA[dtype])
        t.ints(902, *shape).ints(903, h * w * c, 1, w * c, c).ints(900, ALIGNMENT)
        if between:
            t.set(907, BOOL_T, ctypes.c_bool(True))
        return t.done()

    def prepare(self, text: bytes, tensors: Sequence[tuple[int, int]]) -> PreparedConvolution:
        """A plan that can be run; tensors: number and slot of each."""
        self._driver.bind()
        return PreparedConvolution(self, text, tensors)


class PreparedConvolution:
    """A plan with its tensors; `run` enqueues it."""

    def __init__(self, library: CuDnn, text: bytes, tensors: Sequence[tuple[int, int]]) -> None:
        self._library, self._tensors = library, tensors
        self._plan = _Descriptor(library, PLAN).set(400, HANDLE_T, library.handle())
        self._plan.set(405, CHAR_T, ctypes.create_string_buffer(text, len(text))).done()

    def run(self, addresses: Sequence[int], workspace: int, stream: ctypes.c_void_p | None) -> None:
        """Enqueue; addresses: of the kernel's inputs, then its output."""
        numbers = [n for n, _ in self._tensors]
        pointers = [addresses[slot] for _, slot in self._tensors]
        pack = _Descriptor(self._library, PACK).ints(1000, *numbers)
        pack.set(1001, POINTER_T, (ctypes.c_void_p * len(pointers))(*pointers))
        pack.set(1003, POINTER_T, ctypes.c_void_p(workspace)).done()
        handle = self._library.handle()
        self._library.call("cudnnSetStream", handle, stream)
        self._library.call("cudnnBackendExecute", handle, self._plan.handle, pack.handle)


@cache
def find_cudnn() -> CuDnn | None:
    """The library here, or None where there is none or no GPU."""
    functions = open_library("libcudnn.so.9")
    if functions is None:
        return None
    try:
        return CuDnn(functions)
    except (OSError, TargetError, ExecutionError, MemoryError, CompileError):
        return None
