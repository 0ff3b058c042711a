"""Small networks around single ops that exporters write in ways of their own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class Regions(nn.Module):
    """Parts of images as detectors cut them out; a ratio of 0 samples by the size of each part."""

    def __init__(self, aligned: bool, ratio: int) -> None:
        super().__init__()
        self.aligned, self.ratio = aligned, ratio

    def forward(self, x: Tensor, corners: Tensor) -> Tensor:
        from torchvision.ops import roi_align

        low, high = corners[:, :2] * 8, corners[:, 2:] * 8 + 8
        boxes = torch.cat([torch.zeros_like(low[:, :1]), low, high], 1)
        return roi_align(x, boxes, (3, 3), 1.0, self.ratio, self.aligned)


class Deforms(nn.Module):
    """A deformable convolution whose offsets and mask are computed."""

    def __init__(self) -> None:
        super().__init__()
        from torchvision.ops import DeformConv2d

        self.offset, self.mask = nn.Conv2d(4, 18, 3, padding=1), nn.Conv2d(4, 9, 3, padding=1)
        self.conv = DeformConv2d(4, 6, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(x, self.offset(x), torch.sigmoid(self.mask(x)))


class Warps(nn.Module):
    """A spatial transformer: an affine grid, and samples of it."""

    def __init__(self, mode: str, padding: str) -> None:
        super().__init__()
        self.theta, self.mode, self.padding = nn.Linear(4, 6), mode, padding

    def forward(self, x: Tensor) -> Tensor:
        theta = self.theta(x.mean((2, 3))).view(-1, 2, 3)
        grid = F.affine_grid(theta, list(x.shape), align_corners=False)
        return F.grid_sample(x, grid, self.mode, self.padding, align_corners=False)


class Spectrogram(nn.Module):
    """Magnitudes of short spectra."""

    def forward(self, x: Tensor) -> Tensor:
        window = torch.hann_window(16)
        pairs = torch.stft(x, 16, 8, window=window, center=False, return_complex=False)
        return pairs.square().sum(-1).sqrt()


class Mixes(nn.Module):
    """Fourier mixing, there and back."""

    def forward(self, x: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(x, dim=-1)
        return torch.fft.irfft(spectrum * torch.abs(spectrum), n=x.shape[-1], dim=-1)


class Writes(nn.Module):
    """Rows that are put at places, added at places, and where a mask says."""

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        y = x.index_put((at,), torch.tanh(x[: at.shape[0]]))
        y = y.scatter_add(0, at.unsqueeze(1).expand(-1, x.shape[1]), x[: at.shape[0]])
        return y.masked_fill(y > 1, 0.5)


class Attends(nn.Module):
    """Attention as torch's one op, causal."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Boxes(nn.Module):
    """A head that reads distances from distributions, as YOLO does."""

    def forward(self, x: Tensor) -> Tensor:
        b, _, n = x.shape
        places = torch.arange(8, dtype=x.dtype)
        sides = x.view(b, 4, 8, n).softmax(2).mul(places.view(1, 1, 8, 1)).sum(2)
        low, high = sides.chunk(2, 1)
        return torch.cat([(high - low) / 2, high + low], 1)


class Patches(nn.Module):
    """Unfolded into patches and folded back, between resizings."""

    def forward(self, x: Tensor) -> Tensor:
        y = F.interpolate(x, scale_factor=2.0, mode="bicubic", align_corners=False)
        y = F.fold(F.unfold(y, 2, stride=2), (16, 16), 2, stride=2)
        y = F.pixel_unshuffle(F.pixel_shuffle(torch.cat([y] * 4, 1), 2), 2)
        return F.interpolate(y, size=(5, 7), mode="bilinear", align_corners=True)


class Dilated(nn.Module):
    """Dilated convolutions over time: gated as WaveNet's, or residual and causal as a TCN's."""

    def __init__(self, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        wide = 16 if gated else 8
        self.convs = nn.ModuleList(nn.Conv1d(8, wide, 3, dilation=2**k) for k in range(3))
        self.skips = nn.ModuleList(nn.Conv1d(8, 8, 1) for _ in range(3))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        total = torch.zeros_like(x)
        for k, (conv, skip) in enumerate(zip(self.convs, self.skips, strict=True)):
            y = conv(F.pad(x, (2 * 2**k, 0)))
            if self.gated:
                a, b = y.chunk(2, 1)
                y = torch.tanh(a) * torch.sigmoid(b)
            x = (x + F.relu(y)) * mask
            total = total + skip(x) * mask
        return total


class Selects(nn.Module):
    """The largest of what is summed so far, and the places they had."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        best, at = torch.topk(torch.cumsum(x, 1), 3, dim=1)
        return best, torch.gather(x, 1, at)


class Sums(nn.Module):
    """Products by letters."""

    def forward(self, x: Tensor, y: Tensor) -> Any:
        return torch.einsum("bsd,btd->bst", x, y), torch.einsum("bsd,bsd->bs", x, x)
