"""LLVM IR text to a self-contained ELF object."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import llvmlite.binding as llvm
from llvmlite.binding.newpassmanagers import NewPassManager

from braze.codegen.cpu.target import ISAS, CpuTarget
from braze.core.errors import CompileError
from braze.fusion.kernel import Code

TRIPLE = "x86_64-unknown-none-elf"
_ELF64_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHT_SYMTAB = 2
# all that code needs whose loops are written as they should run: a sixth of the time of LLVM's
# own first level, and the register tile comes out the same
_CLEAN_UP = ("sroa", "simplify_cfg", "instruction_combine")


def compile_ir(text: str, target: CpuTarget, speed: int = 2, unroll: bool = True) -> bytes:
    """Optimise LLVM IR and give its ELF object (position independent, no libc, no libm), or what
    else `target.emit` asks for.

    speed is the optimisation level of LLVM's pipeline, 0 cleans up and no more; unroll lets it
    unroll loops. LLVM's own vectorisers stay off: templates vectorise. Raises CompileError when
    the IR is invalid or the object needs outside symbols.
    """
    if target.emit == "llvm":
        return text.encode()
    with optimised(text, target, speed, unroll) as (module, machine):
        if target.emit == "assembly":
            return bytes(machine.emit_assembly(module).encode())
        data = bytes(machine.emit_object(module))
    missing = undefined_symbols(data)
    if missing:
        raise CompileError(
            f"generated code for {target.isa} calls {', '.join(missing)}, which engines do not "
            "have; this is a bug in a template: decompose the operation before LLVM"
        )
    return data


def elf(entry: str, target: CpuTarget, data: bytes) -> Code:
    """The object of one kernel, for a plan."""
    return Code(target.emit, entry, target.needs, data)


@lru_cache(maxsize=2 * len(ISAS))
def target_machine(isa: str, extras: tuple[str, ...] = ()) -> Any:
    """The LLVM target machine of an ISA (position independent, small code model)."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    row = ISAS[isa]
    features = ",".join(filter(None, (row.llvm_features, *(f"+{extra}" for extra in extras))))
    return llvm.Target.from_triple(TRIPLE).create_target_machine(
        cpu=row.llvm_cpu, features=features, opt=2, reloc="pic", codemodel="small"
    )


class PassBuilders:
    """The builders of LLVM's pipelines for an ISA and options, one after the other.

    llvmlite has each run of a pipeline leave its callbacks in the builder, for good: the thousandth
    run of one builder takes ten times as long as the first. It frees a builder, but not the 1.5 KiB
    that it allocates beside it, so that one for each kernel would leak. Hence one for some kernels.
    llvmlite lets one thread at a time into LLVM, so builds in several threads may share it.
    """

    RUNS = 16

    def __init__(self, isa: str, extras: tuple[str, ...], speed: int, unroll: bool) -> None:
        self._machine = target_machine(isa, extras)
        self._options = llvm.create_pipeline_tuning_options(speed_level=speed)
        self._options.loop_vectorization = False
        self._options.slp_vectorization = False
        self._options.loop_interleaving = False
        self._options.loop_unrolling = unroll
        self._left, self._builder = 0, None

    def take(self) -> Any:
        """The builder of one more run."""
        builder = self._builder
        if self._left == 0 or builder is None:
            builder = self._builder = llvm.create_pass_builder(self._machine, self._options)
            self._left = self.RUNS
        self._left -= 1
        return builder


@lru_cache(maxsize=8 * len(ISAS))
def pass_builders(isa: str, extras: tuple[str, ...], speed: int, unroll: bool) -> PassBuilders:
    """Those of an ISA and options, for all kernels."""
    return PassBuilders(isa, extras, speed, unroll)


@contextmanager
def _pipeline(builder: Any, speed: int) -> Iterator[Any]:
    """The passes of an optimisation level, freed at the end of the block.

    `close` of a llvmlite pass manager frees nothing: its classes list the base whose `_dispose` is
    empty first. So the other one is called by name.
    """
    if speed == 0:
        passes = llvm.create_new_module_pass_manager()
        for name in _CLEAN_UP:
            getattr(passes, f"add_{name}_pass")()
    else:
        passes = builder.getModulePassManager()
    try:
        yield passes
    finally:
        NewPassManager._dispose(passes)
        passes.detach()


@contextmanager
def optimised(
    text: str, target: CpuTarget, speed: int, unroll: bool = True
) -> Iterator[tuple[Any, Any]]:
    """Parse and optimise; gives (llvmlite module, target machine) for the time of the block.

    LLVM's objects are closed here and not by the garbage collector: freeing a module takes a while,
    and Python drops an interrupt (Ctrl-C) that arrives while a finalizer runs.
    """
    with ExitStack() as stack:
        context = stack.enter_context(llvm.create_context())
        try:
            module = stack.enter_context(llvm.parse_assembly(text, context))
        except RuntimeError as e:
            raise CompileError(
                f"a template produced invalid LLVM IR ({e}); please report it"
            ) from e
        builder = pass_builders(target.isa, target.extras, speed, unroll).take()
        with _pipeline(builder, speed) as passes:
            passes.run(module, builder)
        yield module, target_machine(target.isa, target.extras)


def undefined_symbols(data: bytes) -> tuple[str, ...]:
    """Names of the symbols an ELF64 object leaves undefined."""
    header = _ELF64_HEADER.unpack_from(data)
    offset, entry_size, count = header[6], header[11], header[12]
    sections = [_SECTION.unpack_from(data, offset + i * entry_size) for i in range(count)]
    missing: list[str] = []
    for section in sections:
        if section[1] != _SHT_SYMTAB:
            continue
        names = sections[section[6]]
        for at in range(section[4] + _SYMBOL.size, section[4] + section[5], _SYMBOL.size):
            name, _, _, where, _, _ = _SYMBOL.unpack_from(data, at)
            if where == 0:
                start = names[4] + name
                missing.append(data[start : data.index(b"\0", start)].decode())
    return tuple(missing)
