import json
import zipfile

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from safetensors import safe_open

import iaa
from iaa.retrieval.embeddings import Embeddings


def example(size=7):
    g = torch.Generator().manual_seed(0)
    return Embeddings(
        torch.randn(size, 3, generator=g),
        torch.arange(size) // 2 + 2**40,
        [f"bilder/größe {i}.jpg" for i in range(size)],
        {2**40 + i: f"Klasse {i} 🐦" for i in range(size)},
        ["train", "val", *["test"] * (size - 2)],
        ["query", "gallery", *["both"] * (size - 2)],
        {"model": "lite0", "data": {"name": "emoji", "rows": 7}},
    )


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".npy", ".parquet"])
def test_round_trip(tmp_path, ending):
    path = tmp_path / f"deep/x{ending}"
    data = example()
    data.save(path)
    back = iaa.Embeddings.load(path)
    assert torch.equal(back.z, data.z)
    assert torch.equal(back.labels, data.labels)
    assert (back.ids, back.split, back.role) == (data.ids, data.split, data.role)
    used = set(data.labels.tolist())
    assert {k: v for k, v in back.class_names.items() if k in used} == {
        k: v for k, v in data.class_names.items() if k in used
    }
    assert back.meta == (data.meta if ending != ".npy" else {})
    assert [p.name for p in path.parent.iterdir() if p.name.startswith(".")] == []


def test_the_same_content_gives_the_same_bytes(tmp_path):
    for i in range(6):
        example().save(tmp_path / f"{i}.safetensors")
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


def test_readable_without_this_package(tmp_path):
    example().save(tmp_path / "x.safetensors")
    with safe_open(tmp_path / "x.safetensors", "numpy") as file:
        ends, joined = file.get_tensor("ids.ends"), file.get_tensor("ids.bytes").tobytes()
        roles = json.loads(file.metadata()["roles"])
        assert joined[ends[3] : ends[4]].decode() == "bilder/größe 3.jpg"
        assert roles[file.get_tensor("role")[1]] == "gallery"
        assert json.loads(file.metadata()["meta"])["model"] == "lite0"


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".npy", ".parquet"])
@pytest.mark.parametrize("keep", [0.0, 0.4, 0.95])
def test_a_file_cut_short_is_one_clear_line(tmp_path, ending, keep):
    path = tmp_path / f"x{ending}"
    example(200).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(ValueError, match=r"x\.\w+ is truncated"):
        Embeddings.load(path)


def test_foreign_files(tmp_path):
    from safetensors.torch import save_file

    save_file({"weight": torch.ones(2)}, tmp_path / "model.safetensors")
    with pytest.raises(ValueError, match="is not an embeddings file"):
        Embeddings.load(tmp_path / "model.safetensors")
    np.savez(tmp_path / "x.npz", features=np.ones((2, 2)))
    with pytest.raises(ValueError, match="lacks the array 'z'"):
        Embeddings.load(tmp_path / "x.npz")
    np.savez(tmp_path / "p.npz", z=np.array([{"evil": 1}], dtype=object))
    with pytest.raises(ValueError, match="pickled"):
        Embeddings.load(tmp_path / "p.npz")
    with pytest.raises(FileNotFoundError, match="no embeddings file at"):
        Embeddings.load(tmp_path / "none.npz")
    with pytest.raises(ValueError, match=r"the file's ending must be one of .* got '\.pt'"):
        Embeddings.load(tmp_path / "x.pt")
    np.save(tmp_path / "alone.npy", np.ones((2, 2)))
    with pytest.raises(FileNotFoundError, match=r"needs its labels in .*alone\.csv"):
        Embeddings.load(tmp_path / "alone.npy")


