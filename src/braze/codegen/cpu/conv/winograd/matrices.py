"""The matrices of Winograd's minimal filtering F(m, 3), and weights transformed by them.

From A. Lavin and S. Gray, "Fast Algorithms for Convolutional Neural Networks" (2016), section 4:
an m x m tile of outputs of a 3x3 convolution is A^T [(G g G^T) * (B^T d B)] A for the (m+2) x (m+2)
patch d of the input under it, with an elementwise product.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Matrix = tuple[tuple[float, ...], ...]
_AT_ONCE: Final = 1 << 13  # windows whose numbers stay in the cache

INPUT: Final[dict[int, Matrix]] = {  # B^T
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
WEIGHT: Final[dict[int, Matrix]] = {  # G
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
OUTPUT: Final[dict[int, Matrix]] = {  # A^T
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}


def tap_places(size: int) -> tuple[tuple[int, int], ...]:
    """Where the nine taps themselves are found: (number of a matrix [C, K], factor to its numbers).

    Corners are among the points, scaled by a power of two; the others follow the points.
    """
    g, patch = WEIGHT[size], size + 2
    corner = {0: (0, g[0][0]), 2: (patch - 1, g[-1][2])}
    places, number = [], patch * patch
    for i in range(3):
        for j in range(3):
            if i == 1 or j == 1:
                places.append((number, 1))
                number += 1
                continue
            (row, high), (column, wide) = corner[i], corner[j]
            places.append((row * patch + column, round(1 / (high * wide))))
    return tuple(places)


def transform_weights(weight: NDArray[Any], size: int) -> NDArray[Any]:
    """[K, C, 3, 3] -> [(size + 2)**2, C, K], computed in float64."""
    g = np.asarray(WEIGHT[size], np.float64)
    out_channels, in_channels = weight.shape[:2]
    # G w G^T of many windows as one product; rows of `kron` are points, columns are taps
    kron = np.kron(g, g)
    points = np.empty((len(kron), in_channels, out_channels), weight.dtype)
    step = max(1, _AT_ONCE // max(1, out_channels))
    for start in range(0, in_channels, step):
        some = weight[:, start : start + step].transpose(2, 3, 1, 0).astype(np.float64)
        points[:, start : start + step] = np.tensordot(kron, some.reshape(9, *some.shape[2:]), 1)
    return points
