"""Pictures in and out: reading files, drawing a sample page, drawing what was read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, UnidentifiedImageError

from ocr.geometry import Box

ENDINGS = (".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".gif")
SAMPLE_LINES = (
    "braze reads this page",
    "Inference compilers lower graphs to kernels.",
    "Invoice 2047: total 1,938.50 EUR",
    "The quick brown fox jumps over the lazy dog",
)


class PictureError(Exception):
    """A picture could not be read."""


def list_pictures(paths: Sequence[Path]) -> list[Path]:
    """Files as they are; folders give the pictures in them, by name."""
    out: list[Path] = []
    for path in paths:
        if path.is_dir():
            out += sorted(p for p in path.iterdir() if p.suffix.lower() in ENDINGS)
        else:
            out.append(path)
    return out


def read_picture(path: Path) -> Image.Image:
    """An RGB picture; raises PictureError with a sentence."""
    try:
        with Image.open(path) as image:
            rgb: Image.Image = image.convert("RGB")
            return rgb
    except FileNotFoundError:
        raise PictureError(f"{path} does not exist") from None
    except (UnidentifiedImageError, OSError, Image.DecompressionBombError) as e:
        raise PictureError(f"{path} is not a readable picture ({e})") from None


def sample_page(lines: Sequence[str] = SAMPLE_LINES, size: int = 32) -> Image.Image:
    """A white page with lines of text."""
    font = ImageFont.load_default(size)
    margin, step = size, round(1.6 * size)
    width = round(max(font.getlength(line) for line in lines)) + 2 * margin
    page = Image.new("RGB", (width, step * len(lines) + 2 * margin), "white")
    draw = ImageDraw.Draw(page)
    for i, line in enumerate(lines):
        draw.text((margin, margin + i * step), line, fill="black", font=font)
    return page


def annotate(picture: Image.Image, found: Sequence[tuple[Box, str]]) -> Image.Image:
    """The picture with its boxes, beside a sheet that has each text where its box is.

    Characters that the drawing font lacks appear as empty frames; the printed text has them.
    """
    width, height = picture.size
    scale = max(1.0, 960 / max(width, 1))
    size = (round(width * scale), round(height * scale))
    out = Image.new("RGB", (2 * size[0], size[1]), "white")
    out.paste(picture.resize(size, Image.Resampling.BICUBIC), (0, 0))
    draw = ImageDraw.Draw(out)
    for box, text in found:
        corners = [(float(x) * scale, float(y) * scale) for x, y in box.corners()]
        draw.polygon(corners, outline=(220, 40, 40), width=2)
        font = _fitting_font(text, 2 * box.half[0] * scale, 2 * box.half[1] * scale)
        left = min(x for x, _ in corners) + size[0]
        draw.text((left, min(y for _, y in corners)), text, fill="black", font=font)
    return out


def _fitting_font(
    text: str, width: float, height: float
) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    size = max(8.0, 0.7 * height)
    font = ImageFont.load_default(size)
    length = font.getlength(text)
    return font if length <= width else ImageFont.load_default(max(8.0, size * width / length))
