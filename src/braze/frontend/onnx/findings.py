"""What an import found wrong, node by node, and the one error that reports all of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from braze.core.errors import (
    BrazeError,
    ExecutionError,
    InternalError,
    ModelError,
    UnsupportedOpError,
)
from braze.frontend.onnx.records import NodeRecord
from braze.ops.base import ContentNeededError

MAX_LISTED = 100


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one node can be built.

    node, op_type, domain: the ONNX node ("" for a finding about a graph input or output); reason:
    why not, one sentence that names the node ("" when supported, or a note); command: the same in
    the words of the command line, where those differ; error: the class of error it is;
    inputs: graph inputs whose content, when given with `values`, may lift the refusal; contents,
    sizes: those whose content, or of which only sizes, decide it; cause: what was raised, when that
    was no BrazeError (a bug of ours).
    """

    node: str
    op_type: str
    domain: str
    supported: bool
    reason: str = ""
    command: str = ""
    error: type[BrazeError] | None = None
    inputs: tuple[str, ...] = ()
    contents: frozenset[str] = frozenset()
    sizes: frozenset[str] = frozenset()
    cause: Exception | None = None


class ImportRefusal(UnsupportedOpError):
    """UnsupportedOpError with the findings behind it."""

    def __init__(self, message: str, command: str = "", findings: Sequence[Finding] = ()) -> None:
        super().__init__(message, command)
        self.findings = tuple(findings)


class NoSuchOpError(UnsupportedOpError):
    """braze has no such op, whatever the node's attributes, types and shapes are."""


def node_error(node: NodeRecord, error: Exception) -> BrazeError:
    """`error` as a BrazeError whose message names the node."""
    text = str(error)
    if isinstance(error, ContentNeededError):
        return UnsupportedOpError(text if node.name in text else f"{node.where}: {text}")
    if isinstance(error, BrazeError):
        if node.name in text:
            return error
        return type(error)(f"{node.where}: {text}", f"{node.where}: {error.command}")
    if isinstance(error, MemoryError):
        return ExecutionError(f"{node.where}: memory ran out while it was imported ({text})")
    return InternalError(
        f"{node.where}: its import failed ({type(error).__name__}: {text}), which is a bug of "
        "braze; please report it with the model"
    )


def raise_findings(findings: Sequence[Finding]) -> None:
    """Raise one error that lists every finding that is not supported; nothing when there is none.

    The class is UnsupportedOpError when any finding is one, else that of the first finding.
    """
    bad = [f for f in findings if not f.supported]
    if not bad:
        return
    messages = _listed(f.reason for f in bad), _listed(f.command or f.reason for f in bad)
    cause = next((f.cause for f in bad if f.cause is not None), None)
    if any(f.error is not None and issubclass(f.error, UnsupportedOpError) for f in bad):
        raise ImportRefusal(*messages, bad) from cause
    raise (bad[0].error or ModelError)(*messages) from cause


def _listed(reasons: Iterable[str]) -> str:
    """The one reason there is, or a sentence that counts them and a line for each."""
    lines = list(dict.fromkeys(reasons))
    if len(lines) == 1:
        return lines[0]
    shown = lines[:MAX_LISTED]
    if len(lines) > len(shown):
        shown.append(f"... and {len(lines) - len(shown)} more")
    return "\n  ".join([f"{len(lines)} problems keep this model from being built:", *shown])
