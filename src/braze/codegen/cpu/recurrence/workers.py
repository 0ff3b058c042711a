"""How workers walk through the phases of one kernel together.

Every phase (a stage of a step) needs the one before as a whole, so workers wait for each other
inside the kernel. A phase is cut into one share for each worker. Who is ready does its own share
first, whose weights its cache has, and then what nobody has begun: a thread that comes late, or
never, delays nobody for long. A share of another is waited for as long as the own one took, since
asking for it takes the line of its claim out of its worker's cache; who had to do one does not wait
in the phase that follows. Who waits far longer than the work takes goes home, since the thread it
waits for has lost its processor, perhaps to the one that waits; that thread does the rest. What a
share computes does not depend on who does it.

The step's status word says how far the kernel is: 0, nobody came; 1, one worker prepares; 2 + k, it
is prepared and k workers have left. The last one sets it to 0 again, as the runtime wants it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from llvmlite import ir

from braze.codegen.cpu.llvm.function import I1, I32, I64, KernelFunction, i64
from braze.core.dims import Dim

_LINE = 64
_BYTE = ir.IntType(8)
_PREPARED = 2
# how long a worker waits: so many times what it worked itself in the phase, and cycles at the least
_TIMES = 8
_AT_LEAST = 200_000
_GRACE = 4096  # cycles for which a share is waited for besides those that the own one took


class Team:
    """The workers of a kernel; scratch: of the first, `per_worker` bytes in front of the second."""

    def __init__(self, fn: KernelFunction, scratch: ir.Value, per_worker: Dim) -> None:
        self.fn, self.scratch, self.per_worker = fn, scratch, per_worker
        self.did = fn.alloca(I1)  # whether `_take` did a share

    def enter(self, prepare: Callable[[], None]) -> None:
        """`prepare` runs once, before anything else; all workers wait for it."""
        fn, b = self.fn, self.fn.builder
        zero, one = ir.Constant(I32, 0), ir.Constant(I32, 1)
        first = b.extract_value(b.cmpxchg(fn.status, zero, one, "acq_rel", "acquire"), 1)
        with fn.if_else(first) as (yes, no):
            with yes:
                with fn.loop(0, fn.num_workers) as worker:
                    for word in (self._claimed(worker), self._done(worker)):
                        fn.store(i64(0), word)
                prepare()
                b.atomic_rmw("xchg", fn.status, ir.Constant(I32, _PREPARED), "release")
            with no:
                self._spin_while(
                    lambda: b.icmp_signed(
                        "<",
                        b.load_atomic(fn.status, "acquire", 4, typ=I32),
                        ir.Constant(I32, _PREPARED),
                    )
                )

    def walk(self, phases: ir.Value, work: Callable[[ir.Value, ir.Value], None]) -> None:
        """`work(phase, share)` once for each share of each phase, phase after phase.

        All of it is done when the last worker returns.
        """
        fn, b = self.fn, self.fn.builder

        def is_open(values: list[ir.Value]) -> ir.Value:
            return b.icmp_signed("<", values[0], phases)

        def walk_one(values: list[ir.Value]) -> list[ir.Value]:
            phase, helped = values
            start = self._clock()
            with fn.carry_loop(0, fn.num_workers, 1, [i64(0), ir.Constant(I1, 0)]) as it:
                deadline, took = it.values
                share = self._other(it.index)
                self._spin_while(partial(self._waits, share, phase, deadline))
                did = self._take(share, phase, work)
                own = b.icmp_signed("==", it.index, i64(0))
                now = self._clock()
                patience = b.add(now, b.add(b.sub(now, start), i64(_GRACE)))
                patience = b.select(helped, i64(0), patience)
                it.next = [
                    b.select(own, patience, deadline),
                    b.or_(took, b.and_(did, b.not_(own))),
                ]
            spent = b.sub(self._clock(), start)
            patience = b.add(b.mul(spent, i64(_TIMES)), i64(_AT_LEAST))
            late = self._late(phase, b.add(self._clock(), patience))
            return [b.select(late, phases, b.add(phase, i64(1))), it.results[1]]

        fn.while_loop([self._first_open(), ir.Constant(I1, 0)], is_open, walk_one)

    def _first_open(self) -> ir.Value:
        """The first phase that is not done as a whole: where a worker joins."""
        fn = self.fn
        with fn.carry_loop(1, fn.num_workers, 1, [self._progress(i64(0))]) as it:
            it.next = [fn.minimum(it.values[0], self._progress(it.index))]
        return it.results[0]

    def _take(
        self, share: ir.Value, phase: ir.Value, work: Callable[[ir.Value, ir.Value], None]
    ) -> ir.Value:
        """Do a share of a phase unless somebody else does; whether this worker did it."""
        fn, b = self.fn, self.fn.builder
        following = b.add(phase, i64(1))
        fn.store(ir.Constant(I1, 0), self.did)
        with fn.if_(self._is_behind(share, phase)):
            claim = b.cmpxchg(self._claimed(share), phase, following, "acq_rel", "acquire")
            with fn.if_(b.extract_value(claim, 1)):
                work(phase, share)
                b.atomic_rmw("xchg", self._done(share), following, "release")
                fn.store(ir.Constant(I1, 1), self.did)
        return fn.load(self.did, I1)

    def _waits(self, share: ir.Value, phase: ir.Value, deadline: ir.Value) -> ir.Value:
        """Whether a share is not done and there is time left."""
        in_time = self.fn.builder.icmp_signed("<", self._clock(), deadline)
        return self.fn.builder.and_(self._is_behind(share, phase), in_time)

    def _late(self, phase: ir.Value, deadline: ir.Value) -> ir.Value:
        """Wait until all shares of a phase are done; whether some are not at the deadline.

        All shares: this worker's own may have been begun by another.
        """
        fn, b = self.fn, self.fn.builder

        with fn.carry_loop(0, fn.num_workers, 1, [ir.Constant(I1, 0)]) as it:
            self._spin_while(partial(self._waits, it.index, phase, deadline))
            it.next = [b.or_(it.values[0], self._is_behind(it.index, phase))]
        return it.results[0]

    def _clock(self) -> ir.Value:
        return self.fn.intrinsic("llvm.readcyclecounter", I64, [])

    def _is_behind(self, share: ir.Value, phase: ir.Value) -> ir.Value:
        return self.fn.builder.icmp_signed("<=", self._progress(share), phase)

    def leave(self) -> None:
        """Nothing that the team shares is read after this."""
        fn, b = self.fn, self.fn.builder
        before = b.atomic_rmw("add", fn.status, ir.Constant(I32, 1), "acq_rel")
        last = b.trunc(b.add(fn.num_workers, i64(_PREPARED - 1)), I32)
        with fn.if_(b.icmp_signed("==", before, last)):
            b.atomic_rmw("xchg", fn.status, ir.Constant(I32, 0), "release")

    def _other(self, turn: ir.Value) -> ir.Value:
        """The share of the worker `turn` behind this one."""
        b = self.fn.builder
        return b.srem(b.add(self.fn.worker, turn), self.fn.num_workers)

    def _claimed(self, share: ir.Value) -> ir.Value:
        """The phase of `share` that nobody has begun."""
        offset = self.fn.builder.mul(share, self.fn.dim(self.per_worker))
        return self.fn.at(self.scratch, offset, _BYTE)

    def _done(self, share: ir.Value) -> ir.Value:
        """How many phases of `share` are done."""
        return self.fn.at(self._claimed(share), _LINE, _BYTE)

    def _progress(self, share: ir.Value) -> ir.Value:
        return self.fn.builder.load_atomic(self._done(share), "acquire", 8, typ=I64)

    def _spin_while(self, condition: Callable[[], ir.Value]) -> None:
        def pause(values: list[ir.Value]) -> list[ir.Value]:
            self.fn.intrinsic("llvm.x86.sse2.pause", ir.VoidType(), [])
            return values

        self.fn.while_loop([], lambda _: condition(), pause)
