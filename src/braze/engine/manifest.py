"""Plan <-> the JSON manifest and record of an engine file.

Everything of a Plan except code and weight bytes is JSON; `record` is a section of its own that
the native runtime skips. Output is ASCII with sorted keys, so equal plans give equal bytes.
Constant input contents are stored as the hexadecimal of their bytes: exact for NaN and -0.0.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from braze.core.dtypes import DType, from_name
from braze.core.errors import DTypeError, EngineFormatError, EngineVersionError
from braze.engine import schema
from braze.engine.plan import (
    SIZE_OPS,
    Binding,
    Buffer,
    BufferRef,
    DebugTensor,
    Guard,
    KernelCode,
    Plan,
    Profile,
    SizeOp,
    Step,
    Weight,
)

T = TypeVar("T")


def dump_json(value: object, what: str) -> bytes:
    """Canonical JSON; raises EngineFormatError when `value` holds something JSON has not."""
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as e:
        raise EngineFormatError(f"the plan's {what} cannot be written as JSON: {e}") from e
    return text.encode("ascii")


def encode_manifest(
    plan: Plan, objects: Sequence[tuple[int, int]], kernel_object: Sequence[int]
) -> bytes:
    """The manifest; `objects` are (offset, bytes) in the code section, one index a kernel."""
    return dump_json(
        {
            "target": plan.target,
            "threads": plan.threads,
            "symbols": plan.symbols,
            "sizes": [(schema.SIZE_OP_CODES[s.op], s.a, s.b) for s in plan.sizes],
            "guards": [_keyed("guard", (g.lhs, g.rhs, g.what)) for g in plan.guards],
            "inputs": [_encode_binding(b) for b in plan.inputs],
            "outputs": [_encode_binding(b) for b in plan.outputs],
            "buffers": [
                _keyed("buffer", (b.kind, b.bytes, b.offset, b.name)) for b in plan.buffers
            ],
            "objects": [_keyed("object", o) for o in objects],
            "kernels": [
                _keyed("kernel", (k.entry, k.isa, o))
                for k, o in zip(plan.kernels, kernel_object, strict=True)
            ],
            "steps": [_encode_step(s) for s in plan.steps],
            "profiles": [
                _keyed("profile", (p.ranges, p.offsets, p.arena_bytes, p.lower_bound_bytes))
                for p in plan.profiles
            ],
            "weights": [
                _keyed("weight", (w.name, w.dtype.name, w.shape, w.offset, w.bytes, w.content_hash))
                for w in plan.weights
            ],
            "debug": [
                _keyed("debug", (d.name, d.dtype.name, d.shape, _encode_ref(d.ref), d.step))
                for d in plan.debug
            ],
        },
        "manifest",
    )


def _keyed(record: str, values: Iterable[object]) -> dict[str, object]:
    return dict(zip(schema.RECORD_KEYS[record], values, strict=True))


def _encode_ref(ref: BufferRef) -> tuple[int, int]:
    return ref.buffer, ref.displacement


def _encode_step(s: Step) -> dict[str, object]:
    refs = [_encode_ref(r) for r in s.buffers]
    values = (s.kernel, s.name, refs, s.params, s.parallel, s.after, s.origins, s.tactic)
    return _keyed("step", ("launch", *values))


def _encode_binding(b: Binding) -> dict[str, object]:
    content = encode_content(b.dtype, b.value).hex()
    return _keyed("binding", (b.name, b.dtype.name, b.shape, b.buffer, content))


def encode_content(dtype: DType, values: Sequence[int | float]) -> bytes:
    """The stored bytes of `values`, rounded to nearest even."""
    return bytes(np.asarray(values, dtype.numpy.newbyteorder("<")).tobytes())


def decode_content(dtype: DType, data: bytes) -> tuple[int | float, ...]:
    """The values of stored bytes, flat."""
    array = np.frombuffer(data, dtype.numpy.newbyteorder("<"))
    return tuple(array.view(np.uint8).tolist() if dtype.kind == "b" else array.tolist())


def load_json(data: bytes, what: str) -> Any:
    """Parsed JSON, or EngineFormatError: nothing a damaged file holds escapes as another error."""
    try:
        return json.loads(data.decode("ascii"))
    except (ValueError, RecursionError) as e:
        raise EngineFormatError(f"the engine's {what} is not readable: {e}; build it again") from e


def decode_plan(manifest: Any, record: Any, code: memoryview, weights: memoryview) -> Plan:
    """The Plan of a parsed manifest; weight_data are views into `weights`."""
    try:
        return _decode_plan(manifest, record, code, weights)
    except (EngineFormatError, EngineVersionError):
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, DTypeError) as e:
        raise EngineFormatError(
            f"the engine's manifest is inconsistent ({type(e).__name__}: {e}); build it again"
        ) from e


def _decode_plan(manifest: Any, record: Any, code: memoryview, weights: memoryview) -> Plan:
    m: Mapping[str, Any] = _expect(manifest, dict, "manifest")
    objects_bytes = []
    for i, row in _rows(m, "objects"):
        offset, size = _fields(row, "object")
        objects_bytes.append(bytes(_slice(code, offset, size, f"object {i}")))
    decoded_weights = _decode_all(m, "weights", "weight", _decode_weight)
    return Plan(
        target=_expect(m["target"], dict, "target"),
        threads=_expect(m["threads"], int, "threads"),
        symbols=_strings(m["symbols"]),
        sizes=tuple(_decode_size(s) for _, s in _rows(m, "sizes")),
        guards=_decode_all(m, "guards", "guard", Guard),
        inputs=_decode_all(m, "inputs", "binding", _decode_binding),
        outputs=_decode_all(m, "outputs", "binding", _decode_binding),
        buffers=_decode_all(m, "buffers", "buffer", Buffer),
        kernels=_decode_all(
            m, "kernels", "kernel", lambda entry, isa, i: KernelCode(entry, isa, objects_bytes[i])
        ),
        steps=_decode_all(m, "steps", "step", _decode_step),
        profiles=_decode_all(m, "profiles", "profile", _decode_profile),
        weights=decoded_weights,
        debug=_decode_all(m, "debug", "debug", _decode_debug),
        record=_expect(record, dict, "record"),
        weight_data=tuple(
            _slice(weights, w.offset, w.bytes, f"weight {w.name!r}") for w in decoded_weights
        ),
    )


def _expect(value: Any, kind: type, where: str) -> Any:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise EngineFormatError(f"the engine's {where} is not of type {kind.__name__}")
    return value


def _rows(m: Mapping[str, Any], key: str) -> Iterable[tuple[int, Any]]:
    return enumerate(_expect(m[key], list, key))


def _fields(row: Any, record: str) -> list[Any]:
    return [row[key] for key in schema.RECORD_KEYS[record]]


def _decode_all(
    m: Mapping[str, Any], key: str, record: str, make: Callable[..., T]
) -> tuple[T, ...]:
    return tuple(make(*_fields(row, record)) for _, row in _rows(m, key))


def _ints(values: Any) -> tuple[int, ...]:
    return tuple(_expect(v, int, "index") for v in _expect(values, list, "index list"))


def _strings(values: Any) -> tuple[str, ...]:
    return tuple(_expect(v, str, "name") for v in _expect(values, list, "name list"))


def _slice(section: memoryview, offset: Any, size: Any, where: str) -> memoryview:
    start, count = _expect(offset, int, where), _expect(size, int, where)
    if start < 0 or count < 0 or start + count > len(section):
        raise EngineFormatError(f"{where} reaches outside its section of the engine file")
    return section[start : start + count]


def _decode_size(row: Any) -> SizeOp:
    code, a, b = _ints(row)
    if not 0 <= code < len(SIZE_OPS):
        raise EngineVersionError(
            f"the engine uses size operation {code}, which this braze does not know; upgrade braze"
        )
    return SizeOp(SIZE_OPS[code], a, b)


def _decode_binding(name: Any, dtype: Any, shape: Any, buffer: Any, value: Any) -> Binding:
    element = from_name(dtype)
    content = decode_content(element, bytes.fromhex(value))
    return Binding(_expect(name, str, "name"), element, _ints(shape), buffer, content)


def _decode_ref(row: Any) -> BufferRef:
    buffer, displacement = _ints(row)
    return BufferRef(buffer, displacement)


def _decode_step(*fields: Any) -> Step:
    kind, kernel, name, refs, params, parallel, after, origins, tactic = fields
    if kind not in schema.STEP_KINDS:
        raise EngineVersionError(
            f"the engine has a step of kind {kind!r}, which this braze does not know; upgrade braze"
        )
    return Step(
        kernel=_expect(kernel, int, "kernel index"),
        name=_expect(name, str, "step name"),
        buffers=tuple(_decode_ref(r) for r in _expect(refs, list, "buffers")),
        params=_ints(params),
        parallel=_expect(parallel, bool, "parallel"),
        after=_ints(after),
        origins=_strings(origins),
        tactic=_expect(tactic, str, "tactic"),
    )


def _decode_profile(ranges: Any, offsets: Any, arena_bytes: Any, lower_bound: Any) -> Profile:
    rows = []
    for row in _expect(ranges, list, "ranges"):
        low, opt, high = _ints(row)
        rows.append((low, opt, high))
    arena = _expect(arena_bytes, int, "arena size")
    return Profile(tuple(rows), _ints(offsets), arena, _expect(lower_bound, int, "lower bound"))


def _decode_weight(*fields: Any) -> Weight:
    name, dtype, shape, offset, size, content_hash = fields
    return Weight(name, from_name(dtype), _ints(shape), offset, size, content_hash)


def _decode_debug(name: Any, dtype: Any, shape: Any, ref: Any, step: Any) -> DebugTensor:
    return DebugTensor(name, from_name(dtype), _ints(shape), _decode_ref(ref), step)
