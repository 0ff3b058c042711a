"""What single channels of tensors hold over all calibration data: largest sizes and means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass
class Channels:
    """axes: tensor -> the axis of its channels."""

    axes: Mapping[str, int]
    sizes: dict[str, Array] = field(default_factory=dict)
    sums: dict[str, Array] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, tensors: Mapping[str, Array]) -> None:
        """Count one feed's tensors."""
        for name, axis in self.axes.items():
            x = tensors.get(name)
            if x is None or not x.size:
                continue
            rows = np.moveaxis(x, axis, 0).reshape(x.shape[axis], -1).astype(np.float64)
            size, total = np.abs(rows).max(1), rows.sum(1)
            self.sizes[name] = np.maximum(self.sizes.get(name, 0.0), size)
            self.sums[name] = self.sums.get(name, 0.0) + total
            self.counts[name] = self.counts.get(name, 0) + rows.shape[1]

    def mean(self, name: str) -> Array | None:
        """The mean of each channel."""
        return self.sums[name] / self.counts[name] if name in self.sums else None
