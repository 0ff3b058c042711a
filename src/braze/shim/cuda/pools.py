"""Memory pools of the CUDA runtime: accepted, as the host's memory needs none."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from braze.shim.cuda import calls

THE_POOL = 1  # its handle


class cudaMemAllocationType(IntEnum):
    """How memory of a pool is made."""

    cudaMemAllocationTypeInvalid = 0
    cudaMemAllocationTypePinned = 1


class cudaMemAllocationHandleType(IntEnum):
    """How memory of a pool is shared between processes."""

    cudaMemHandleTypeNone = 0
    cudaMemHandleTypePosixFileDescriptor = 1


class cudaMemLocationType(IntEnum):
    """Where memory of a pool lies."""

    cudaMemLocationTypeInvalid = 0
    cudaMemLocationTypeDevice = 1
    cudaMemLocationTypeHost = 2


class cudaMemPoolAttr(IntEnum):
    """What can be set of a pool."""

    cudaMemPoolReuseFollowEventDependencies = 1
    cudaMemPoolReuseAllowOpportunistic = 2
    cudaMemPoolReuseAllowInternalDependencies = 3
    cudaMemPoolAttrReleaseThreshold = 4


@dataclass
class cudaMemLocation:
    """A place for memory."""

    type: int = 0
    id: int = 0


@dataclass
class cudaMemPoolProps:
    """What a pool is asked to be."""

    allocType: int = 0
    handleTypes: int = 0
    location: cudaMemLocation = field(default_factory=cudaMemLocation)
    maxSize: int = 0


def create(properties: Any) -> int:
    """A pool: there is one."""
    return THE_POOL


def malloc(size: int, pool: int, stream: int) -> int:
    """Memory of a pool in the order of a stream."""
    return calls.malloc(size)
