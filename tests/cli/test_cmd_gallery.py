import pytest
import torch

import iaa
from iaa.cli import main


def test_a_gallery_can_be_exported_and_imported_again(run, tmp_path, capsys):
    file = tmp_path / "out.parquet"
    assert main(["gallery", "export", str(run), str(file)]) == 0
    assert f"wrote {file}: 30 rows of 8 numbers each" in capsys.readouterr().out
    extra = iaa.Embeddings(torch.randn(3, 8), torch.arange(3), ["a", "b", "c"])
    extra.save(tmp_path / "more.safetensors")
    assert main(["gallery", "import", str(run), str(tmp_path / "more.safetensors")]) == 0
    assert capsys.readouterr().out == "the gallery holds 33 rows\n"
    assert main(["search", str(run), str(file), "--gallery", str(file), "--top", "1", "--json"]) == 0


def test_into_milvus_and_back(run, tmp_path, capsys):
    pytest.importorskip("milvus_lite", reason="Milvus is not installed: pip install 'iaa[milvus]'")
    first, store = tmp_path / "first.safetensors", f"milvus:{tmp_path / 'g.db'}#mine"
    assert main(["gallery", "export", str(run), str(first)]) == 0
    assert main(["gallery", "import", str(run), str(first), "--store", store, "--index", "flat"]) == 0
    assert main(["gallery", "export", str(run), str(tmp_path / "back.safetensors"), "--store", store]) == 0
    one, two = iaa.Embeddings.load(first), iaa.Embeddings.load(tmp_path / "back.safetensors")
    order = sorted(range(len(one)), key=lambda row: one.ids[row])
    assert two.ids == [one.ids[row] for row in order]
    assert torch.equal(two.z, one.z[order])
    assert two.meta == one.meta


def test_errors_are_one_line(run, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("no vectors")
    for arguments, text in (
        (["import", str(run), str(tmp_path / "x.txt")], "the file's ending must be one of"),
        (["import", str(run), str(tmp_path / "none.npz")], "no embeddings file at"),
        (["export", str(run), str(tmp_path / "x.npz")], "the file's ending must be one of"),
    ):
        assert main(["gallery", *arguments]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert text in err
