"""Rotated rectangles around sets of points, in plain numpy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Box:
    """A rotated rectangle: centre, half extents along `axis` and across it, and a unit axis.

    `axis` points along the text (to the right when the picture is upright).
    """

    center: tuple[float, float]
    half: tuple[float, float]
    axis: tuple[float, float]

    def corners(self) -> Array:
        """Corners [4, 2] as (x, y): top left, top right, bottom right, bottom left."""
        along = np.array(self.axis) * self.half[0]
        down = np.array([-self.axis[1], self.axis[0]]) * self.half[1]
        c = np.array(self.center)
        return np.stack([c - along - down, c + along - down, c + along + down, c - along + down])

    def grown(self, distance: float) -> Box:
        """The box with every side moved outwards by `distance`."""
        return Box(self.center, (self.half[0] + distance, self.half[1] + distance), self.axis)

    def scaled(self, sx: float, sy: float) -> Box:
        """The box in a picture whose sides are scaled; nearly equal scales keep it a rectangle."""
        along = np.array(self.axis) * self.half[0] * (sx, sy)
        down = np.array([-self.axis[1], self.axis[0]]) * self.half[1] * (sx, sy)
        width, height = float(np.hypot(*along)), float(np.hypot(*down))
        axis = along / width
        center = (self.center[0] * sx, self.center[1] * sy)
        return Box(center, (width, height), (float(axis[0]), float(axis[1])))


def convex_hull(points: Array) -> Array:
    """Hull [k, 2] of points [n, 2], counter-clockwise (Andrew's monotone chain)."""
    unique = np.unique(points, axis=0)
    if len(unique) <= 2:
        return unique
    halves = [_chain(unique), _chain(unique[::-1])]
    return np.array(halves[0][:-1] + halves[1][:-1])


def _chain(points: Array) -> list[Array]:
    out: list[Array] = []
    for p in points:
        while len(out) >= 2:
            (ax, ay), (bx, by) = out[-1] - out[-2], p - out[-2]
            if ax * by - ay * bx > 0:
                break
            out.pop()
        out.append(p)
    return out


def smallest_box(points: Array) -> Box:
    """The rotated rectangle of least area around points [n, 2]; one of its sides lies on a hull
    edge. Its axis is the one nearer to horizontal for wide boxes, and to the right always.
    """
    hull = convex_hull(np.asarray(points, np.float64))
    edges = np.roll(hull, -1, axis=0) - hull
    lengths = np.hypot(edges[:, 0], edges[:, 1])
    kept = edges[lengths > 0] / lengths[lengths > 0, None]
    axes = np.concatenate([kept, [[1.0, 0.0]]])
    across = np.stack([-axes[:, 1], axes[:, 0]], 1)
    u, v = hull @ axes.T, hull @ across.T
    extent_u, extent_v = np.ptp(u, axis=0), np.ptp(v, axis=0)
    best = int(np.argmin(extent_u * extent_v))
    axis, half = axes[best], (extent_u[best] / 2, extent_v[best] / 2)
    mid_u = (u[:, best].max() + u[:, best].min()) / 2
    mid_v = (v[:, best].max() + v[:, best].min()) / 2
    center = mid_u * axis + mid_v * across[best]
    if abs(axis[0]) < abs(axis[1]):
        axis, half = np.array([-axis[1], axis[0]]), (half[1], half[0])
    if axis[0] < 0:
        axis = -axis
    return Box(
        (float(center[0]), float(center[1])),
        (float(half[0]), float(half[1])),
        (float(axis[0]), float(axis[1])),
    )
