"""Recurrent networks as people write them: taggers, streams with their state, OCR, voice."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CELLS: dict[str, type[nn.Module]] = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Sequence(nn.Module):
    """A recurrence over a sequence, and its last state."""

    def __init__(self, cell: str, **options: Any) -> None:
        super().__init__()
        self.net = CELLS[cell](8, 16, **{"batch_first": True, **options})

    def forward(self, x: Tensor) -> Any:
        return self.net(x)


class Stream(nn.Module):
    """A step: the state comes in and goes out."""

    def __init__(self, cell: str, layers: int = 1) -> None:
        super().__init__()
        self.net = CELLS[cell](8, 16, layers, batch_first=True)
        self.head = nn.Linear(16, 3)
        self.two = cell == "lstm"

    def forward(self, x: Tensor, h: Tensor, c: Tensor) -> Any:
        y, state = self.net(x, (h, c) if self.two else h)
        return self.head(y), state, c + 1


class Packed(nn.Module):
    """Padded sequences with their lengths."""

    def __init__(self, cell: str, both: bool = True) -> None:
        super().__init__()
        self.net = CELLS[cell](8, 16, batch_first=True, bidirectional=both)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        y, state = self.net(packed)
        return pad_packed_sequence(y, batch_first=True)[0], state


class Tagger(nn.Module):
    """Words, a recurrence in both directions, a label for each word."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)
        self.net = nn.LSTM(8, 16, 2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(32, 5)

    def forward(self, ids: Tensor) -> Any:
        return self.head(self.net(self.words(ids))[0]).log_softmax(-1)


class Reader(nn.Module):
    """CRNN: convolutions over a line of text, a recurrence along it."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Conv2d(16, 16, (8, 1)), nn.ReLU(),
        )  # fmt: skip
        self.net = nn.LSTM(16, 16, 2, bidirectional=True)
        self.head = nn.Linear(32, 11)

    def forward(self, x: Tensor) -> Any:
        y, _ = self.net(self.look(x).squeeze(2).permute(2, 0, 1))
        return self.head(y)


class Voice(nn.Module):
    """A voice detector: a window of samples and a state, a probability and the next state."""

    def __init__(self) -> None:
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv1d(1, 8, 8, 4), nn.ReLU(), nn.Conv1d(8, 16, 4, 2), nn.ReLU()
        )
        self.net = nn.LSTMCell(16, 16)
        self.head = nn.Conv1d(16, 1, 1)

    def forward(self, x: Tensor, state: Tensor) -> Any:
        y = self.look(x.unsqueeze(1)).mean(-1)
        h, c = self.net(y, (state[0], state[1]))
        return self.head(h.relu().unsqueeze(-1)).sigmoid().squeeze(-1), torch.stack([h, c])


class Attends(nn.Module):
    """A decoder's step over what an encoder saw, with additive attention."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 8)
        self.query, self.key, self.score = nn.Linear(16, 8), nn.Linear(16, 8), nn.Linear(8, 1)
        self.cell, self.head = nn.GRUCell(24, 16), nn.Linear(32, 30)

    def forward(self, word: Tensor, h: Tensor, seen: Tensor) -> Any:
        near = self.score(torch.tanh(self.query(h)[:, None] + self.key(seen))).softmax(1)
        context = (near * seen).sum(1)
        h = self.cell(torch.cat([self.words(word), context], -1), h)
        return self.head(torch.cat([h, context], -1)), h


class Speaks(nn.Module):
    """Tacotron's encoder: words, convolutions, a recurrence."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(40, 16)
        self.look = nn.Sequential(*(
            m for _ in range(3)
            for m in (nn.Conv1d(16, 16, 5, padding=2), nn.BatchNorm1d(16), nn.ReLU())
        ))  # fmt: skip
        self.net = nn.LSTM(16, 8, batch_first=True, bidirectional=True)

    def forward(self, ids: Tensor) -> Any:
        return self.net(self.look(self.words(ids).transpose(1, 2)).transpose(1, 2))[0]


class Separates(nn.Module):
    """A dual-path block: recurrences along two axes in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.LSTM(8, 8, batch_first=True, bidirectional=True)
        self.columns = nn.GRU(8, 8, batch_first=True)
        self.back, self.norm = nn.Linear(16, 8), nn.GroupNorm(1, 8)

    def forward(self, x: Tensor) -> Any:
        b, c, h, w = x.shape
        y = self.rows(x.permute(0, 2, 3, 1).reshape(b * h, w, c))[0]
        x = x + self.norm(self.back(y).reshape(b, h, w, c).permute(0, 3, 1, 2))
        y = self.columns(x.permute(0, 3, 2, 1).reshape(b * w, h, c))[0]
        return x + y.reshape(b, w, h, c).permute(0, 3, 2, 1)


class Unrolled(nn.Module):
    """A cell in a Python loop, as tracing unrolls it."""

    def __init__(self, cell: str = "gru") -> None:
        super().__init__()
        self.cell = {"gru": nn.GRUCell, "lstm": nn.LSTMCell}[cell](8, 8)
        self.two = cell == "lstm"

    def forward(self, x: Tensor) -> Any:
        h = x.new_zeros(x.shape[0], 8)
        c = h
        steps = []
        for t in range(x.shape[1]):
            if self.two:
                h, c = self.cell(x[:, t], (h, c))
            else:
                h = self.cell(x[:, t], h)
            steps.append(h)
        return torch.stack(steps, 1)
