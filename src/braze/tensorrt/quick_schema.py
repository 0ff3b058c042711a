"""What functions of `tensorrt.plugin.register` declare, and the calls that fit.

As in TensorRT: annotated tensors first, then attributes without default values, which calls give by
name, in order and in exactly the types declared. All else is a ValueError.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, get_args, get_origin

import numpy as np

from braze.tensorrt.quick_tensors import TensorDesc
from braze.tensorrt.tensor import ITensor

_PLAIN: Final = (int, float, bytes, bool, str)
_ARRAYS: Final = tuple(np.dtype(c) for c in "bhilefd?")  # int8..int64, float16..float64, bool
_TAKEN: Final = ("outputs", "stream", "tactic")  # what implementations get besides
_KINDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True)
class Schema:
    """The tensors of a plugin, and its attributes with their annotations, in order."""

    tensors: tuple[str, ...]
    attributes: Mapping[str, Any]

    def bound(
        self, arguments: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[ITensor], dict[str, Any]]:
        """Tensors and attributes of a call; raises ValueError for one that does not fit."""
        for argument in arguments:
            if not isinstance(argument, ITensor):
                raise ValueError(
                    f"an ITensor is expected, not {argument!r}; give attributes by their names"
                )
        if len(arguments) != len(self.tensors) or list(named) != list(self.attributes):
            names = ", ".join(f"{n}=" for n in self.attributes) or "no attributes"
            raise ValueError(
                f"the plugin takes {len(self.tensors)} tensors and then, in this order, {names}; "
                f"it was given {len(arguments)} and {', '.join(named) or 'no attributes'}"
            )
        for name, value in named.items():
            _check_value(name, value, self.attributes[name])
        return list(arguments), dict(named)


def schema_of(describe: Callable[..., Any], lazy: bool) -> Schema:
    """What a function declares; raises ValueError for a signature that plugins cannot have.

    lazy: whether arrays may leave their element types open.
    """
    try:
        signature = inspect.signature(describe, eval_str=True)
    except (NameError, AttributeError, SyntaxError, TypeError) as e:
        raise ValueError(f"the annotations of {describe!r} cannot be read: {e}") from e
    tensors: list[str] = []
    attributes: dict[str, Any] = {}
    for name, parameter in signature.parameters.items():
        _check_parameter(parameter)
        if _is_tensor(parameter.annotation):
            if attributes:
                raise ValueError(f"tensor {name!r} is behind attributes; put tensors first")
            tensors.append(name)
            continue
        if not tensors:
            raise ValueError(f"attribute {name!r} is in front of the tensors; put tensors first")
        _check_attribute(name, parameter.annotation, lazy)
        attributes[name] = parameter.annotation
    _check_result(signature.return_annotation)
    return Schema(tuple(tensors), attributes)


def element_type(annotation: Any) -> np.dtype[Any] | None:
    """The element type that NDArray[type] names; None where it names none."""
    parts = get_args(annotation)
    named = get_args(parts[1]) if len(parts) > 1 else ()
    try:
        return np.dtype(named[0]) if named and named[0] is not Any else None
    except TypeError:
        return None


def is_array(annotation: Any) -> bool:
    """Whether an annotation stands for arrays of numpy."""
    return annotation is np.ndarray or get_origin(annotation) is np.ndarray


def _is_tensor(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, TensorDesc)


def _check_parameter(parameter: inspect.Parameter) -> None:
    name = parameter.name
    if parameter.kind not in _KINDS:
        raise ValueError(f"argument {name!r} cannot be given by name; declare it plainly")
    if parameter.annotation is inspect.Parameter.empty:
        raise ValueError(
            f"argument {name!r} has no annotation; mark it as TensorDesc or as one of "
            "int, float, bytes, bool, str and numpy.typing.NDArray[type]"
        )
    if parameter.default is not inspect.Parameter.empty:
        raise ValueError(f"argument {name!r} has a default value; leave that out")


def _check_attribute(name: str, annotation: Any, lazy: bool) -> None:
    if name in _TAKEN:
        raise ValueError(f"no attribute may be called {name!r}; give it another name")
    if annotation in _PLAIN:
        return
    kind = element_type(annotation) if is_array(annotation) else None
    # numpy takes None for float64, so that it must not be looked for among types
    named = kind is not None and kind in _ARRAYS
    if not (named or (lazy and is_array(annotation))):
        raise ValueError(
            f"attribute {name!r} is of {annotation}, which is none of int, float, bytes, bool, str "
            "and numpy.typing.NDArray[type] of integers, floats or bool"
        )


def _check_result(annotation: Any) -> None:
    told = get_args(annotation) if get_origin(annotation) is tuple else (annotation,)
    if not all(map(_is_tensor, told)):
        what = "nothing" if annotation is inspect.Signature.empty else repr(annotation)
        raise ValueError(f"{what} is annotated as returned; say TensorDesc or Tuple[TensorDesc]")


def _check_value(name: str, value: Any, annotation: Any) -> None:
    if is_array(annotation) and isinstance(value, np.ndarray):
        wanted = element_type(annotation)
        if wanted is not None and value.dtype != wanted:
            raise ValueError(f"attribute {name!r} is of {value.dtype}; {wanted} is expected")
    elif type(value) is not annotation:
        expected = getattr(annotation, "__name__", annotation)
        raise ValueError(f"attribute {name!r} is {value!r}; {expected} is expected")
