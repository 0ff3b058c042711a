"""One step of a small language model of the Llama kind: one new token after some that are kept.

Touvron et al., "LLaMA: Open and Efficient Foundation Language Models" (2023); grouped queries as in
Ainslie et al., "GQA" (2023). At batch 1 a step reads every weight once and computes little, so
that memory bandwidth is all there is to it.
"""

from __future__ import annotations

import math

import torch
from torch.nn import functional

LAYERS, WIDTH, HEADS, GROUPS, INNER, WORDS, PAST = 6, 2048, 32, 8, 5632, 32000, 512
SIZE = WIDTH // HEADS
BASE, EPSILON = 10000.0, 1e-5


class Norm(torch.nn.Module):
    """Root mean square normalisation, in float32."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.float()
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return (wide * scale).to(x.dtype) * self.weight


class Layer(torch.nn.Module):
    """Attention over kept and new keys, then a gated unit; fused: attention as one operator."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        linear = torch.nn.Linear
        self.fused = fused
        self.q, self.o = (linear(WIDTH, WIDTH, bias=False) for _ in range(2))
        self.k, self.v = (linear(WIDTH, GROUPS * SIZE, bias=False) for _ in range(2))
        self.gate, self.up = (linear(WIDTH, INNER, bias=False) for _ in range(2))
        self.down = linear(INNER, WIDTH, bias=False)
        self.norms = torch.nn.ModuleList(Norm() for _ in range(2))

    def forward(
        self, x: torch.Tensor, turn: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        batch, h = x.shape[0], self.norms[0](x)
        q = rotated(self.q(h).view(batch, 1, HEADS, SIZE), turn).transpose(1, 2)
        k = rotated(self.k(h).view(batch, 1, GROUPS, SIZE), turn).transpose(1, 2)
        v = self.v(h).view(batch, 1, GROUPS, SIZE).transpose(1, 2)
        y = self.attend(q, torch.cat((keys, k), 2), torch.cat((values, v), 2))
        x = x + self.o(y.transpose(1, 2).reshape(batch, 1, WIDTH))
        h = self.norms[1](x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h)), k, v

    def attend(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        if self.fused:
            return functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        scores = q @ k.transpose(2, 3) / math.sqrt(SIZE)
        return torch.softmax(scores, -1) @ v


def rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Rotary positions; turn: [2, SIZE], cosines and sines."""
    low, high = x.chunk(2, -1)
    return x * turn[0] + torch.cat((-high, low), -1) * turn[1]


class Decoder(torch.nn.Module):
    """Inputs: ids [B, 1], kept keys and values [LAYERS, B, GROUPS, PAST, SIZE]; outputs: logits and
    the new keys and values [LAYERS, B, GROUPS, 1, SIZE]."""

    turn: torch.Tensor

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, WIDTH)
        self.layers = torch.nn.ModuleList(Layer(fused) for _ in range(LAYERS))
        self.norm, self.head = Norm(), torch.nn.Linear(WIDTH, WORDS, bias=False)
        angles = PAST / BASE ** (torch.arange(0, SIZE, 2) / SIZE)
        both = torch.cat((angles, angles))
        self.register_buffer("turn", torch.stack((both.cos(), both.sin())))

    def forward(
        self, ids: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x, new = self.words(ids), []
        for i, layer in enumerate(self.layers):
            x, k, v = layer(x, self.turn, keys[i], values[i])
            new.append((k, v))
        made = (torch.stack([pair[i] for pair in new]) for i in range(2))
        return (self.head(self.norm(x)), *made)


def decoder_feed(batch: int) -> tuple[torch.Tensor, ...]:
    """A token and random keys and values."""
    shape = (LAYERS, batch, GROUPS, PAST, SIZE)
    ids = torch.randint(0, WORDS, (batch, 1))
    return ids, torch.randn(shape).half(), torch.randn(shape).half()
