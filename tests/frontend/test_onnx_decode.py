"""Reading models: damaged files, tensors whose data does not fit, external data."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from braze.core.dtypes import BF16, BOOL, F16, F32, I32, U8
from braze.core.errors import FileError, ModelError
from braze.frontend.onnx.proto import load_model
from braze.frontend.onnx.records import AttributeRef, TensorRecord, Unreadable
from braze.frontend.onnx.tensors import ExternalData, decode_tensor
from tests.frontend.onnx_models import FLOAT, info, model, tensor


def relu_model(**kwargs) -> onnx.ModelProto:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    return model([node], [info("x", [2, 3])], [info("y", [2, 3])], **kwargs)


def test_path_bytes_and_proto_decode_alike(tmp_path: Path) -> None:
    proto = relu_model(initializers=[tensor("w", np.arange(6, dtype=np.float32))])
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    for source in (proto, proto.SerializeToString(), str(path), path):
        record = load_model(source)
        assert [n.op_type for n in record.graph.nodes] == ["Relu"]
        weight = record.graph.initializers["w"]
        assert isinstance(weight, TensorRecord)
        np.testing.assert_array_equal(weight.array, np.arange(6, dtype=np.float32))
        assert record.opsets == {"": 17}
        assert load_model(record) is record


@pytest.mark.parametrize(
    ("source", "error", "text"),
    [
        (b"", ModelError, "empty"),
        (b"not a model at all, just text", ModelError, "not an ONNX model"),
        ("/nonexistent/model.onnx", FileError, "cannot be read: No such file"),
        (42, ModelError, "not int"),
        (b"\x08\x08", ModelError, "no graph"),
        ("bad\0name", FileError, "cannot be read"),
    ],
)
def test_unreadable_sources(source, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        load_model(source)


def test_truncated_file(tmp_path: Path) -> None:
    data = relu_model(initializers=[tensor("w", np.ones(100, np.float32))]).SerializeToString()
    path = tmp_path / "cut.onnx"
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(ModelError, match="truncated"):
        load_model(path)


def test_oversized_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.onnx"
    with path.open("wb") as f:
        f.truncate(1 << 31)
    with pytest.raises(ModelError, match="external data"):
        load_model(path)


@pytest.mark.parametrize("version", [0, 2, 15, 1 << 40])
def test_unknown_ir_version(version: int) -> None:
    proto = relu_model()
    proto.ir_version = version
    with pytest.raises(ModelError, match="IR version"):
        load_model(proto)


def test_domain_spellings_are_one_and_conflicts_are_refused() -> None:
    proto = relu_model(domains=[("ai.onnx", 17)])
    assert load_model(proto).opsets == {"": 17}
    with pytest.raises(ModelError, match="two versions"):
        load_model(relu_model(domains=[("ai.onnx", 13)]))


def decode(proto: onnx.TensorProto):
    return decode_tensor(proto, ExternalData(None), f"tensor {proto.name!r}")


def test_every_storage_form_of_a_tensor() -> None:
    cases = [
        (TensorProto.FLOAT, [1.5, -2.0], F32, np.float32([1.5, -2.0])),
        (TensorProto.INT32, [-1, 7], I32, np.int32([-1, 7])),
        (TensorProto.UINT8, [0, 255], U8, np.uint8([0, 255])),
        (TensorProto.BOOL, [1, 0], BOOL, np.bool_([True, False])),
    ]
    for kind, data, dtype, expected in cases:
        record = decode(helper.make_tensor("t", kind, [2], data))
        assert isinstance(record, TensorRecord)
        assert record.dtype is dtype
        np.testing.assert_array_equal(record.array, expected)


def test_half_types_in_int32_data_are_bit_patterns() -> None:
    half = TensorProto(name="h", data_type=TensorProto.FLOAT16, dims=[2])
    half.int32_data.extend([0x3C00, 0xC000])
    record = decode(half)
    assert isinstance(record, TensorRecord) and record.dtype is F16
    np.testing.assert_array_equal(record.array, np.float16([1.0, -2.0]))
    brain = TensorProto(name="b", data_type=TensorProto.BFLOAT16, dims=[2])
    brain.raw_data = np.uint16([0x3F80, 0xC000]).tobytes()
    record = decode(brain)
    assert isinstance(record, TensorRecord) and record.dtype is BF16
    assert record.array.dtype == BF16.numpy
    np.testing.assert_array_equal(record.array, np.array([1, -2], BF16.numpy))


@pytest.mark.parametrize(
    "kind", [TensorProto.STRING, TensorProto.COMPLEX64, TensorProto.BFLOAT16 + 100]
)
def test_types_without_arithmetic_are_kept_as_refusals(kind: int) -> None:
    record = decode(TensorProto(name="t", data_type=kind, dims=[1]))
    assert isinstance(record, Unreadable)
    names = {v: k for k, v in TensorProto.DataType.items()}
    assert names.get(kind, f"number {kind}") in record.why


def test_lengths_that_do_not_fit_name_the_tensor() -> None:
    raw = TensorProto(name="raw", data_type=FLOAT, dims=[2, 3], raw_data=b"\0" * 20)
    with pytest.raises(ModelError, match=r"'raw'.*20 bytes.*24"):
        decode(raw)
    packed = TensorProto(name="packed", data_type=TensorProto.INT4, dims=[3], raw_data=b"\0" * 3)
    with pytest.raises(ModelError, match=r"'packed'.*3 bytes.*3 elements of int4 need 2"):
        decode(packed)
    typed = TensorProto(name="typed", data_type=FLOAT, dims=[3])
    typed.float_data.extend([1.0, 2.0])
    with pytest.raises(ModelError, match=r"'typed'.*2 elements.*3"):
        decode(typed)
    with pytest.raises(ModelError, match=r"'neg'.*negative"):
        decode(TensorProto(name="neg", data_type=FLOAT, dims=[2, -3]))
    with pytest.raises(ModelError, match=r"'huge'.*bytes"):
        decode(TensorProto(name="huge", data_type=FLOAT, dims=[1 << 40, 1 << 40]))
    wide = TensorProto(name="wide", data_type=TensorProto.INT8, dims=[1])
    wide.int32_data.append(300)
    with pytest.raises(ModelError, match="'wide'"):
        decode(wide)


def external(location: str, *, count: int = 4, **info_: int) -> onnx.TensorProto:
    t = TensorProto(name="w", data_type=FLOAT, dims=[count])
    t.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **info_}.items():
        t.external_data.add(key=key, value=str(value))
    return t


def save(folder: Path, t: onnx.TensorProto) -> Path:
    path = folder / "m.onnx"
    path.write_bytes(relu_model(initializers=[t]).SerializeToString())
    return path


def test_external_data_is_mapped(tmp_path: Path) -> None:
    content = np.arange(10, dtype=np.float32)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(content.tobytes())
    record = load_model(save(tmp_path, external("sub/w.bin", offset=8, length=16)))
    weight = record.graph.initializers["w"]
    assert isinstance(weight, TensorRecord)
    np.testing.assert_array_equal(weight.array, content[2:6])
    assert isinstance(weight.array.base, np.memmap) or isinstance(weight.array, np.memmap)


@pytest.mark.parametrize(
    ("t", "text"),
    [
        (external("gone.bin"), "does not exist"),
        (external("/etc/hosts"), "leaves the model's folder"),
        (external("../w.bin"), "leaves the model's folder"),
        (external("sub/../../w.bin"), "leaves the model's folder"),
        (external("..\\w.bin"), "leaves the model's folder"),
        (external("C:\\w.bin"), "leaves the model's folder"),
        (external(""), "no file name"),
        (external("w.bin", offset=32), "ends after"),
        (external("w.bin", offset=10**17), "ends after"),
        (external("w.bin", length=12), "length 12"),
        (external("w.bin", offset=-4), "offset '-4'"),
        (external("w.bin", offset=10**30), "offset"),
        (external("w.bin", count=1000), "ends after"),
    ],
)
def test_external_data_that_does_not_fit(tmp_path: Path, t: onnx.TensorProto, text: str) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(10, dtype=np.float32).tobytes())
    with pytest.raises(ModelError, match=text) as caught:
        load_model(save(tmp_path, t))
    assert "'w'" in str(caught.value)


def test_external_link_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside.bin"
    outside.write_bytes(b"\0" * 16)
    folder = tmp_path / "model"
    folder.mkdir()
    os.symlink(outside, folder / "w.bin")
    os.symlink(tmp_path, folder / "sub")
    for location in ("w.bin", "sub/outside.bin"):
        with pytest.raises(ModelError, match="symbolic link that leaves the model's folder"):
            load_model(save(folder, external(location)))


def cache(tmp_path: Path, place: str) -> Path:
    """A download cache: model.onnx and w.bin in `place` are links into blobs/."""
    blobs, shown = tmp_path / "blobs", tmp_path / "snapshots" / place
    blobs.mkdir()
    shown.mkdir(parents=True)
    save(blobs, external("w.bin", offset=8)).rename(blobs / "aaaa")
    (blobs / "bbbb").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    for name, blob in (("model.onnx", "aaaa"), ("w.bin", "bbbb")):
        os.symlink(os.path.relpath(blobs / blob, shown), shown / name)
    return shown / "model.onnx"


@pytest.mark.parametrize("place", ["rev", "rev/onnx"])
def test_model_and_data_behind_links(tmp_path: Path, place: str) -> None:
    path = cache(tmp_path, place)
    record = load_model(path).graph.initializers["w"]
    assert isinstance(record, TensorRecord)
    np.testing.assert_array_equal(record.array, [2, 3, 4, 5])
    # a download that broke off leaves a link to nothing
    (tmp_path / "blobs" / "bbbb").unlink()
    with pytest.raises(ModelError, match=r"symbolic link to .*bbbb.*, which does not exist"):
        load_model(path)
    # a cache whose links leave it is refused though its model is a link, too
    outside = tmp_path / "other.bin"
    outside.write_bytes(b"\0" * 64)
    os.symlink(outside, tmp_path / "blobs" / "bbbb")
    with pytest.raises(ModelError, match="leaves the model's folder"):
        load_model(path)


def test_a_link_to_a_model_finds_the_data_beside_the_model(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "w.bin").write_bytes(np.arange(4, dtype=np.float32).tobytes())
    os.symlink(save(folder, external("w.bin")), tmp_path / "short.onnx")
    record = load_model(tmp_path / "short.onnx").graph.initializers["w"]
    assert isinstance(record, TensorRecord)
    np.testing.assert_array_equal(record.array, [0, 1, 2, 3])


def test_external_data_needs_a_path() -> None:
    proto = relu_model(initializers=[external("w.bin")])
    with pytest.raises(ModelError, match="pass the model as a path"):
        load_model(proto.SerializeToString())


def sparse_model(indices: np.ndarray, dims: list[int]) -> onnx.ModelProto:
    proto = relu_model()
    sparse = helper.make_sparse_tensor(tensor("s", np.float32([3, 4])), tensor("", indices), dims)
    proto.graph.sparse_initializer.append(sparse)
    return proto


@pytest.mark.parametrize("indices", [[1, 5], [[0, 1], [1, 2]]])
def test_sparse_tensors_are_stored_dense(indices: list[int]) -> None:
    record = load_model(sparse_model(np.array(indices), [2, 3])).graph.initializers["s"]
    assert isinstance(record, TensorRecord)
    np.testing.assert_array_equal(record.array, np.float32([[0, 3, 0], [0, 0, 4]]))


@pytest.mark.parametrize(
    ("indices", "dims", "text"),
    [
        (np.array([1, 6]), [2, 3], "outside"),
        (np.array([-1, 2]), [2, 3], "outside"),
        (np.array([[0, 1], [2, 0]]), [2, 3], "outside"),
        (np.array([1]), [2, 3], "do not fit 2 values"),
        (np.array([1, 2], np.int32), [2, 3], "no int64"),
        (np.array([1, 2]), [2, -3], "no shape"),
        (np.array([1, 2]), [1 << 20, 1 << 20], "as a dense tensor"),
    ],
)
def test_sparse_tensors_that_do_not_fit(indices: np.ndarray, dims: list[int], text: str) -> None:
    with pytest.raises(ModelError, match=f"'s'.*{text}"):
        load_model(sparse_model(indices, dims))


def test_duplicate_and_nameless_initializers() -> None:
    twice = [tensor("w", np.ones(1, np.float32))] * 2
    with pytest.raises(ModelError, match="'w' is defined twice"):
        load_model(relu_model(initializers=twice))
    with pytest.raises(ModelError, match="without a name"):
        load_model(relu_model(initializers=[tensor("", np.ones(1, np.float32))]))


def test_attributes_are_plain_data() -> None:
    node = helper.make_node(
        "Any",
        [],
        ["y"],
        i=3,
        f=0.5,
        s="text",
        ints=[1, 2],
        floats=[0.25],
        strings=["a", "b"],
        t=tensor("", np.float32([1, 2])),
    )
    ref = node.attribute.add(name="r", ref_attr_name="outer")
    ref.type = onnx.AttributeProto.INT
    decoded = load_model(model([node])).graph.nodes[0]
    attributes = dict(decoded.attributes)
    np.testing.assert_array_equal(attributes.pop("t"), np.float32([1, 2]))
    assert attributes == {
        "i": 3,
        "f": 0.5,
        "s": "text",
        "ints": (1, 2),
        "floats": (0.25,),
        "strings": ("a", "b"),
        "r": AttributeRef("outer"),
    }
    assert decoded.kinds["ints"] == "INTS"
    node.attribute.add(name="i").type = onnx.AttributeProto.INT
    with pytest.raises(ModelError, match="'i' is given twice"):
        load_model(model([node]))


def test_deeply_nested_subgraphs_are_refused() -> None:
    graph = helper.make_graph([], "leaf", [], [])
    for _ in range(27):
        node = helper.make_node("If", ["c"], ["y"], then_branch=graph)
        graph = helper.make_graph([node], "level", [], [])
    with pytest.raises(ModelError, match="nested deeper"):
        load_model(model(list(graph.node)))
