"""Networks whose course or sizes depend on their data."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


def scripted(name: str) -> nn.Module:
    """One of those below with its control flow kept: compiled before it is exported."""
    return torch.jit.script(globals()[name]())


class Branch(nn.Module):
    """One of two networks."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (
            nn.Linear(8, 8),
            nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8)),
        )

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.sum() > 0):
            return self.a(x)
        else:
            return self.b(x) * 2.0


class Repeat(nn.Module):
    """A layer as often as the input says."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor, times: Tensor) -> Tensor:
        for _ in range(int(times)):
            x = torch.tanh(self.a(x))
        return x


class Until(nn.Module):
    """Halves until it is small."""

    def forward(self, x: Tensor) -> Tensor:
        while bool(x.abs().max() > 0.1):
            x = x * 0.5
        return x


class Cell(nn.Module):
    """A recurrent cell without the checks of torch's own, which no exporter takes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(self.a(x) + self.b(h))


class Greedy(nn.Module):
    """A decoder that appends its own words until it says stop."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.cell, self.head = nn.Embedding(20, 8), Cell(), nn.Linear(8, 20)

    def forward(self, h: Tensor) -> Tensor:
        word = (h.sum(-1) * 0.0).long()
        said = word.unsqueeze(1)
        step = 0
        while step < 8 and bool((word != 3).any()):
            h = self.cell(self.words(word), h)
            word = self.head(h).argmax(-1)
            said = torch.cat([said, word.unsqueeze(1)], 1)
            step += 1
        return said


class Rows(nn.Module):
    """A loop over the steps of a sequence that collects its results."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = Cell()

    def forward(self, x: Tensor) -> Tensor:
        h = x[:, 0] * 0.0
        steps: list[Tensor] = []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            steps.append(h)
        return torch.stack(steps, 1)


class Early(nn.Module):
    """Leaves after the first layer where that is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.relu(self.a(x))
        p = self.head(y).softmax(-1)
        if bool(p.max() < 0.9):
            y = torch.relu(self.b(y))
            p = self.head(y).softmax(-1)
        return p, y


class Cond(nn.Module):
    """torch.cond."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, self.a, lambda x: x.relu() - 1, (x,))


class While(nn.Module):
    """torch's while_loop."""

    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.while_loop import while_loop

        start = torch.zeros((), dtype=torch.int64)
        return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 0.5 + 1), (start, x))


class Scan(nn.Module):
    """torch's scan: sums along time."""

    def forward(self, x: Tensor) -> Any:
        from torch._higher_order_ops.scan import scan

        return scan(lambda c, v: (c * 0.9 + v, (c + v).clone()), x.new_zeros(8), x, dim=0)


class Pick(nn.Module):
    """Rows by a condition, and how many there are."""

    def forward(self, x: Tensor) -> Any:
        keep = x[:, 0] > 0
        return x[keep], keep.nonzero(), keep.sum()


class Suppress(nn.Module):
    """Boxes that do not overlap better ones."""

    def forward(self, boxes: Tensor, scores: Tensor) -> Any:
        from torchvision.ops import nms

        corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
        keep = nms(corners, scores, 0.5)
        return corners[keep], scores[keep]


class Distinct(nn.Module):
    """Values without repeats."""

    def forward(self, x: Tensor) -> Any:
        return torch.unique(x, return_inverse=True, return_counts=True)


class Stretch(nn.Module):
    """Frames repeated as durations say, as a speech network's length regulator does."""

    def forward(self, x: Tensor, durations: Tensor) -> Any:
        ends = durations.cumsum(-1)
        steps = torch.arange(int(ends[-1])) if torch.jit.is_scripting() else torch.arange(
            ends[-1].item()
        )  # fmt: skip
        path = (steps[None] < ends[:, None]).float()
        path = path - nn.functional.pad(path, [0, 0, 1, 0])[:-1]
        return path.transpose(0, 1) @ x


class Write(nn.Module):
    """Rows written where a condition holds."""

    def forward(self, x: Tensor) -> Any:
        y = torch.zeros_like(x)
        keep = x > 0.5
        y[keep] = x[keep] * 2
        return y
