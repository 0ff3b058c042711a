"""The exception tree of braze.

Every error a user can meet is a `BrazeError`. Its message is one sentence that says where
(node, op, tensor or stage), what is wrong, and how to go on; where a model has several problems, it
is one sentence that counts them and a line for each. `assert` is for bugs of ours only.
"""


class BrazeError(Exception):
    """Base of every error braze raises on purpose.

    command: the message in the words of the command line, where it advises options (`core/words`).
    """

    def __init__(self, message: str = "", command: str = "") -> None:
        super().__init__(message)
        self.command = command or message


class ModelError(BrazeError):
    """The model file or proto is damaged, inconsistent, cyclic, or reaches outside its folder."""


class UnsupportedOpError(BrazeError):
    """The model uses ops, attributes or types braze does not execute; lists all of them at once."""


class ShapeError(BrazeError):
    """Shapes do not fit an op, a binding, or each other."""


class DTypeError(BrazeError):
    """An element type does not fit an op or a binding."""


class ProfileError(BrazeError):
    """Dynamic shapes without a profile, or run-time shapes outside every profile."""


class BindingError(BrazeError):
    """An input or output name is missing, unknown, or given twice."""


class ConfigError(BrazeError):
    """A build option has a value braze does not know."""


class OptionError(ConfigError, TypeError):
    """A build option that braze does not have; a TypeError too, as Python's own of an argument."""


class VerifyError(BrazeError):
    """A pass left the graph in a state that breaks an invariant (a bug in braze: please report)."""


class EngineFormatError(BrazeError):
    """An engine file is damaged, truncated or not an engine at all."""


class EngineVersionError(BrazeError):
    """An engine file was written by an incompatible version of braze."""


class TargetError(BrazeError):
    """The engine needs a processor feature or a device this machine does not have."""


class ExecutionError(BrazeError):
    """A run failed: an index was out of range, memory ran out, or the runtime refused the call."""


class FileError(BrazeError):
    """A file cannot be read or written: it does not exist, is no file, or there is no room."""


class InternalError(BrazeError):
    """braze failed where it must not: a bug (please report it); what was raised is chained."""


class CompileError(BrazeError):
    """No kernel could be generated for a region (names the region and every refusal)."""
