"""Read the text in pictures: `python -m ocr [PICTURE …]`."""

from __future__ import annotations

import argparse
import functools
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from braze.cli.progress import build_progress
from braze.core.errors import BrazeError
from ocr.engines import NETWORKS, LoadedNetwork, characters, load_network
from ocr.pictures import PictureError, annotate, list_pictures, read_picture, sample_page
from ocr.reader import Reader
from ocr.timing import Run, medians_ms, onnxruntime_run


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="ocr", description="Read the text in pictures.")
    parser.add_argument("pictures", nargs="*", type=Path, help="files or folders (a page image)")
    parser.add_argument("--models", type=Path, default=Path("models"), help="ONNX files")
    parser.add_argument("--out", type=Path, default=Path("out"), help="engines and pictures")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--rebuild", action="store_true", help="build the engines again")
    parser.add_argument("--no-timing", action="store_true", help="leave the latency table out")
    return parser.parse_args(argv)


def load_networks(args: argparse.Namespace) -> dict[str, LoadedNetwork]:
    """All three networks, built where needed."""
    loaded = {}
    args.out.mkdir(parents=True, exist_ok=True)
    for network in NETWORKS:
        start = time.perf_counter()
        print(f"{network.name}: {network.file}", flush=True)
        with build_progress() as progress:
            loaded[network.name] = load_network(
                network, args.models / network.file, args.out, args.threads, args.rebuild, progress
            )
        print(f"{network.name}: ready after {time.perf_counter() - start:.2f} s", flush=True)
    return loaded


def read_all(reader: Reader, args: argparse.Namespace) -> None:
    """Read every picture, print its lines, and write it annotated."""
    chosen = list_pictures(args.pictures)
    if not chosen:
        page = args.models / "data" / "page.png"
        if not page.exists():
            page = args.out / "sample.png"
            sample_page().save(page)
        chosen = [page]
    for path in chosen:
        picture = read_picture(path)
        start = time.perf_counter()
        lines = reader.read(picture)
        seconds = time.perf_counter() - start
        print(f"\n{path} ({picture.width}x{picture.height}), read in {seconds * 1e3:.0f} ms:")
        for line in lines:
            print(f"  {line.confidence:.3f}  {line.text}")
        if not lines:
            print("  no text found")
        target = args.out / f"{path.stem}.annotated.png"
        annotate(picture, [(x.box, x.text) for x in lines]).save(target)
        print(f"  annotated picture: {target}")


def timing_table(reader: Reader, networks: Mapping[str, LoadedNetwork], threads: int) -> str:
    """Median latency of every network on the largest input it saw."""
    rows = [f"{'network':<12} {'input':<16} {'braze':>11} {'onnxruntime':>12} {'ratio':>6}"]
    for name, x in reader.seen.items():
        loaded = networks[name]
        runs: dict[str, Run] = {"braze": functools.partial(loaded.run, x)}
        peer = onnxruntime_run(loaded.model, loaded.input_name, x, threads)
        if peer is not None:
            runs["peer"] = peer
        ms = medians_ms(runs)
        row = f"{name:<12} {'x'.join(map(str, x.shape)):<16} {ms['braze']:>8.2f} ms"
        if peer is not None:
            row += f" {ms['peer']:>9.2f} ms {ms['peer'] / ms['braze']:>5.2f}x"
        else:
            row += "  not installed"
        rows.append(row)
    return "\n".join(rows)


def main(argv: list[str] | None = None) -> int:
    """Build or load, read, and time; every error is one sentence."""
    args = parse_arguments(argv)
    try:
        networks = load_networks(args)
        alphabet = characters(args.models / NETWORKS[2].file)
        reader = Reader({name: n.run for name, n in networks.items()}, alphabet)
        read_all(reader, args)
        if not args.no_timing:
            print(f"\nMedian latency with {args.threads} threads, taken in turns:")
            print(timing_table(reader, networks, args.threads))
    except (BrazeError, PictureError, OSError) as e:
        print(f"ocr: {e}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("ocr: interrupted", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
