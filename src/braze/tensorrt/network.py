"""INetworkDefinition: inputs, layers and outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from braze.core.errors import BrazeError
from braze.frontend.onnx.records import FunctionRecord
from braze.tensorrt.deprecation import Scoped
from braze.tensorrt.dims import Dims
from braze.tensorrt.dtypes import closest
from braze.tensorrt.enums_build import NetworkDefinitionCreationFlag
from braze.tensorrt.enums_runtime import DataType, ErrorCodeTRT
from braze.tensorrt.layer import ILayer
from braze.tensorrt.layers_attention import AddAttention
from braze.tensorrt.layers_constant import AddConstant
from braze.tensorrt.layers_convolution import AddConvolution
from braze.tensorrt.layers_flow import AddFlow, Region
from braze.tensorrt.layers_index import AddIndex
from braze.tensorrt.layers_moves import AddMoves
from braze.tensorrt.layers_norm import AddNorm
from braze.tensorrt.layers_plugin import AddPlugin
from braze.tensorrt.layers_pointwise import AddPointwise
from braze.tensorrt.layers_pooling import AddPooling
from braze.tensorrt.layers_quant import AddQuant
from braze.tensorrt.layers_reduce import AddReduce
from braze.tensorrt.layers_resize import AddResize
from braze.tensorrt.layers_slice import AddSlice
from braze.tensorrt.logger import ILogger, Severity
from braze.tensorrt.lowering import Lowering, known_sizes
from braze.tensorrt.marks import Marks
from braze.tensorrt.params import member, sizes, text, whole
from braze.tensorrt.recorder import tell
from braze.tensorrt.shape_tensors import decides_sizes
from braze.tensorrt.tensor import ITensor

if TYPE_CHECKING:
    from braze.tensorrt.builder import Builder


class INetworkDefinition(
    AddAttention,
    AddConstant,
    AddConvolution,
    AddFlow,
    AddIndex,
    AddMoves,
    AddNorm,
    AddPlugin,
    AddPointwise,
    AddPooling,
    AddQuant,
    AddReduce,
    AddResize,
    AddSlice,
    Marks,
    Scoped,
):
    """A network; `Builder.create_network` makes one."""

    error_recorder: Any

    def __init__(self, builder: Builder, flags: int) -> None:
        self._builder, self._flags = builder, flags
        self._name = f"Unnamed Network {builder._count_network()}"
        self._inputs: list[ITensor] = []
        self._layers: list[ILayer] = []
        self._regions: list[Region] = []
        self._tensors = 0
        self._lowering: Lowering | None = None
        self._functions: Mapping[tuple[str, str, str], FunctionRecord] = {}
        self._opsets: Mapping[str, int] | None = None  # of the parsed model
        self.error_recorder = None
        self._start_marks()

    # ---- about it -----------------------------------------------------------------------

    @property
    def name(self) -> str:
        """What the network is called; the engine keeps it."""
        return self._name

    @name.setter
    def name(self, value: str) -> None:
        self._name = text(value, "INetworkDefinition.name")

    @property
    def builder(self) -> Builder:
        """The builder that made it."""
        return self._builder

    @property
    def flags(self) -> int:
        """Bits of NetworkDefinitionCreationFlag."""
        return self._flags

    def get_flag(self, flag: NetworkDefinitionCreationFlag) -> bool:
        """Whether a flag was given when the network was made."""
        bit = int(member(NetworkDefinitionCreationFlag)(flag, "get_flag"))
        return bool(self._flags >> bit & 1)

    @property
    def strongly_typed(self) -> bool:
        """Whether types are only what inputs and layers say."""
        return self.get_flag(NetworkDefinitionCreationFlag.STRONGLY_TYPED)

    @property
    def has_implicit_batch_dimension(self) -> bool:
        """Whether shapes have no batch axis: of scripts of release 7, which set the largest batch
        at the builder and do not ask for EXPLICIT_BATCH.
        """
        explicit = self.get_flag(NetworkDefinitionCreationFlag.EXPLICIT_BATCH)
        return not explicit and self._opsets is None and self._builder._batch_was_set

    @property
    def has_explicit_precision(self) -> bool:
        """False, as no network since release 9 is."""
        return False

    # ---- tensors and layers -------------------------------------------------------------

    @property
    def num_inputs(self) -> int:
        """How many inputs it has."""
        return len(self._inputs)

    @property
    def num_layers(self) -> int:
        """How many layers it has."""
        return len(self._layers)

    def get_input(self, index: int) -> ITensor | None:
        """An input, or None."""
        place = whole(index, "get_input")
        return self._inputs[place] if 0 <= place < len(self._inputs) else None

    def get_layer(self, index: int) -> ILayer | None:
        """A layer, or None."""
        place = whole(index, "get_layer")
        return self._layers[place].seen() if 0 <= place < len(self._layers) else None

    def __len__(self) -> int:
        return len(self._layers)

    def __getitem__(self, index: int) -> ILayer:
        place = whole(index, "network[...]")
        if not -len(self._layers) <= place < len(self._layers):
            raise IndexError(f"the network has {len(self._layers)} layers, none is {place}")
        return self._layers[place].seen()

    def add_input(self, name: str, dtype: DataType, shape: Dims) -> ITensor | None:
        """Add an input; -1 stands for sizes that the run knows. None where the name is taken."""
        name, kind = text(name, "add_input"), member(DataType)(dtype, "add_input")
        dims = sizes(shape, "add_input")
        if any(t.name == name for t in self._inputs):
            self._complain(f"an input is called {name!r} already; give this one another name")
            return None
        if any(d < -1 for d in dims):
            self._complain(f"input {name!r}: shape {dims} has a size below -1")
            return None
        tensor = self._tensor(name, None)
        tensor._declared_shape, tensor._dtype = dims, kind
        self._inputs.append(tensor)
        self._changed(None)
        return tensor

    def remove_tensor(self, tensor: ITensor) -> None:
        """Remove an input that no layer reads; of other tensors nothing happens, with a warning."""
        read = any(t is tensor for x in self._layers for t in x._read())
        if tensor._producer is not None or read or tensor not in self._inputs:
            self._say(Severity.WARNING, f"tensor {tensor.name!r} is in use and stays")
            return
        self._inputs.remove(tensor)
        self._changed(None)

    def _tensor(self, name: str, producer: ILayer | None) -> ITensor:
        self._tensors += 1
        return ITensor(self, self._tensors, name, producer)

    # ---- what is inferred ---------------------------------------------------------------

    def _changed(self, layer: ILayer | None) -> None:
        """Forget what was inferred, if a layer that took part in it has changed."""
        known = self._lowering
        if known is not None and (layer is None or layer._number in known.said):
            self._lowering = None

    def _lowered(self) -> Lowering:
        known = self._lowering
        if known is None or known.batched != self.has_implicit_batch_dimension:
            self._lowering = known = Lowering(self)
        return known

    def _shape_of(self, tensor: ITensor) -> Dims:
        found = self._lowered().type_of(tensor)
        if found is None:
            self._tell_failure(tensor)
            raise ValueError(f"tensor {tensor.name!r} has no shape: its layer is not valid")
        sizes = known_sizes(found.shape)
        return Dims(sizes[1:] if self.has_implicit_batch_dimension else sizes)

    def _dtype_of(self, tensor: ITensor) -> DataType:
        found = self._lowered().type_of(tensor)
        return DataType.FLOAT if found is None else closest(found.dtype)

    def _tell_failure(self, tensor: ITensor) -> None:
        producer = tensor._producer
        error = None if producer is None else self._lowered().through(producer).failure
        if error is not None:
            self._complain(error)

    def _decides_sizes(self, tensor: ITensor) -> bool:
        return decides_sizes(tensor, self._layers)

    def _owns(self, tensors: Sequence[ITensor | None], what: str) -> bool:
        """Whether tensors are of this network still, which is reported of the first that is not.

        Raises TypeError for what is no tensor.
        """
        for tensor in tensors:
            if not isinstance(tensor, ITensor):
                raise TypeError(f"{what}: an ITensor is expected, not {tensor!r}")
            foreign = tensor._network is not self
            if foreign or (tensor._producer is None and tensor not in self._inputs):
                why = "is of another network" if foreign else "was removed"
                self._complain(f"{what}: tensor {tensor.name!r} {why}; give one of this network")
                return False
        return True

    # ---- messages -----------------------------------------------------------------------

    @property
    def _logger(self) -> ILogger:
        return self._builder.logger

    def _say(self, severity: Severity, message: str) -> None:
        tell(self._logger, severity, message)

    def _complain(self, message: str | BrazeError) -> None:
        """Log an error and hand it to the recorder."""
        reporter, where = self._builder._reporter, "INetworkDefinition"
        also = [] if self.error_recorder is None else [self.error_recorder]
        if isinstance(message, str):
            reporter.error(where, ErrorCodeTRT.INVALID_ARGUMENT, message, also)
        else:
            reporter.raised(where, message, also)

    def _is_typed(self, what: str) -> bool:
        """Whether the network is strongly typed, which `what` contradicts: an error is logged."""
        if self.strongly_typed:
            self._complain(f"{what} cannot be set: the network is strongly typed")
        return self.strongly_typed
