import functools
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import iaa
from iaa.gallery import vector_files
from iaa.gallery.transfer import export_vectors, import_vectors
from tiny_folders import more


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


@pytest.fixture(params=["file", "milvus"])
def store(request, tmp_path) -> str | None:
    if request.param == "file":
        return None
    pytest.importorskip("milvus_lite", reason="Milvus is not installed: pip install 'iaa[milvus]'")
    return f"milvus:{tmp_path / 'store.db'}"


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch) -> None:
    monkeypatch.setattr(vector_files, "CHUNK", 7)


@pytest.mark.parametrize("suffix", [".safetensors", ".parquet"])
def test_an_exported_gallery_can_be_imported_into_any_store(model, store, tmp_path, suffix, seen):
    gallery = iaa.Gallery.open(model, f"folder:{more(tmp_path / 'own', 'ant', 'bee', each=9)}")
    file = tmp_path / f"out{suffix}"
    export_vectors(gallery, model, file)
    data = iaa.Embeddings.load(file)
    assert data.ids == gallery.ids
    assert torch.equal(data.z, gallery.data.z)
    assert data.distinct_names() == gallery.data.distinct_names()
    assert data.split == gallery.data.split
    open_gallery = functools.partial(iaa.Gallery.open, model, store=store)
    seen.clear()
    assert import_vectors(model, file, store=store) == 18
    imported = open_gallery()
    assert sorted(imported.ids) == sorted(gallery.ids)
    assert seen == []
    query = gallery.ids[3]
    assert [hit.id for hit in imported.search(query)[0]] == [hit.id for hit in gallery.search(query)[0]]
    smaller = imported.remove("ant")
    assert list(smaller.classes) == ["bee"]
    assert len(open_gallery()) == 9
    assert len(smaller.add(more(tmp_path / "more", "cat"))) == 11
    assert import_vectors(model, file, store=store) == 20  # what was removed is back, nothing is there twice
    assert len(open_gallery()) == 20


def test_imported_rows_need_no_images_and_replace_older_ones(model, store, tmp_path):
    z = torch.randn(20, model.dim)
    data = iaa.Embeddings(z, torch.arange(20) % 4, class_names={0: "a", 1: "b", 2: "a", 3: "d"})
    data.save(tmp_path / "v.npz")
    assert import_vectors(model, tmp_path / "v.npz", store=store) == 20
    gallery = iaa.Gallery.open(model, store=store)
    assert sorted(gallery.classes) == ["a (0)", "a (2)", "b", "d"]
    assert gallery.search(z[5:6], top=1)[0][0].id == f"{tmp_path / 'v.npz'}#row=5"
    iaa.Embeddings(-z, data.labels).save(tmp_path / "v.npz")
    assert import_vectors(model, tmp_path / "v.npz", store=store) == 20
    gallery = iaa.Gallery.open(model, store=store)
    assert gallery.search(-z[5:6], top=1)[0][0].id == f"{tmp_path / 'v.npz'}#row=5"
    assert sorted(gallery.classes) == ["0", "1", "2", "3"]


def test_foreign_damaged_and_ambiguous_files_are_refused_and_change_nothing(model, store, tmp_path):
    fine = iaa.Embeddings(torch.randn(20, model.dim), torch.arange(20))
    fine.save(tmp_path / "fine.safetensors")
    import_vectors(model, tmp_path / "fine.safetensors", store=store)
    iaa.Embeddings(torch.randn(4, 3), torch.arange(4)).save(tmp_path / "three.parquet")
    foreign = {"weights_sha256": "0" * 64}
    iaa.Embeddings(torch.randn(4, model.dim), torch.arange(4), meta=foreign).save(
        tmp_path / "foreign.parquet"
    )
    iaa.Embeddings(torch.randn(2, model.dim), torch.arange(2), ["x", "x"]).save(
        tmp_path / "twice.safetensors"
    )
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "fine.safetensors").read_bytes()[:-40])
    (tmp_path / "cut.parquet").write_bytes((tmp_path / "foreign.parquet").read_bytes()[:-40])
    for name, message in (
        ("three.parquet", r"three\.parquet holds vectors of 3 dimensions, the model .* makes 8"),
        ("foreign.parquet", r"foreign\.parquet was made by another network"),
        ("twice.safetensors", r"twice\.safetensors has two rows with the same id"),
        ("cut.safetensors", r"cut\.safetensors is truncated or not a safetensors file"),
        ("cut.parquet", r"cut\.parquet is truncated or not a Parquet file"),
        ("x.txt", "the file's ending must be one of"),
    ):
        with pytest.raises(ValueError, match=message):
            import_vectors(model, tmp_path / name, store=store)
    with pytest.raises(FileNotFoundError, match="no embeddings file at"):
        import_vectors(model, tmp_path / "none.npz", store=store)
    broken = iaa.Embeddings(torch.randn(20, model.dim), torch.arange(20), [f"n{row}" for row in range(20)])
    broken.z[15, 2] = torch.nan
    from iaa.retrieval.formats import WRITERS

    WRITERS[".safetensors"](broken, tmp_path / "nan.safetensors")
    with pytest.raises(ValueError, match="vectors must be finite"):
        import_vectors(model, tmp_path / "nan.safetensors", store=store)
    assert len(iaa.Gallery.open(model, store=store)) == 20
    with pytest.raises(ValueError, match="the file's ending must be one of"):
        export_vectors(iaa.Gallery.open(model, store=store), model, tmp_path / "out.npz")


@pytest.mark.parametrize("suffix", [".safetensors", ".parquet"])
def test_a_flipped_bit_in_an_exported_file_is_noticed_when_it_is_loaded_or_imported(model, tmp_path, suffix):
    gallery = iaa.Gallery.open(model, f"folder:{more(tmp_path / 'own', 'ant', 'bee', each=9)}")
    file = tmp_path / f"out{suffix}"
    export_vectors(gallery, model, file)
    content = file.read_bytes()
    at = content.index(gallery.data.z[9].numpy().tobytes())
    file.write_bytes(content[:at] + bytes([content[at] ^ 64]) + content[at + 1 :])
    with pytest.raises((ValueError, OSError), match=r"out\."):
        iaa.Embeddings.load(file)
    with pytest.raises((ValueError, OSError), match=r"out\."):
        import_vectors(model, file)


BOUNDED = """
import resource, sys, torch
from pathlib import Path
from iaa.gallery.store import Rows
from iaa.gallery.vector_files import open_vectors, write_vectors

n, dim, path = 100_000, 256, Path(sys.argv[1])
rows = Rows([str(i) for i in range(n)], torch.arange(n) % 100, {}, ["test"] * n)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_vectors(path, rows, (torch.randn(5000, dim) for _ in range(n // 5000)), dim=dim, meta={})
total = sum(len(z) for _, z in open_vectors(path).chunks())
assert total == n
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
"""


@pytest.mark.parametrize("suffix", ["safetensors", "parquet"])
def test_memory_does_not_grow_with_the_number_of_vectors(tmp_path, suffix):
    arguments = [sys.executable, "-c", BOUNDED, str(tmp_path / f"x.{suffix}")]
    megabytes = float(
        subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=300).stdout
    )
    assert megabytes < 80  # the vectors alone are 98


def test_lists_of_unequal_length_in_parquet_are_refused(tmp_path):
    table = pa.table({"embedding": [[1.0, 2.0], [3.0, 4.0, 5.0, 6.0]], "label": ["a", "b"]})
    pq.write_table(table, tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match="must have one length in every row"):
        vector_files.open_vectors(tmp_path / "ragged.parquet")
