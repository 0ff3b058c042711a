"""CPU targets: instruction sets, what templates may use of them, and cache sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from braze.codegen.cpu.host import L1_BYTES, L2_BYTES
from braze.core.errors import ConfigError
from braze.engine.schema import MIN_ALIGN
from braze.fusion.kernel import Tactic


@dataclass(frozen=True, slots=True)
class Isa:
    """An instruction set: how LLVM calls it, and what templates ask about it.

    registers: vector registers; has_fma, has_f16c (conversions of float16), has_rounding (floor
    and its kin): instructions; has_masks: loads and stores under a mask cost nothing extra.
    """

    llvm_cpu: str
    llvm_features: str
    vector_bits: int
    registers: int
    has_fma: bool
    has_f16c: bool
    has_rounding: bool
    has_masks: bool


# widest first: the first that a processor has is its default
ISAS: Final = {
    "avx512": Isa(
        "x86-64-v4",
        "+avx512f,+avx512bw,+avx512dq,+avx512vl,-prefer-256-bit",
        vector_bits=512,
        registers=32,
        has_fma=True,
        has_f16c=True,
        has_rounding=True,
        has_masks=True,
    ),
    "avx2": Isa(
        "x86-64-v3",
        "",
        vector_bits=256,
        registers=16,
        has_fma=True,
        has_f16c=True,
        has_rounding=True,
        has_masks=False,
    ),
    "x86-64": Isa(
        "x86-64",
        "",
        vector_bits=128,
        registers=16,
        has_fma=False,
        has_f16c=False,
        has_rounding=False,
        has_masks=False,
    ),
}


# instructions beside an instruction set that templates ask for one by one -> what they need
EXTRAS: Final = {
    "avx512vnni": "avx512",
    "avx512bf16": "avx512",
    "avxvnni": "avx2",
    "amx-int8": "avx512",
    "amx-bf16": "avx512",
}
# what a target's name says behind "cpu:" -> instruction set and extras; an instruction set alone
# has none, so that its engines run on every processor that has it
VARIANTS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    **{isa: (isa, ()) for isa in ISAS},
    "amx": ("avx512", ("avx512vnni", "avx512bf16", "amx-int8", "amx-bf16")),
}


@dataclass(frozen=True, slots=True)
class CpuTarget:
    """A CPU: instruction set (a key of ISAS), worker threads, and bytes of a core's data caches.

    extras: further instructions that it has, as LLVM names them (keys of EXTRAS).
    model: the processor in words ("": any with this instruction set).
    emit: what code generation ends in: "elf" for a runtime, "llvm" or "assembly" for people.
    """

    isa: str
    threads: int
    l1_bytes: int = L1_BYTES
    l2_bytes: int = L2_BYTES
    extras: tuple[str, ...] = ()
    model: str = ""
    emit: str = "elf"

    def __post_init__(self) -> None:
        if self.isa not in list(ISAS):
            raise ConfigError(f"isa {self.isa!r} is not one of {', '.join(ISAS)}")
        for extra in self.extras:
            if EXTRAS.get(extra) != self.isa:
                fitting = ", ".join(e for e, isa in EXTRAS.items() if isa == self.isa) or "none"
                raise ConfigError(f"{extra!r} is no extra of isa {self.isa!r}; it has {fitting}")
        if not 1 <= self.threads <= 1024:
            raise ConfigError(f"threads={self.threads} is outside 0..1024; 0 uses all processors")

    @property
    def features(self) -> Isa:
        """What the instruction set offers."""
        return ISAS[self.isa]

    @property
    def name(self) -> str:
        return f"cpu:{self.isa}"

    @property
    def needs(self) -> str:
        """What code may ask of a processor, as engines say it: "avx512+avx512vnni"."""
        return "+".join((self.isa, *self.extras))

    @property
    def alignment(self) -> int:
        return MIN_ALIGN

    @property
    def space(self) -> str:
        return "host"

    @property
    def vector_bits(self) -> int:
        return self.features.vector_bits

    @property
    def registers(self) -> int:
        return self.features.registers

    @property
    def has_fma(self) -> bool:
        return self.features.has_fma

    @property
    def fingerprint(self) -> str:
        caches = f"caches {self.l1_bytes} {self.l2_bytes}"
        return f"cpu {self.needs}, {self.threads} threads, {caches}, {self.model}"

    def best(self, wanted: Sequence[str]) -> str | None:
        """The first of `wanted` instructions that this CPU has, or None."""
        return next((extra for extra in wanted if extra in self.extras), None)

    def describe(self) -> dict[str, Any]:
        return {"arch": "x86-64", "isa": self.isa}


def is_tiles(extra: str) -> bool:
    """Whether an extra is one of AMX: what the system has to grant to a process."""
    return extra.startswith("amx-")


def with_extras(target: CpuTarget, tactic: Tactic) -> CpuTarget:
    """`target` with what `tactic` wants beside the instruction set, and nothing else."""
    return replace(target, extras=tuple(str(v) for k, v in tactic.parameters if k == "with"))
