"""IExecutionContext: shapes, memory and runs of an engine under TensorRT's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from braze.core.errors import BrazeError
from braze.runtime.context import ExecutionContext
from braze.shim.device import host_device
from braze.tensorrt.addresses import as_address
from braze.tensorrt.allocator import IOutputAllocator
from braze.tensorrt.content_sizes import ContentSizes
from braze.tensorrt.context_options import ContextOptions
from braze.tensorrt.context_run import ContextRun
from braze.tensorrt.dims import Dims, as_dims
from braze.tensorrt.enums_runtime import ErrorCodeTRT, ExecutionContextAllocationStrategy
from braze.tensorrt.execution import element_strides
from braze.tensorrt.legacy_context import LegacyContext
from braze.tensorrt.recorder import Reporter
from braze.tensorrt.runtime_config import IRuntimeConfig
from braze.tensorrt.tensor_table import DYNAMIC, TensorEntry

if TYPE_CHECKING:
    from braze.tensorrt.engine import ICudaEngine

API = "IExecutionContext"


class IExecutionContext(ContextRun, ContextOptions, LegacyContext):
    """What a run of an engine needs. Get one from `ICudaEngine.create_execution_context`."""

    def __init__(self, engine: ICudaEngine, config: IRuntimeConfig) -> None:
        self._engine = engine
        self._reporter = Reporter(engine.reporter.logger, engine.reporter.recorder)
        self._device = host_device()
        self._config = config
        self._allocators: dict[str, IOutputAllocator] = {}
        self._init_options()
        self._init_runs()
        self._use_profile(0)

    def _use_profile(self, index: int) -> None:
        """Begin anew with a profile; raises what the core raises."""
        plan = self._engine.core.plan
        profile = index if plan.profiles else None
        self._core: ExecutionContext = self._engine.core.create_context(profile)
        self._profile = index
        self._sizes = ContentSizes(plan, self._engine.table)
        self._addresses: dict[str, int] = {}
        self._shapes = {t.name: t.shape for t in self._engine.table.inputs}
        self._told: dict[str, tuple[int, ...]] = {}

    def renew(self) -> None:
        """Go on with the engine as it is now; raises what the core raises."""
        shapes, addresses = self._shapes, self._addresses
        self._use_profile(self._profile)
        self._shapes, self._addresses = shapes, addresses

    # ---- about the context --------------------------------------------------------------

    @property
    def engine(self) -> ICudaEngine:
        """The engine it runs."""
        return self._engine

    @property
    def reporter(self) -> Reporter:
        """Where its errors go."""
        return self._reporter

    def get_runtime_config(self) -> IRuntimeConfig:
        """How it was made."""
        return self._config

    @property
    def user_managed(self) -> bool:
        """Whether the program brings the memory for activations."""
        strategy = self._config.get_execution_context_allocation_strategy()
        return strategy is ExecutionContextAllocationStrategy.USER_MANAGED

    # ---- profiles -----------------------------------------------------------------------

    @property
    def active_optimization_profile(self) -> int:
        """The profile in use."""
        return self._profile

    @active_optimization_profile.setter
    def active_optimization_profile(self, index: int) -> None:
        self.set_optimization_profile_async(index, 0)

    def set_optimization_profile_async(self, profile_index: int, stream_handle: int) -> bool:
        """Use another profile; shapes and addresses are to be set anew. RuntimeError where not."""
        if not self.change_profile(profile_index):
            raise RuntimeError("Error in set optimization profile async.")
        return True

    def change_profile(self, profile_index: int) -> bool:
        """The same; False with the reason in the log where it cannot be used."""
        where = f"{API}::setOptimizationProfileAsync"
        if not self._engine.has_profile(profile_index, "setOptimizationProfileAsync"):
            return False
        if profile_index == self._profile:
            return True
        if not may_use(self._engine, profile_index, self):
            return self._taken(where, profile_index)
        try:
            self._use_profile(profile_index)
        except BrazeError as e:
            self._reporter.raised(where, e)
            return False
        return True

    def _taken(self, where: str, profile: int) -> bool:
        self._reporter.error(where, ErrorCodeTRT.INVALID_STATE, taken_text(profile))
        return False

    # ---- shapes -------------------------------------------------------------------------

    def set_input_shape(self, name: str, shape: Any) -> bool:
        """Set the shape of an input; False where the engine or its profile does not take it."""
        sizes = tuple(as_dims(shape, "set_input_shape"))
        entry = self._input(name, "setInputShape")
        if entry is None:
            return False
        if self._engine.table.batched:
            sizes = (self._shapes[entry.name][0], *sizes)
        if not self._fits(entry, sizes):
            return False
        self._put_shape(entry.name, sizes)
        return True

    def _put_shape(self, name: str, sizes: tuple[int, ...]) -> None:
        self._shapes[name] = sizes

    def _fits(self, entry: TensorEntry, sizes: tuple[int, ...]) -> bool:
        """Whether an input may have a shape; reports why not."""
        where = f"{API}::setInputShape"
        if len(sizes) != len(entry.shape):
            self._reporter.wrong(
                where,
                f"Set dimensions of {entry.name} have {len(sizes)} axes, and the engine has "
                f"{len(entry.shape)}.",
            )
            return False
        for size, known in zip(sizes, entry.shape, strict=True):
            if known not in (DYNAMIC, size):
                self._reporter.wrong(
                    where,
                    f"Static dimension mismatch while setting input shape for {entry.name}. Set "
                    f"dimensions are {list(sizes)}. Expected dimensions are {list(entry.shape)}.",
                )
                return False
        low, _, high = self._engine.table.profiles[self._profile][entry.name]
        if not all(a <= s <= b for a, s, b in zip(low, sizes, high, strict=True)):
            self._reporter.wrong(
                where,
                f"Set dimension {list(sizes)} for tensor {entry.name} does not satisfy any "
                f"optimization profiles. Valid range for profile {self._profile}: "
                f"{list(low)}..{list(high)}.",
            )
            return False
        return True

    def get_tensor_shape(self, name: str) -> Dims:
        """The shape of an input or output; -1 where it is not known yet."""
        entry = self._entry(name, "getTensorShape")
        if entry is None:
            return Dims(())
        return Dims(self._engine.table.told(self._shape(entry)))

    def get_tensor_strides(self, name: str) -> Dims:
        """Elements from one index to the next along each axis; -1 where that is not known yet."""
        entry = self._entry(name, "getTensorStrides")
        shape = () if entry is None else self._engine.table.told(self._shape(entry))
        return Dims((DYNAMIC,) * len(shape) if DYNAMIC in shape else element_strides(shape))

    def get_max_output_size(self, name: str) -> int:
        """Bytes an output may take with the input shapes set now; -1 where that is not known."""
        entry = self._entry(name, "getMaxOutputSize")
        if entry is None or entry.is_input or self.unset_shapes():
            return -1
        shape = self._largest(entry)
        size = -1 if DYNAMIC in shape else entry.bytes_of(shape)
        return size if size < 1 << 63 else -1

    def infer_shapes(self) -> list[str]:
        """The inputs that are not given what sizes depend on; raises RuntimeError for bad ones."""
        missing = self.unset_shapes()
        missing += [
            t.name
            for t in self._engine.table.inputs
            if t.holds_sizes and t.name not in self._addresses and t.name not in missing
        ]
        if not missing:
            try:
                self._infer()
                self._sizes.check(self._sizes.known(self._shapes, self._read_contents()))
            except BrazeError as e:
                self._reporter.raised(f"{API}::inferShapes", e)
                raise RuntimeError(str(e)) from e
        return missing

    def unset_shapes(self) -> list[str]:
        """Inputs whose shape is not set."""
        return [name for name, shape in self._shapes.items() if DYNAMIC in shape]

    @property
    def all_binding_shapes_specified(self) -> bool:
        """Whether every input has its shape."""
        return not self.unset_shapes()

    @property
    def all_shape_inputs_specified(self) -> bool:
        """Whether every input that holds sizes has its content."""
        return all(
            t.fixed or t.name in self._addresses for t in self._engine.table.inputs if t.holds_sizes
        )

    def update_device_memory_size_for_shapes(self) -> int:
        """Bytes of activations for the shapes set now."""
        if self.unset_shapes():
            self._reporter.wrong(f"{API}::updateDeviceMemorySizeForShapes", "Shapes are not set.")
            return 0
        try:
            self._infer()
            return self._core.profile_in_use()[1]
        except BrazeError as e:
            self._reporter.raised(f"{API}::updateDeviceMemorySizeForShapes", e)
            return 0

    # ---- memory -------------------------------------------------------------------------

    def set_tensor_address(self, name: str, memory: int) -> bool:
        """Say where an input or output lies; 0 takes that back."""
        entry = self._entry(name, "setTensorAddress")
        if entry is None:
            return False
        address = as_address(memory, "set_tensor_address")
        if address:
            self._addresses[entry.name] = address
        else:
            self._addresses.pop(entry.name, None)
        return True

    def get_tensor_address(self, name: str) -> int:
        """Where an input or output lies; 0 where that is not set."""
        entry = self._entry(name, "getTensorAddress")
        return 0 if entry is None else self._addresses.get(entry.name, 0)

    def set_output_allocator(self, name: str, output_allocator: IOutputAllocator | None) -> bool:
        """Let an allocator give an output its memory; None takes that back."""
        entry = self._entry(name, "setOutputAllocator")
        if entry is None or entry.is_input:
            if entry is not None:
                self._reporter.wrong(f"{API}::setOutputAllocator", f"{name} is an input.")
            return False
        if output_allocator is None:
            self._allocators.pop(entry.name, None)
            return True
        if not isinstance(output_allocator, IOutputAllocator):
            raise TypeError(f"{output_allocator!r} is no IOutputAllocator")
        self._allocators[entry.name] = output_allocator
        return True

    def get_output_allocator(self, name: str) -> IOutputAllocator | None:
        """The allocator of an output."""
        return self._allocators.get(name)

    # ---- what the parts share -----------------------------------------------------------

    def _entry(self, name: str, where: str) -> TensorEntry | None:
        if not isinstance(name, str):
            raise TypeError(f"{where}: the name of a tensor is expected, not {name!r}")
        found = self._engine.named(name)
        if found is None:
            self._reporter.wrong(f"{API}::{where}", f"Given invalid tensor name: {name}.")
            return None
        entry, profile = found
        return entry if name == entry.name or self._is_of_mine(name, profile, where) else None

    def _input(self, name: str, where: str) -> TensorEntry | None:
        entry = self._entry(name, where)
        if entry is not None and not entry.is_input:
            self._reporter.wrong(f"{API}::{where}", f"{name} is not an input.")
            return None
        return entry


def may_use(engine: ICudaEngine, profile: int, asking: IExecutionContext | None = None) -> bool:
    """Whether a context may use a profile: always, unless sharing was switched off at build."""
    if engine.table.record.get("profile_sharing", True):
        return True
    others = (c for c in engine.contexts if c is not asking)
    return all(c.active_optimization_profile != profile for c in others)


def taken_text(profile: int) -> str:
    """What is said of a profile that another context uses."""
    return (
        f"Profile {profile} has been chosen by another IExecutionContext. Use another profileIndex "
        "or destroy the IExecutionContext that use this profile."
    )


def make_context(engine: ICudaEngine, config: IRuntimeConfig) -> IExecutionContext | None:
    """A context, or None with an error reported."""
    where = "ICudaEngine::createExecutionContext"
    free = next((k for k in range(engine.num_optimization_profiles) if may_use(engine, k)), None)
    if free is None:
        engine.reporter.error(where, ErrorCodeTRT.INVALID_STATE, taken_text(0))
        return None
    try:
        context = IExecutionContext(engine, config)
        if free:
            context.change_profile(free)
    except (BrazeError, MemoryError) as e:
        engine.reporter.raised(where, e)
        return None
    return context