@pytest.mark.parametrize(
    ("tensors", "header", "message"),
    [
        ({}, {"meta": None}, "is damaged: it lacks 'meta'"),
        ({}, {"splits": None}, "is damaged: it lacks 'splits'"),
        ({}, {"splits": "[]"}, "is damaged: list index out of range"),
        ({}, {"splits": "3"}, "is damaged: the header's names of split must be a list"),
        ({}, {"roles": "[" * 100_000}, "is damaged: maximum recursion depth"),
        ({}, {"meta": "{"}, ": meta is not valid JSON"),
        ({}, {"meta": "[1]"}, ": meta must hold a JSON object"),
        ({}, {"meta": '{"a":' * 100_000}, ": meta is not valid JSON: it is nested too deeply"),
        ({"z": torch.ones(7, 3, dtype=torch.int32)}, {}, ": z must be floating numbers"),
        ({"role": torch.full((7,), -1, dtype=torch.int8)}, {}, "is damaged: role must be uint8"),
        ({"ids.ends": torch.tensor([0, 9, 3, 4, 5, 6, 7, 139])}, {}, ": ids.ends must rise from 0"),
        ({"z": None}, {}, "is damaged: it lacks 'z'"),
        ({"ids.ends": torch.tensor([0, 5])}, {}, ": ids.ends must rise from 0"),
        ({"ids.bytes": torch.full((7,), 255).byte(), "ids.ends": torch.arange(8)}, {}, ": 'utf-8' codec"),
        ({"labels": torch.arange(3)}, {}, ": labels must have shape"),
        ({"labels": torch.ones(7)}, {}, ": labels must be integers"),
        ({"class_labels": torch.arange(2)}, {}, ": class_labels must have shape (7,)"),
    ],
)
def test_damage_within_a_file_is_one_line_that_begins_with_its_path(tmp_path, tensors, header, message):
    from safetensors.torch import load_file, save_file

    path = tmp_path / "x.safetensors"
    example().save(path)
    with safe_open(path, "pt") as file:
        header = {**file.metadata(), **header}
    found = {**load_file(path), **tensors}
    header["sha256"] = None  # as other programs would write it
    save_file(
        {key: value for key, value in found.items() if value is not None},
        path,
        {key: value for key, value in header.items() if value is not None},
    )
    with pytest.raises(ValueError, match=r"^\S+x\.safetensors") as told:
        Embeddings.load(path)
    assert str(told.value).startswith(f"{path}{'' if message[0] == ':' else ' '}{message}")


@pytest.mark.parametrize("notes", [{"meta": "[1]"}, {"meta": "{"}, {"class_names": "[1]"}])
def test_damage_within_an_npz_file_is_reported_with_its_path(tmp_path, notes):
    path = tmp_path / "x.npz"
    np.savez(path, z=np.eye(3), labels=np.arange(3), **notes)
    with pytest.raises(ValueError, match=r"^\S+x\.npz"):
        Embeddings.load(path)


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".parquet"])
def test_a_single_wrong_bit_in_the_vectors_is_noticed(tmp_path, ending):
    path = tmp_path / f"x{ending}"
    data = example(200)
    data.save(path)
    content = bytearray(path.read_bytes())
    content[content.index(data.z[3].numpy().tobytes()) + 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"x\{ending}"):
        Embeddings.load(path)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode("latin-1")
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (10**9, 8)}", "header cannot be read"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (999999999999, 8)}", "but 64 bytes follow"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-2, -8)}", "declares the shape"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 4, 2)}", "at most two dimensions"),
        ("{'descr': '<U0', 'fortran_order': False, 'shape': (999999999999,)}", "only numbers and plain"),
        ("{'descr': '|O', 'fortran_order': False, 'shape': (8,)}", "only numbers and plain text"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (16,)}", "only numbers and plain"),
        ("{'descr': '<f4'}", "header cannot be read"),
        ("(" * 5000, "header cannot be read"),
        ("\x00", "header cannot be read"),
    ],
)
def test_array_headers_are_checked_before_anything_is_allocated(tmp_path, header, message):
    content = npy(header, bytes(64))
    (tmp_path / "x.npy").write_bytes(content)
    (tmp_path / "x.csv").write_text("label\n0\n1\n")
    with pytest.raises(ValueError, match=rf"x\.npy is truncated, holds pickled .*{message}"):
        Embeddings.load(tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("z.npy", content)
    with pytest.raises(ValueError, match=rf"x\.npz is truncated, holds pickled .*{message}"):
        Embeddings.load(tmp_path / "x.npz")


def test_fortran_order_and_foreign_byte_order_are_read(tmp_path):
    z = np.asfortranarray(np.arange(12, dtype=">f8").reshape(4, 3))
    np.savez(tmp_path / "x.npz", z=z, labels=np.arange(4, dtype=">i4"))
    data = Embeddings.load(tmp_path / "x.npz")
    assert torch.equal(data.z, torch.arange(12, dtype=torch.float64).reshape(4, 3))
    assert data.labels.tolist() == [0, 1, 2, 3]


def test_a_small_file_that_unpacks_to_gigabytes_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("iaa.retrieval.array_files.ALWAYS_ALLOWED", 2**20)
    monkeypatch.setattr("iaa.table_files.ALWAYS_ALLOWED", 2**20)
    z = np.zeros((2**19, 8), np.float32)
    np.savez_compressed(tmp_path / "x.npz", z=z, labels=np.zeros(2**19, np.int64))
    with pytest.raises(ValueError, match=r"x\.npz .*would unpack to 20,971,\d+ bytes, at most"):
        Embeddings.load(tmp_path / "x.npz")
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(z.reshape(-1)), 8)
    table = pyarrow.table({"label": np.zeros(2**19, np.int64), "embedding": lists})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet", compression="zstd")
    with pytest.raises(ValueError, match=r"x\.parquet would unpack to 20,971,520 bytes, at most"):
        Embeddings.load(tmp_path / "x.parquet")


