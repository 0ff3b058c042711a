"""The engine file: what is written is read back, and damage never passes unnoticed."""

from __future__ import annotations

import errno
import os
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from braze.codegen.cuda.driver import find_card
from braze.core.dtypes import BF16, F32, I64
from braze.core.errors import (
    CompileError,
    EngineFormatError,
    EngineVersionError,
    FileError,
    TargetError,
)
from braze.engine import emit_header, schema
from braze.engine.plan import Binding, Plan, SizeOp
from braze.engine.read import from_bytes, read_file
from braze.engine.steps import BufferRef
from braze.engine.write import to_bytes, write_file
from braze.runtime import Engine
from tests.engine.files import fixed_up, load_everywhere, section
from tests.runtime.plans import chain_plan, expression_plan, gather_plan

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_checked_in_headers_are_the_emitted_ones() -> None:
    for name, text in emit_header.files().items():
        assert (REPOSITORY / "native" / "src" / name).read_text() == text


@pytest.mark.parametrize("make", [chain_plan, gather_plan, expression_plan])
def test_round_trip(make: Any, tmp_path: Path) -> None:
    plan = make()
    path = tmp_path / "a.engine"
    write_file(plan, path)
    data = path.read_bytes()
    assert data == to_bytes(plan) == to_bytes(make())
    for read in (from_bytes(data), read_file(path), Engine.load(path).plan):
        assert read == plan
        assert len(read.weight_data) == len(plan.weight_data)
        for got, wanted in zip(read.weight_data, plan.weight_data, strict=True):
            assert bytes(got) == np.asarray(wanted).tobytes()
    assert to_bytes(from_bytes(data)) == data
    assert Engine.load(path).to_bytes() == data


@pytest.mark.parametrize(
    ("dtype", "value"),
    [(F32, (1.5, -0.0, float("inf"))), (I64, (-(2**63), 2**63 - 1)), (BF16, (1.0, -3.5, 0.1))],
)
def test_constant_contents_are_kept_exactly(dtype: Any, value: tuple[float, ...]) -> None:
    plan = expression_plan(dtype, value)
    got = from_bytes(to_bytes(plan)).inputs[0].value
    assert struct.pack(f"{len(got)}d", *got) == struct.pack(
        f"{len(value)}d", *(value if dtype is not BF16 else (1.0, -3.5, 0.10009765625))
    )


def test_weights_lie_aligned_and_equal_ones_once() -> None:
    plan = chain_plan()
    weight = plan.weights[0]
    twin = replace(
        plan, weights=(weight, replace(weight, name="w2")), weight_data=plan.weight_data * 2
    )
    data = to_bytes(twin)
    offset, size = section(data, "weights")
    assert offset % 64 == 0
    assert size == weight.bytes
    assert bytes(from_bytes(data).weight_data[1]) == plan.weight_data[0].tobytes()


@pytest.mark.parametrize("sizes", [(0,), (0, 0), (40, 0), (0, 40), (40, 0, 0, 8, 0, 0), (64, 0)])
def test_empty_weights_anywhere(sizes: tuple[int, ...]) -> None:
    plan = chain_plan()
    weights, data, at = [plan.weights[0]], list(plan.weight_data), plan.weights[0].bytes
    for i, size in enumerate(sizes):  # as the planner lays them out: each at a place of its own
        at = schema.align_up(at, 64)
        weights.append(replace(plan.weights[0], name=f"w{i}", offset=at, bytes=size))
        data.append(np.full(size, i + 1, np.uint8))
        at += max(size, 1)
    more = replace(plan, weights=tuple(weights), weight_data=tuple(data))
    for _ in range(3):  # memory that is not zero by chance shows in one of them
        np.full(1 << 20, 255, np.uint8)
        engine = Engine.from_plan(more)
        engine.verify()
        assert from_bytes(to_bytes(more)) == more
        for i, size in enumerate(sizes):
            assert bytes(engine.plan.weight_data[i + 1]) == bytes([i + 1]) * size


@pytest.mark.parametrize(
    "change",
    [
        lambda p: replace(p, profiles=()),
        lambda p: replace(p, sizes=(*p.sizes, SizeOp("add", 0, 99))),
        lambda p: replace(p, sizes=(*p.sizes, SizeOp("sqrt", 0, 0))),
        lambda p: replace(p, steps=(replace(p.steps[0], kernel=7),)),
        lambda p: replace(p, steps=(replace(p.steps[0], after=(0,)),)),
        lambda p: replace(p, steps=(replace(p.steps[0], buffers=(BufferRef(0, 99),)),)),
        lambda p: replace(p, inputs=(Binding("x", F32, (0, 1), 1),)),
        lambda p: replace(p, inputs=(Binding("x", F32, (2,), 0),)),
        lambda p: replace(p, outputs=(replace(p.outputs[0], name="x"),)),
        lambda p: replace(p, weights=(replace(p.weights[0], offset=8),)),
        lambda p: replace(p, buffers=tuple(replace(b, offset=8) for b in p.buffers)),
        lambda p: replace(p, weights=(replace(p.weights[0], bytes=12),)),
        lambda p: replace(p, weight_data=()),
        lambda p: replace(p, profiles=(replace(p.profiles[0], offsets=(-1, -1, -1, 0, 8)),)),
        lambda p: replace(p, profiles=(replace(p.profiles[0], ranges=((4, 3, 9),)),)),
        lambda p: replace(p, record={"x": object()}),
        lambda p: replace(p, record={"x": float("nan")}),
        lambda p: replace(p, threads=0),
    ],
)
def test_the_writer_refuses_unsound_plans(change: Any) -> None:
    with pytest.raises(EngineFormatError):
        to_bytes(change(chain_plan()))


