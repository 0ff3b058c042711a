"""ParserError: what was wrong with which node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from braze.core.errors import BrazeError, DTypeError, InternalError, ShapeError, UnsupportedOpError
from braze.frontend.onnx.findings import NoSuchOpError
from braze.tensorrt.enums_build import ErrorCode

# texts of these name no node; those of others do even where there is none, as in TensorRT
_WITHOUT_NODE: Final = (ErrorCode.MODEL_DESERIALIZE_FAILED, ErrorCode.REFIT_FAILED)


class ParserError:
    """One error of a parser. node: the place of the node in the model, -1 for the model itself."""

    def __init__(
        self,
        code: ErrorCode,
        desc: str,
        node: int = -1,
        name: str = "",
        operator: str = "",
        file: str = "",
        functions: Sequence[str] = (),
    ) -> None:
        self._code, self._desc, self._node = code, desc, node
        self._name, self._operator, self._file = name, operator, file
        self._functions = list(functions)

    def code(self) -> ErrorCode:
        """What kind of error it is."""
        return self._code

    def desc(self) -> str:
        """What is wrong, and how to go on."""
        return self._desc

    def file(self) -> str:
        """The file of the model, "" where it was given as bytes."""
        return self._file

    def line(self) -> int:
        """The place of the node in the file: models have no lines."""
        return max(self._node, 0)

    def func(self) -> str:
        """What was being done."""
        return "parse"

    def node(self) -> int:
        """The place of the node in the model."""
        return self._node

    def node_name(self) -> str:
        """What the node is called."""
        return self._name

    def node_operator(self) -> str:
        """The op of the node."""
        return self._operator

    def local_function_stack(self) -> list[str]:
        """The functions of the model that the node is in, the outermost first."""
        return list(self._functions)

    def local_function_stack_size(self) -> int:
        """How many these are."""
        return len(self._functions)

    def __str__(self) -> str:
        at = f"In node {self._node} with name: {self._name} and operator: {self._operator} "
        text = f"({self.func()}): {self._code}: {self._desc}"
        return text if self._code in _WITHOUT_NODE else at + text

    __repr__ = __str__


def code_of(error: BrazeError) -> ErrorCode:
    """The kind of an error of the core."""
    kinds: tuple[tuple[type[BrazeError], ErrorCode], ...] = (
        (NoSuchOpError, ErrorCode.UNSUPPORTED_NODE),
        (UnsupportedOpError, ErrorCode.UNSUPPORTED_NODE),
        (ShapeError, ErrorCode.UNSUPPORTED_NODE_SHAPE),
        (DTypeError, ErrorCode.UNSUPPORTED_NODE_DATATYPE),
        (InternalError, ErrorCode.INTERNAL_ERROR),
    )
    return next((code for kind, code in kinds if isinstance(error, kind)), ErrorCode.INVALID_NODE)
