"""The integer part of a kernel's machine code, run here: which elements it reads from memory.

What Triton's interpreter cannot see, this does: faults of LLVM and of the assembler in indices and
conditions. Instructions are those that `nvdisasm` shows for sm_90, as Triton's package has it; what
they do follows from the list of opcodes in NVIDIA's CUDA Binary Utilities and from the PTX that
they are made of. All threads of a program run in step; a branch that some of them take ends the
run, so what is behind it is not looked at. Floats, shared memory and tensor cores are passed over,
and so is what is read: indices that come from data are not followed.
"""

from __future__ import annotations

import operator
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

Words = np.ndarray[Any, Any]
WORD, HALF = 0xFFFFFFFF, np.uint64(32)
PARAMETERS = 0x210  # where sm_90 has the first one, in bytes
ZEROS = {"RZ", "URZ", "SRZ"}
TRUE = {"PT", "UPT"}
SKIPPED = re.compile(
    r"(ACQBULK|BAR|BSSY|BSYNC|CCTL|DEPBAR|F2|FADD|FENCE|FFMA|FMNMX|FMUL|FSEL|FSETP|HADD2|HFMA2|HGMMA|HMMA|"
    r"HMUL2|I2F|LDGDEPBAR|LDS|LDSM|LDTRAM|MEMBAR|MUFU|NOP|PREEXIT|STG|STS|WARPGROUP|WARPSYNC|YIELD)"
)
COMPARE: dict[str, Callable[[Words, Words], Words]] = {
    "GE": operator.ge, "GT": operator.gt, "LT": operator.lt, "LE": operator.le,
    "EQ": operator.eq, "NE": operator.ne,
}  # fmt: skip


def nvdisasm() -> Path:
    """Triton's."""
    import triton

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "nvdisasm"


