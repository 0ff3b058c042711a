"""`tensorrt.plugin`: plugins as functions.

import tensorrt.plugin as trtp

@trtp.register("own::twice")
def describe(x: trtp.TensorDesc, times: int) -> trtp.TensorDesc:
    return x.like()

@trtp.impl("own::twice")
def run(x: trtp.Tensor, times: int, outputs: tuple[trtp.Tensor, ...], stream: int) -> None:
    numpy.asarray(outputs[0])[...] = numpy.asarray(x) * times

network.add_plugin(trtp.op.own.twice(x, times=2))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from braze.tensorrt.plugin_fields import ISymExprs, KernelLaunchParams
from braze.tensorrt.plugin_registry import get_plugin_registry
from braze.tensorrt.quick_plugin import QuickCreator
from braze.tensorrt.quick_schema import schema_of
from braze.tensorrt.quick_tensors import (
    AutoTuneCombination,
    ShapeExpr,
    ShapeExprs,
    Tensor,
    TensorDesc,
    cdiv,
    max_of,
    min_of,
)

max = max_of
min = min_of
Function = Callable[..., Any]


def register(plugin_id: str, lazy_register: bool = False) -> Callable[[Function], Function]:
    """The decorated function tells types and sizes of the outputs. plugin_id: "namespace::name".

    lazy_register: its arrays may leave their element types open. Raises ValueError for a function
    whose arguments and result are not annotated as `quick_schema` says.
    """
    namespace, name = _parts(plugin_id)

    def decorate(function: Function) -> Function:
        creator = QuickCreator(name, namespace, function, schema_of(function, lazy_register))
        if not get_plugin_registry().register_creator(creator, namespace):
            raise ValueError(f"plugin {plugin_id!r} is registered already")
        return function

    return decorate


def impl(plugin_id: str) -> Callable[[Function], Function]:
    """The decorated function computes the outputs."""
    return _setter(plugin_id, "implementation")


def autotune(plugin_id: str) -> Callable[[Function], Function]:
    """The decorated function tells types that the implementation takes, and tactics."""
    return _setter(plugin_id, "combinations")


def aot_impl(plugin_id: str) -> Callable[[Function], Function]:
    """The decorated function gives a kernel of a GPU, which no engine here launches."""
    return _setter(plugin_id, "kernel")


def _setter(plugin_id: str, role: str) -> Callable[[Function], Function]:
    creator = _creator(*_parts(plugin_id))

    def decorate(function: Function) -> Function:
        setattr(creator, role, function)
        return function

    return decorate


def _parts(plugin_id: str) -> tuple[str, str]:
    namespace, found, name = plugin_id.partition("::")
    if not found or not namespace or not name:
        raise ValueError(f"plugin {plugin_id!r} is not of the form namespace::name")
    return namespace, name


def _creator(namespace: str, name: str) -> QuickCreator:
    creator = get_plugin_registry().get_creator(name, "1", namespace)
    if not isinstance(creator, QuickCreator):
        raise ValueError(f"plugin {namespace}::{name} is not registered")
    return creator


class _Namespace:
    """The plugins of a namespace, as functions of tensors and attributes."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Callable[..., Any]:
        try:
            creator = _creator(self._namespace, name)
        except ValueError as e:
            raise AttributeError(str(e)) from None

        def add(*arguments: Any, **named: Any) -> Any:
            inputs, attributes = creator.schema.bound(arguments, named)
            return inputs, creator.make(attributes)

        return add


class _Namespaces:
    """`op.namespace.name(...)`: what add_plugin takes."""

    def __getattr__(self, namespace: str) -> _Namespace:
        if namespace.startswith("__"):
            raise AttributeError(namespace)
        return _Namespace(namespace)


op = _Namespaces()


def from_shape_expr(shape_expr: Any, dtype: Any) -> TensorDesc:
    """A tensor of sizes and a type."""
    return TensorDesc(shape_expr, dtype)


def size_tensor(opt: Any, upper_bound: Any) -> Any:
    """Refused: a plugin tells its sizes before it runs."""
    raise NotImplementedError(
        "sizes that a plugin finds in a run are not supported; give outputs their upper bound"
    )


__all__ = [
    "AutoTuneCombination",
    "ISymExprs",
    "KernelLaunchParams",
    "ShapeExpr",
    "ShapeExprs",
    "Tensor",
    "TensorDesc",
    "aot_impl",
    "autotune",
    "cdiv",
    "from_shape_expr",
    "impl",
    "max",
    "min",
    "op",
    "register",
    "size_tensor",
]