def test_labels_beyond_int64_are_names_or_refused(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    (tmp_path / "x.csv").write_text(f"label\n{2**63}\n7\n{2**63}\n")
    data = Embeddings.load(tmp_path / "x.npy")
    assert data.class_names == {0: "7", 1: str(2**63)}
    assert data.labels.tolist() == [1, 0, 1]
    np.savez(tmp_path / "x.npz", z=np.eye(3), labels=np.full(3, 2**64 - 1, dtype=np.uint64))
    with pytest.raises(ValueError, match=r"x\.npz: labels must fit into int64, got 18446744073709551615"):
        Embeddings.load(tmp_path / "x.npz")


def test_a_text_repeated_in_parquet_is_held_once(tmp_path):
    size = 20_000
    table = pyarrow.table(
        {"label": np.zeros(size, int), "id": ["x" * 10_000] * size, "embedding": [[1.0]] * size}
    )
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    data = Embeddings.load(tmp_path / "x.parquet")
    assert len({id(name) for name in data.ids}) == 1


def test_nan_rows_are_named_with_the_file(tmp_path):
    data = example()
    data.z[4, 1] = torch.nan
    data.save(tmp_path / "x.safetensors")
    with pytest.raises(ValueError, match=r"x\.safetensors: z must be finite.*first 4"):
        Embeddings.load(tmp_path / "x.safetensors")


def test_vectors_of_other_origin_need_only_a_label_column(tmp_path):
    np.save(tmp_path / "text.npy", np.eye(4, dtype=np.float64))
    (tmp_path / "text.csv").write_text("label,path\nspam,a\nham,b\nspam,c\nham,d\n")
    data = Embeddings.load(tmp_path / "text.npy")
    assert data.labels.tolist() == [1, 0, 1, 0]
    assert data.class_names == {0: "ham", 1: "spam"}
    assert data.ids == list("abcd")
    assert set(data.role) == {"both"}


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "x.safetensors"
    example().save(path)
    before = path.read_bytes()
    broken = example()
    broken.meta["model"] = object()
    with pytest.raises(TypeError):
        broken.save(path)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_lengths_and_words_are_checked():
    with pytest.raises(ValueError, match="ids must have 3 entries"):
        Embeddings(torch.eye(3), torch.arange(3), ["a"])
    with pytest.raises(ValueError, match="did you mean 'query'"):
        Embeddings(torch.eye(3), torch.arange(3), role=["querry"] * 3)


def test_rows_and_where():
    data = example()
    assert data.where(split="test").sum() == 5
    assert data.where(role="gallery").tolist() == [False, *[True] * 6]
    part = data.rows(data.where(split="val"))
    assert part.ids == ["bilder/größe 1.jpg"]


@pytest.mark.parametrize("ending", [".safetensors", ".npz", ".npy", ".parquet"])
def test_disk_errors_name_the_target_file(tmp_path, ending):
    (tmp_path / f"folder{ending}").mkdir()
    (tmp_path / "file").write_text("mine")
    for name, reason in ((f"folder{ending}", "Is a directory"), (f"file/x{ending}", "file is not a folder")):
        with pytest.raises(OSError, match=rf"^cannot write {tmp_path / name}: .*{reason}$"):
            example().save(tmp_path / name)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", f"folder{ending}"]


def test_a_compressed_file_with_a_wrong_byte_is_named(tmp_path):
    file = tmp_path / "vectors.npz"
    np.savez_compressed(file, z=np.zeros((400, 8), np.float32), labels=np.arange(400) % 4)
    content = bytearray(file.read_bytes())
    at = content.index(b"z.npy") + 40
    content[at : at + 8] = b"\xff" * 8
    file.write_bytes(bytes(content))
    with pytest.raises(ValueError, match=r"vectors\.npz"):
        Embeddings.load(file)


def test_lists_of_unequal_length_are_refused(tmp_path):
    table = pyarrow.table({"label": [0, 1], "embedding": [[1.0], [2.0, 3.0, 4.0]]})
    pyarrow.parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(ValueError, match=r"x\.parquet: the lists in 'embedding' must have one length"):
        Embeddings.load(tmp_path / "x.parquet")
