"""The part of `validate` that is about steps and bodies (native/src/plan_check_steps.cc)."""

from __future__ import annotations

from braze.engine import schema
from braze.engine.checks import require
from braze.engine.plan import AssignedSource, ElementSource, Plan
from braze.engine.steps import Copy, Launch, Loop, Sizes, Step, bodies_run

_WRITABLE = ("arena", "output")


def check_steps(plan: Plan) -> None:
    """Raise EngineFormatError unless the steps of the plan and of its bodies make sense."""
    depths: list[int] = []
    for i, body in enumerate(plan.bodies):
        depths.append(_check_list(plan, f"body {i}", body.steps, depths))
    _check_list(plan, "plan", plan.steps, depths)


def _check_list(plan: Plan, where: str, steps: tuple[Step, ...], depths: list[int]) -> int:
    """Check `steps`, which may run the bodies that have `depths`; returns their own depth."""
    depth = 1
    for i, step in enumerate(steps):
        place = f"{where} step {i} {step.name!r}"
        for body in bodies_run(step):
            require(body < len(depths), place, f"body {body} does not come before")
            depth = max(depth, 1 + depths[body])
        require(depth <= schema.MAX_BODY_DEPTH, place, "bodies are nested too deeply")
        _check_step(plan, place, step)
    return depth


def _check_step(plan: Plan, where: str, step: Step) -> None:
    if isinstance(step, Launch):
        _check_launch(plan, where, step)
    elif isinstance(step, Copy):
        _check_writable(plan, where, step.target.buffer)
    elif isinstance(step, Sizes):
        for known in step.known:
            source = plan.symbols[known.symbol].source
            wanted = ElementSource if known.size < 0 else AssignedSource
            require(isinstance(source, wanted), where, "a symbol has another source")
    elif isinstance(step, Loop):
        _check_loop(plan, where, step)


def _check_writable(plan: Plan, where: str, buffer: int) -> None:
    kind = plan.buffers[buffer].kind
    require(kind in _WRITABLE, where, f"it writes to buffer {buffer} of kind {kind!r}")


def _check_launch(plan: Plan, where: str, step: Launch) -> None:
    kernel = plan.kernels[step.kernel]
    on_cpu = plan.modules[kernel.module].kind == "elf"
    device = (kernel.block, kernel.shared_bytes, kernel.counters, kernel.waits)
    has_grid = bool(step.grid or step.maps) or any(device)
    require(not (on_cpu and has_grid), where, "a kernel of the CPU has a grid")
    for m in step.maps:
        rank = len(m.shape)
        whole = rank > 0 and len(m.box) == rank and len(m.strides) == rank - 1
        require(whole, where, "a tensor map has sizes for another number of axes")
        require(m.buffer < len(step.buffers), where, f"it has no buffer {m.buffer} to map")


def _check_loop(plan: Plan, where: str, step: Loop) -> None:
    ends = step.trip is not None or step.condition is not None
    require(ends, where, "the loop has no end")
    require(bool(plan.bodies[step.body].steps), where, "the body of the loop has no steps")
    if step.counter >= 0:
        _check_writable(plan, where, step.counter)
    for size in step.sizes:
        source = plan.symbols[size.symbol].source
        require(isinstance(source, AssignedSource), where, "a symbol has another source")
    targets = [c.target for c in step.carried]
    require(len(set(targets)) == len(targets), where, "a buffer is carried twice")
    for i, carried in enumerate(step.carried):
        _check_writable(plan, where, carried.target)
        others = targets[:i] + targets[i + 1 :]
        read = [r.buffer for r in (carried.first, carried.next) if r is not None]
        distinct = not set(read) & set(others)
        require(distinct, where, "a carried value is read from where another is kept")
