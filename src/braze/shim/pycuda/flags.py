"""The flags of `pycuda.driver`: accepted, as none of them changes what the host does."""

from __future__ import annotations

from enum import IntFlag


class Flags(IntFlag):
    """Flags are accepted; on the host none of them changes what is done."""


class host_alloc_flags(Flags):
    """Of page-locked memory."""

    PORTABLE = 1
    DEVICEMAP = 2
    WRITECOMBINED = 4


class mem_attach_flags(Flags):
    """Of managed memory."""

    GLOBAL = 1
    HOST = 2
    SINGLE = 4


class mem_host_register_flags(Flags):
    """Of registered memory."""

    PORTABLE = 1
    DEVICEMAP = 2


class ctx_flags(Flags):
    """Of contexts."""

    SCHED_AUTO = 0
    SCHED_SPIN = 1
    SCHED_YIELD = 2
    BLOCKING_SYNC = 4
    SCHED_MASK = 7
    MAP_HOST = 8
    LMEM_RESIZE_TO_MAX = 16


class event_flags(Flags):
    """Of events."""

    DEFAULT = 0
    BLOCKING_SYNC = 1
    DISABLE_TIMING = 2
    INTERPROCESS = 4