def test_not_an_engine_and_every_truncation(tmp_path: Path) -> None:
    data = to_bytes(chain_plan())
    for bad in (b"", b"PK\x03\x04 a zip file", b"\x08\x07onnx", b"\x89BRAZE"):
        assert load_everywhere(bad) == [EngineFormatError] * 2
    sizes = {*range(0, 300, 7), *range(300, len(data), 97), len(data) - 1}
    for size in sizes:
        assert load_everywhere(data[:size]) == [EngineFormatError] * 2
    assert load_everywhere(data + b"\0") == [EngineFormatError] * 2
    for load in (Engine.load, read_file):
        with pytest.raises(FileError, match=r"missing\.engine cannot be read: No such f.*; give"):
            load(tmp_path / "missing.engine")
        with pytest.raises(FileError, match="directory"):
            load(tmp_path)


@pytest.mark.parametrize("kind", ["manifest", "code", "weights"])
def test_a_flipped_bit_in_any_section_is_found(kind: str) -> None:
    data = to_bytes(chain_plan())
    offset, size = section(data, kind)
    for position in {0, size // 3, size - 1}:
        bad = bytearray(data)
        bad[offset + position] ^= 0x10
        assert load_everywhere(bytes(bad)) == [EngineFormatError] * 2
        with pytest.raises(EngineFormatError, match=f"{kind} section is damaged"):
            Engine.from_bytes(bad).verify()


def test_damage_of_any_byte_is_refused_or_touches_the_record_alone() -> None:
    data = to_bytes(chain_plan())
    x = np.ones((2, 8), np.float32)
    want = Engine.from_bytes(data)({"x": x})["y"].tobytes()
    offset, size = section(data, "record")  # which the native reader skips: it is for people
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 1 << position % 8
        if offset <= position < offset + size:
            engine = Engine.from_bytes(bad)
            assert engine({"x": x})["y"].tobytes() == want
            with pytest.raises(EngineFormatError, match="record section is damaged"):
                engine.verify()
        else:
            with pytest.raises((EngineFormatError, EngineVersionError)):
                Engine.from_bytes(bad)


def test_both_readers_refuse_what_is_not_zero_between_sections() -> None:
    data = to_bytes(chain_plan())
    sections = [section(data, kind) for kind in ("manifest", "record", "code", "weights")]
    covered = {p for offset, size in sections for p in range(offset, offset + size)}
    padding = sorted(set(range(sections[0][0], len(data))) - covered)
    assert len(padding) > 1000  # before the weights, at the start of a page
    for position in (*padding[:3], *padding[3::97], padding[-1]):
        bad = bytearray(data)
        bad[position] = 1
        assert load_everywhere(bytes(bad)) == [EngineFormatError] * 2
        with pytest.raises(EngineFormatError, match="damaged between its sections"):
            Engine.from_bytes(bad)


def test_damaged_weights_of_a_large_engine_never_reach_a_run(tmp_path: Path) -> None:
    plan = chain_plan(num_steps=2, width=1 << 17, profiles=((1, 4, 16),))
    path = tmp_path / "large.engine"
    write_file(plan, path)
    x = np.ones((1, 1 << 17), np.float32)
    assert Engine.load(path)({"x": x})["y"].shape == x.shape
    with open(path, "r+b") as file:
        file.seek(-1, os.SEEK_END)
        last = file.read(1)
        file.seek(-1, os.SEEK_END)
        file.write(bytes([last[0] ^ 1]))
    damaged = Engine.load(path)  # which does not wait for the check of so many weights
    for _ in range(2):
        with pytest.raises(EngineFormatError, match="weights"):
            damaged({"x": x})


def test_newer_formats_and_other_machines_are_named() -> None:
    data = to_bytes(chain_plan())
    newer = bytearray(data)
    struct.pack_into("<I", newer, 12, schema.VERSION + 1)
    assert load_everywhere(fixed_up(newer)) == [EngineVersionError] * 2
    required = bytearray(data)
    struct.pack_into("<I", required, schema.HEADER.size + schema.SECTION.size, 77)
    assert load_everywhere(fixed_up(required))[1] is None  # the record is optional
    struct.pack_into("<II", required, schema.HEADER.size + schema.SECTION.size, 77, 1)
    assert load_everywhere(fixed_up(required)) == [EngineVersionError] * 2
    older = bytearray(data)
    struct.pack_into("<II", older, 8, 1, 1)
    assert load_everywhere(fixed_up(older)) == [EngineVersionError] * 2
    with pytest.raises(EngineVersionError, match="version 1, which this braze no longer reads"):
        Engine.from_bytes(fixed_up(older))
    for old, new in ((b'"launch"', b'"branch"'), (b'"mul"', b'"pow"'), (b'"host"', b'"tape"')):
        assert old in data
        changed = bytearray(data.replace(old, new, 1))
        assert load_everywhere(fixed_up(changed)) == [EngineVersionError] * 2
    module = replace(chain_plan().modules[0], needs="avx512+avx512quantum")
    with pytest.raises(TargetError, match=r"quantum.*build it with target='cpu:"):
        Engine.from_plan(replace(chain_plan(), modules=(module,)))
    # refused with and without a card, which lacks what runs "sm_1" and all code of the host
    card = find_card()
    none = r"no driver for one here \(libcuda\.so\.1\)|there is none here; build it with"
    cubin = replace(module, kind="cubin", needs="sm_1")
    with pytest.raises(TargetError, match="GPU of compute capability sm_1 " if card else none):
        Engine.from_plan(replace(chain_plan(), modules=(cubin,)))
    buffers = tuple(replace(b, space="device") for b in chain_plan().buffers)
    with pytest.raises(TargetError, match="mixes code of a GPU and of the host" if card else none):
        Engine.from_plan(replace(chain_plan(), buffers=buffers))
    text = replace(module, kind="text", needs="reference")
    with pytest.raises(TargetError, match=r"kind text for reference.*braze\.load"):
        Engine.from_plan(replace(chain_plan(), modules=(text,)))


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.engine"
    write_file(chain_plan(), path)
    before = path.read_bytes()

    def fail(_fd: int) -> None:
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    expected = FileError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        write_file(chain_plan(num_steps=5), path)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.engine"]


def test_a_full_disk_is_a_typed_error(tmp_path: Path) -> None:
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, limits[1]))
    try:
        with pytest.raises(FileError, match="could not be written: File too large; raise the"):
            write_file(chain_plan(width=1 << 12), tmp_path / "a.engine")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path) == []