def disassembled(cubin: bytes) -> list[str]:
    """Instructions and labels, in order."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "kernel.cubin"
        file.write_bytes(cubin)
        done = subprocess.run([nvdisasm(), "-c", file], capture_output=True, text=True, check=True)
    found = []
    for line in done.stdout.splitlines():
        m = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(.*?)\s*;|(\.L\w+):", line)
        if m:
            found.append(m[1] or m[2])
    return found


def signed(x: Words) -> Words:
    """Words as numbers of both signs."""
    return np.where(x >> 31, x - (1 << 32), x)


class Machine:
    """One program (CTA) of `threads` threads whose parameters are pointers at `base(0)`, ..."""

    def __init__(self, code: list[str], threads: int, place: int) -> None:
        self.code, self.threads, self.place = code, threads, place
        self.words: dict[str, Words] = {}
        self.flags: dict[str, Words] = {}
        self.local: dict[tuple[str, int], Words] = {}
        self.read: Counter[int] = Counter()  # addresses of 4 bytes
        self.on = np.ones(threads, bool)

    def run(self, most: int = 100_000) -> Counter[int]:
        """Addresses that are read, how often."""
        labels = {line: k for k, line in enumerate(self.code) if line.startswith(".L")}
        at = 0
        for _ in range(most):
            if at >= len(self.code):
                return self.read
            line, at = self.code[at], at + 1
            if line.startswith(".L"):
                continue
            guard = re.match(r"@(!?U?P\w+)\s+(.*)", line)
            self.on = self.flag(guard[1]) if guard else np.ones(self.threads, bool)
            op, _, rest = (guard[2] if guard else line).partition(" ")
            if op in ("BRA", "EXIT") and self.on.any():
                if op == "EXIT" or not self.on.all():
                    return self.read
                at = labels[re.findall(r"\((\.L\w+)\)", rest)[0]]
            elif op not in ("BRA", "EXIT"):
                self.step(op.split("."), [o.strip().replace(".reuse", "") for o in rest.split(",")])
        raise AssertionError("the program does not end")

    def step(self, op: list[str], operands: list[str]) -> None:
        action = getattr(self, f"do_{op[0].removeprefix('U').lower()}", None)
        if action is None:
            assert SKIPPED.match(op[0]), (op, operands)
            return
        action(op[1:], *operands)

    # operands

    def word(self, name: str, later: int = 0) -> Words:
        """A register, number or parameter; later: how many words behind it."""
        flipped = name.startswith("~")
        negative = bool(re.match(r"-U?R", name)) or name.startswith("-c")
        name = name[1:] if flipped or negative else name
        m = re.fullmatch(r"(U?R)(\d+)", name)
        if m:
            found = self.words.get(f"{m[1]}{int(m[2]) + later}", np.zeros(self.threads, np.int64))
        elif name in ZEROS:
            found = np.zeros(self.threads, np.int64)
        elif name.startswith("c["):
            found = self.parameter(int(name.split("[0x")[2].rstrip("]"), 16) + 4 * later)
        else:
            found = np.full(self.threads, int(name, 0) & WORD if not later else 0)
        found = -found if negative else found
        return (~found if flipped else found) & WORD

    def parameter(self, at: int) -> Words:
        """Of parameter k: word k + 1 above zeros."""
        high, k = at % 8 // 4, (at - PARAMETERS) // 8
        return np.full(self.threads, base(k) >> 32 if high and k >= 0 else 0)

    def flag(self, name: str) -> Words:
        inverse, name = name.startswith("!"), name.lstrip("!")
        no = np.zeros(self.threads, bool)
        found = ~no if name in TRUE else self.flags.get(name, no)
        return ~found if inverse else found

    def put(self, name: str, value: Words, later: int = 0) -> None:
        m = re.fullmatch(r"(U?R)(\d+)", name)
        if m:
            key = f"{m[1]}{int(m[2]) + later}"
            self.words[key] = np.where(self.on, value & WORD, self.word(key))

    def put_flag(self, name: str, value: Words) -> None:
        if name not in TRUE:
            self.flags[name] = np.where(self.on, value, self.flag(name))

    # instructions

    def do_mov(self, _: list[str], to: str, x: str, *__: str) -> None:
        self.put(to, self.word(x))

    do_r2ur = do_mov

    def do_s2r(self, _: list[str], to: str, what: str) -> None:
        places = {"SR_TID.X": np.arange(self.threads), "SR_CTAID.X": np.array(self.place)}
        self.put(to, np.broadcast_to(places.get(what, np.array(0)), (self.threads,)))

    do_s2ur = do_s2r

    def do_ldc(self, how: list[str], to: str, x: str) -> None:
        for k in range(2 if "64" in how else 1):
            self.put(to, self.word(x, k), k)

    def do_cs2r(self, _: list[str], to: str, __: str) -> None:
        for k in range(2):
            self.put(to, self.word("RZ"), k)

    def do_sel(self, _: list[str], to: str, a: str, b: str, flag: str) -> None:
        self.put(to, np.where(self.flag(flag), self.word(a), self.word(b)))

    def do_viadd(self, _: list[str], to: str, a: str, b: str) -> None:
        self.put(to, self.word(a) + self.word(b))

    def do_imad(self, how: list[str], to: str, *rest: str) -> None:
        flag, rest = (rest[0], rest[1:]) if re.fullmatch(r"U?P[\dT]", rest[0]) else ("PT", rest)
        (x, y, z), carry = map(self.word, rest[:3]), rest[3:]
        if "MOV" in how:
            self.put(to, z)
        elif "HI" in how or "WIDE" in how:
            third = z.astype(np.uint64) | self.word(rest[2], 1).astype(np.uint64) << HALF
            if "U32" in how:
                product = x.astype(np.uint64) * y.astype(np.uint64)
            else:
                product = (signed(x) * signed(y)).view(np.uint64)
            total = product + third
            self.put_flag(flag, total < third)
            low, high = total & np.uint64(WORD), total >> HALF
            for k, part in enumerate([high] if "HI" in how else [low, high]):
                self.put(to, part.astype(np.int64), k)
        else:
            product = x.astype(np.uint64) * y.astype(np.uint64) & np.uint64(WORD)
            self.put(to, product.astype(np.int64) + z + (self.flag(carry[0]) if carry else 0))

    def do_iadd3(self, how: list[str], to: str, *rest: str) -> None:
        carries = [o for o in rest if re.fullmatch(r"!?U?P[\dT]", o)]
        numbers = [o for o in rest if o not in carries]
        after = rest.index(numbers[-1]) + 1
        total = sum((self.word(o) for o in numbers), np.zeros(self.threads, np.int64))
        if "X" in how:
            total = total + sum(self.flag(o).astype(np.int64) for o in rest[after:])
        self.put(to, total)
        for flag in rest[: rest.index(numbers[0])]:
            self.put_flag(flag, total > WORD)

    def do_lea(self, how: list[str], to: str, *rest: str) -> None:
        flag = rest[0] if re.fullmatch(r"U?P[\dT]", rest[0]) else None
        a, b, *more = rest[1:] if flag else rest
        x, y = self.word(a), self.word(b)
        carry = self.flag(more[-1]) if "X" in how else 0
        if "SX32" in how:
            total = (signed(x) >> 32 - int(more[0], 16)) + y + carry
        elif "HI" in how:
            by = int(more[1], 16)
            total = (self.word(more[0]) << by | x >> 32 - by) + y + carry
        else:
            total = (x << int(more[0], 16) & WORD) + y
        self.put(to, total)
        if flag:
            self.put_flag(flag, total > WORD)

    def do_lop3(self, _: list[str], *rest: str) -> None:
        flag, rest = (rest[0], rest[1:]) if re.fullmatch(r"U?P[\dT]", rest[0]) else ("PT", rest)
        found = by_table([self.word(o) for o in rest[1:4]], int(rest[4], 16))
        self.put(rest[0], found)
        self.put_flag(flag, found != 0)

    def do_plop3(self, _: list[str], to: str, __: str, *rest: str) -> None:
        flags = [self.flag(o).astype(np.int64) for o in rest[:3]]
        self.put_flag(to, by_table(flags, int(rest[3], 16)) & 1 != 0)

    def do_shf(self, how: list[str], to: str, low: str, by: str, high: str) -> None:
        x, n, y = self.word(low), np.minimum(self.word(by), 32), self.word(high)
        if "L" in how:
            self.put(to, y << n | x >> 32 - n if "HI" in how else x << n)
        elif "HI" in how:
            self.put(to, (signed(y) if "S32" in how else y) >> n)
        else:
            self.put(to, (x | y << 32) >> n)

    def do_prmt(self, _: list[str], to: str, a: str, choice: str, b: str) -> None:
        both, chosen = [*octets(self.word(a)), *octets(self.word(b))], self.word(choice)
        found = np.zeros(self.threads, np.int64)
        for k in range(4):
            pick = chosen >> 4 * k & 15
            octet = np.choose(pick & 7, both)
            found |= np.where(pick & 8, np.where(octet & 128, 255, 0), octet) << 8 * k
        self.put(to, found)

    def do_sgxt(self, how: list[str], to: str, x: str, width: str) -> None:
        bits = int(width, 16)
        low = self.word(x) & (1 << bits) - 1
        self.put(to, low if "U32" in how else np.where(low >> bits - 1, low - (1 << bits), low))

    def do_isetp(self, how: list[str], to: str, _: str, *rest: str) -> None:
        (x, y), (other, *low) = map(self.word, rest[:2]), rest[2:]
        if "U32" not in how:
            x, y = signed(x), signed(y)
        found = COMPARE[how[0]](x, y)
        if "EX" in how:  # the lower words decide where these are equal
            found = np.where(x == y, self.flag(low[0]), x != y if how[0] == "NE" else found)
        with_other = {"AND": operator.and_, "OR": operator.or_, "XOR": operator.xor}
        (combine,) = (with_other[h] for h in how if h in with_other)
        self.put_flag(to, combine(found, self.flag(other)))

    def do_p2r(self, how: list[str], to: str, _: str, x: str, mask: str) -> None:
        flags = reduce(operator.or_, (self.flag(f"P{k}").astype(np.int64) << k for k in range(7)))
        by, kept = octet_of(how), int(mask, 16)
        self.put(to, self.word(x) & ~(kept << by) | (flags & kept) << by)

    def do_r2p(self, _: list[str], __: str, x: str, mask: str) -> None:
        name, _, octet = x.partition(".")
        bits = self.word(name) >> octet_of([octet])
        for k in range(7):
            if int(mask, 16) >> k & 1:
                self.put_flag(f"P{k}", bits >> k & 1 != 0)

    def do_stl(self, how: list[str], place: str, x: str) -> None:
        for k in range(size_of(how)):
            before = self.local.get((place, k), self.word("RZ"))
            self.local[place, k] = np.where(self.on, self.word(x, k), before)

    def do_ldl(self, how: list[str], to: str, place: str) -> None:
        for k in range(size_of(how)):
            self.put(to, self.local[place, k], k)

    def do_ldg(self, how: list[str], _: str, place: str, *flags: str) -> None:
        m = re.search(r"\[(R\d+)\.64(?:\+(-?0x[0-9a-f]+))?\]", place)
        assert m, place
        at = self.word(m[1]) + (self.word(m[1], 1) << 32) + int(m[2] or "0", 16)
        taken = self.on & self.flag(flags[0]) if flags else self.on
        for k in range(size_of(how)):
            self.read.update((at[taken] + 4 * k).tolist())

    do_ldgsts = do_ldg


def base(parameter: int) -> int:
    """Where a pointer that is a parameter points."""
    return parameter + 1 << 40


def by_table(operands: list[Words], table: int) -> Words:
    """Bits that a table of three bits gives, the first of them the highest."""
    found = np.zeros_like(operands[0])
    for k in (k for k in range(8) if table >> k & 1):
        parts = (x if k >> 2 - i & 1 else ~x for i, x in enumerate(operands))
        found |= reduce(operator.and_, parts)
    return found & WORD


def octets(x: Words) -> Iterator[Words]:
    return (x >> 8 * k & 255 for k in range(4))


def octet_of(how: list[str]) -> int:
    """How many bits the byte lies above the lowest."""
    return 8 * sum(int(h[1]) for h in how if re.fullmatch(r"B\d", h))


def size_of(how: list[str]) -> int:
    """Words of an access."""
    return 4 if "128" in how else 2 if "64" in how else 1
