"""Network inputs from real files: speech to samples and mel spectra, photographs to arrays."""

from __future__ import annotations

import wave
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Array = np.ndarray[Any, Any]
SPEECH_RATE = 16000


def speech(data: Path) -> Array:
    """A sentence of a public audio book: float32 samples in -1..1 at 16 kHz."""
    with wave.open(str(data / "speech_librivox_0870.wav")) as w:
        assert (w.getframerate(), w.getnchannels(), w.getsampwidth()) == (SPEECH_RATE, 1, 2)
        samples = np.frombuffer(w.readframes(w.getnframes()), "<i2")
    return samples.astype(np.float32) / 32768


def harmonic_tone(hertz: float, seconds: float) -> Array:
    """A tone with six harmonics, as a voice has."""
    t = np.arange(round(SPEECH_RATE * seconds)) / SPEECH_RATE
    parts = [np.sin(2 * np.pi * hertz * k * t) / k for k in range(1, 7)]
    return (0.1 * np.sum(parts, axis=0)).astype(np.float32)


def hertz_to_mel(hertz: Array) -> Array:
    """Slaney's mel scale: linear below 1 kHz, logarithmic above (Auditory Toolbox, 1998)."""
    above = 15 + 27 * np.log(np.maximum(hertz, 1) / 1000) / np.log(6.4)
    return np.where(hertz < 1000, 3 * hertz / 200, above)


def mel_to_hertz(mel: Array) -> Array:
    """The inverse of `hertz_to_mel`."""
    return np.where(mel < 15, 200 * mel / 3, 1000 * np.exp((mel - 15) * np.log(6.4) / 27))


def mel_filters(rate: int, window: int, count: int) -> Array:
    """Triangles of unit area [count, window // 2 + 1], evenly spaced in mel."""
    ends = hertz_to_mel(np.array([0.0, rate / 2]))
    edges = mel_to_hertz(np.linspace(ends[0], ends[1], count + 2))
    bins = np.linspace(0, rate / 2, window // 2 + 1)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    return np.clip(np.minimum(rise, fall), 0, None) * (2 / (edges[2:] - edges[:-2]))[:, None]


def mel_spectrogram(x: Array, window: int, hop: int, count: int) -> Array:
    """Power in mel bands [count, frames], Hann window, frames centred on multiples of `hop`."""
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(window) / window)
    padded = np.pad(x.astype(np.float64), window // 2)
    frames = np.lib.stride_tricks.sliding_window_view(padded, window)[::hop]
    power = np.abs(np.fft.rfft(frames * hann)) ** 2
    return mel_filters(SPEECH_RATE, window, count) @ power.T


def dnsmos_input(x: Array) -> Array:
    """[1, 900, 120]: nine seconds as mel decibels relative to the peak, scaled as DNSMOS wants."""
    nine = np.resize(x, 144160)[:-160]
    power = np.maximum(mel_spectrogram(nine, window=321, hop=160, count=120), 1e-10)
    decibel = np.maximum(10 * np.log10(power / power.max()), -80)
    return ((decibel + 40) / 40).T[None].astype(np.float32)


def picture(data: Path, name: str) -> Image.Image:
    """An RGB picture."""
    with Image.open(data / name) as image:
        return image.convert("RGB")


def centred(pixels: Array) -> Array:
    """uint8 to about -1..1, as MTCNN was trained."""
    return (pixels.astype(np.float32) - 127.5) * np.float32(0.0078125)


def nsfw_input(photo: Image.Image) -> Array:
    """[1, 224, 224, 3] blue-green-red minus the ImageNet mean."""
    middle = photo.resize((256, 256), Image.Resampling.BILINEAR).crop((16, 16, 240, 240))
    mean = np.array([104, 117, 123], np.float32)
    return np.asarray(middle, np.float32)[None, :, :, ::-1] - mean


def magika_input(content: bytes) -> Array:
    """[1, 2048] int32: the first and last 1024 bytes without outer white space, padded with 256."""
    begin = content[:4096].lstrip()[:1024]
    end = content[-4096:].rstrip()[-1024:]
    out = np.full((1, 2048), 256, np.int32)
    out[0, : len(begin)] = np.frombuffer(begin, np.uint8)
    out[0, 2048 - len(end) :] = np.frombuffer(end, np.uint8)
    return out