def test_writing_to_a_missing_folder_is_a_typed_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"a\.engine could not .*folder .*no does not exist"):
        write_file(chain_plan(), tmp_path / "no" / "a.engine")


def test_replacing_the_file_of_a_loaded_engine_does_not_disturb_it(tmp_path: Path) -> None:
    path = tmp_path / "a.engine"
    plan = chain_plan()
    write_file(plan, path)
    engine = Engine.load(path)
    write_file(gather_plan(), path)
    x = np.ones((2, 8), np.float32)
    assert engine({"x": x})["y"].shape == (2, 8)
    assert engine.plan == plan


def mutate(data: bytes, random: np.random.Generator) -> bytes:
    """A few random changes of bytes, lengths and numbers."""
    out = bytearray(data)
    for _ in range(int(random.integers(1, 4))):
        at = int(random.integers(len(out)))
        kind = random.integers(4)
        if kind == 0:
            out[at] ^= 1 << int(random.integers(8))
        elif kind == 1:
            out[at] = int(random.integers(256))
        elif kind == 2:
            del out[at : at + int(random.integers(1, 40))]
        else:
            out[at:at] = bytes(random.integers(48, 58, 3, dtype=np.uint8))
        if not out:
            return b""
    return bytes(out)


def test_random_damage_gives_typed_errors() -> None:
    data, random = to_bytes(chain_plan()), np.random.default_rng(7)
    errors = 0
    for _ in range(2000):
        errors += sum(e is not None for e in load_everywhere(mutate(data, random)))
    assert errors > 3500


def test_random_manifests_with_good_checksums_give_typed_errors() -> None:
    data, random = to_bytes(chain_plan()), np.random.default_rng(8)
    offset, size = section(data, "manifest")
    for _ in range(1500):
        manifest = mutate(data[offset : offset + size], random)
        manifest = manifest[:size].ljust(size)
        both = load_everywhere(
            fixed_up(bytearray(data[:offset] + manifest + data[offset + size :]))
        )
        # Only the native reader knows whether this machine can run the code.
        code = both[0] is None and both[1] in (TargetError, CompileError)
        assert code or both[0] is both[1], manifest


def test_equal_plans_of_different_kinds_of_weight_data() -> None:
    plan = chain_plan()
    array = plan.weight_data[0]
    variants: list[Any] = [
        array.tobytes(),
        bytearray(array.tobytes()),
        memoryview(array),
        array.T.copy().T,
    ]
    expected = to_bytes(plan)
    for data in variants:
        changed: Plan = replace(plan, weight_data=(data,))
        assert to_bytes(changed) == expected
