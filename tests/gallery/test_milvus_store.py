"""What is particular to Milvus; what all stores must do is in ``test_stores.py``."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import iaa
import tiny_datasets
from iaa.cli import main
from iaa.gallery import milvus_store
from iaa.gallery.classifier import open_classifier
from iaa.gallery.milvus_client import MilvusCollection
from iaa.gallery.milvus_lock import locked
from tiny_folders import more

pytest.importorskip("milvus_lite", reason="Milvus is not installed: pip install 'iaa[milvus]'")


@pytest.fixture
def model(run) -> iaa.Model:
    return iaa.load(run)


@pytest.fixture
def embedded(tmp_path) -> str:
    return f"milvus:{tmp_path / 'gallery.db'}"


@pytest.fixture
def server(tmp_path):
    """A database reached over the network, as a server is."""
    from milvus_lite.adapter.grpc.server import start_server_in_thread

    running, database, port = start_server_in_thread(
        data_dir=str(tmp_path / "server.db"), host="127.0.0.1", port=0
    )
    yield f"milvus:http://127.0.0.1:{port}"
    running.stop(grace=0)
    database.close()


def test_a_milvus_server_works_like_an_embedded_database(model, server, tmp_path, seen):
    spec = f"folder:{more(tmp_path / 'own', 'ant', 'bee')}"
    gallery = iaa.Gallery.open(model, spec, store=server)
    assert len(gallery) == 4
    seen.clear()
    again = iaa.Gallery.open(model, spec, store=server)
    assert seen == []
    assert again.ids == gallery.ids
    assert len(again.add(more(tmp_path / "more", "cat"))) == 6
    assert sorted(iaa.Gallery.open(model, spec, store=server, remove="ant").classes) == ["bee", "cat"]


def test_milvus_filters_classes_of_any_name(model, embedded, tmp_path, monkeypatch):
    names = ['a" or 1 == 1 or "', "b\\", "日本語 '", "c"]
    gallery = iaa.Gallery.open(model, f"folder:{more(tmp_path / 'own', *names)}", store=embedded)
    conditions = []
    plain = MilvusCollection.search

    def noted(self, query, top, condition):
        conditions.append(condition)
        return plain(self, query, top, condition)

    monkeypatch.setattr(MilvusCollection, "search", noted)
    for name in names:
        (hits,) = gallery.search(gallery.ids[0], top=9, label=name)
        assert [hit.label for hit in hits] == [name] * 2
    assert len(conditions) == 4
    assert all("class_key ==" in condition for condition in conditions)


def test_classification_is_the_same_in_milvus_and_in_a_file(model, embedded):
    there, here = iaa.Gallery.open(model, store=embedded), iaa.Gallery.open(model)
    assert there.ids == sorted(here.ids)
    ours, theirs = (open_classifier(gallery, how="mean") for gallery in (there, here))
    assert ours.learned_from == theirs.learned_from
    query = here.vectors(torch.arange(6))
    for mine, other in zip(ours.classify(query), theirs.classify(query), strict=True):
        assert [c.label for c in mine.candidates] == [c.label for c in other.candidates]
        assert mine.known == other.known


def test_the_measured_recall_of_an_index_is_stored(model, tmp_path, monkeypatch):
    for kind, name in ((None, "HNSW"), ("ivf", "IVF_FLAT")):
        store = f"milvus:{tmp_path / f'{name}.db'}"
        gallery = iaa.Gallery.open(model, store=store, index=kind)
        assert gallery.snapshot.index() == {"kind": name, "recall_at_10": 1.0}
        assert iaa.Gallery.open(model, store=store).snapshot.index() == {"kind": name, "recall_at_10": 1.0}
    flat = iaa.Gallery.open(model, store=f"milvus:{tmp_path / 'flat.db'}", index="flat")
    assert flat.snapshot.index() == {"kind": "FLAT"}
    with pytest.raises(ValueError, match="has the index FLAT, not HNSW: name no index"):
        iaa.Gallery.open(model, store=flat.store, index="hnsw")
    with pytest.raises(ValueError, match="index must be one of 'flat', 'hnsw', 'ivf'; got 'trees'"):
        iaa.Gallery.open(model, store=flat.store, index="trees")
    plain = MilvusCollection.search

    def worse(self, query, top, condition):
        return ([*hits[: 1 + top // 2]] for hits in plain(self, query, top, condition))

    monkeypatch.setattr(MilvusCollection, "search", worse)
    assert gallery.snapshot.measure_recall() == pytest.approx(0.5, abs=0.06)


def test_a_large_header_is_stored_in_several_rows(model, embedded, tmp_path, monkeypatch):
    monkeypatch.setattr(milvus_store, "TEXT_BYTES", 200)
    root = more(tmp_path / "own", "ant", "bee", "cat", each=3)
    gallery = iaa.Gallery.open(model, f"folder:{root}", store=embedded)
    for number in range(3):
        gallery = gallery.remove(str(root / "ant" / f"{number}.png"))
    again = iaa.Gallery.open(model, f"folder:{root}", store=embedded)
    assert again.rows.header == gallery.rows.header
    assert len(again) == 6
    texts = list(again.snapshot.collection.rows('model == "header"', ["key", "name"]))
    assert len(texts) > 4
    assert max(len(row["name"]) for row in texts if row["key"] != "header") == 200


def test_a_named_collection_of_another_network_or_dimension_is_refused(run, model, embedded, home):
    named = f"{embedded}#mine"
    before = iaa.Gallery.open(model, store=named)
    z = before.data.z.clone()
    state = load_file(run / "model.safetensors")
    save_file({key: (value * 1.5).to(value) for key, value in state.items()}, run / "model.safetensors")
    with pytest.raises(ValueError, match=r"#mine was made by another network than .*chooses another"):
        iaa.Gallery.open(iaa.load(run), store=named)
    other = iaa.load(home / "runs" / "head-1")
    with pytest.raises(ValueError, match=r"#mine holds vectors of 8 dimensions, the model makes 4"):
        iaa.Gallery.open(other, store=named)
    assert torch.equal(iaa.Gallery.open(model, store=named).data.z, z)


def test_old_rows_stay_until_those_of_a_new_model_are_written(run, model, embedded, monkeypatch):
    before = iaa.Gallery.open(model, store=embedded)
    z = before.data.z.clone()
    state = load_file(run / "model.safetensors")
    save_file({key: (value * 1.5).to(value) for key, value in state.items()}, run / "model.safetensors")
    changed = iaa.load(run)

    def fails(self, header, recall):
        raise OSError("the network is down")

    with monkeypatch.context() as patch:
        patch.setattr(milvus_store.MilvusStore, "_write_header", fails)
        with pytest.raises(OSError, match="the network is down"):
            iaa.Gallery.open(changed, store=embedded)
    old = iaa.Gallery.open(model, store=embedded)
    assert torch.equal(old.data.z, z)
    new = iaa.Gallery.open(changed, store=embedded)
    assert "model has changed" in new.notes[0]
    keys = [row["key"] for row in new.snapshot.collection.rows('model != "header"', ["key"])]
    assert sorted(keys) == sorted(new.snapshot.keys)


KILLED = """
import os, sys, iaa
from iaa.gallery.milvus_client import MilvusCollection
plain = MilvusCollection._upsert

def dies(self, batch):
    plain(self, batch[: len(batch) // 2])
    os.kill(os.getpid(), 9)

MilvusCollection._upsert = dies
iaa.Gallery.open(iaa.load(sys.argv[1]), "folder:" + sys.argv[2], store=sys.argv[3])
"""


def test_a_write_that_is_killed_loses_and_repeats_nothing(run, model, tmp_path, embedded, seen):
    root = more(tmp_path / "own", "ant", "bee", each=8)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(run), str(root), embedded], timeout=120)
    assert killed.returncode == -signal.SIGKILL
    gallery = iaa.Gallery.open(model, f"folder:{root}", store=embedded)
    assert seen == []  # the embeddings were still on disk
    assert len(gallery) == 16
    keys = [row["key"] for row in gallery.snapshot.collection.rows('model != "header"', ["key"])]
    assert len(keys) == len(set(keys)) == 16
    torch.testing.assert_close(gallery.data.z, model.embed(gallery.ids), rtol=1e-5, atol=1e-5)
    assert not list((run / "galleries").glob("*.parts"))


def test_renaming_a_class_updates_its_rows(model, embedded, tmp_path, seen):
    root, table = more(tmp_path / "own", "ant"), tmp_path / "table.csv"
    table.write_text("path,label,split\nown/ant/0.png,a,test\nown/ant/1.png,a,test\n")
    iaa.Gallery.open(model, f"table:{table}", store=embedded)
    seen.clear()
    table.write_text("path,label,split\nown/ant/0.png,b,train\nown/ant/1.png,a,test\n")
    gallery = iaa.Gallery.open(model, f"table:{table}", store=embedded)
    assert seen == []
    for opened in (gallery, iaa.Gallery.open(model, f"table:{table}", store=embedded)):
        assert {name: len(rows) for name, rows in opened.classes.items()} == {"b": 1, "a": 1}
        assert opened.rows.split == ["train", "test"]
        assert [hit.id for hit in opened.search(opened.ids[1], label="b")[0]] == [str(root / "ant" / "0.png")]


def test_one_writer_at_a_time_on_a_server(model, server, tmp_path):
    spec = f"folder:{more(tmp_path / 'own', 'ant', 'bee')}"
    gallery = iaa.Gallery.open(model, spec, store=server)
    more(tmp_path / "own", "cat")
    with locked(gallery.snapshot.collection):
        old = iaa.Gallery.open(model, spec, store=server)
        assert old.ids == gallery.ids
        assert "another process is updating" in old.notes[0]
        with pytest.raises(OSError, match=r"being changed by another process .*drop the collection \w+_lock"):
            old.remove("ant")
    assert len(iaa.Gallery.open(model, spec, store=server)) == 6


def test_the_lock_of_a_killed_process_is_taken_over(server, monkeypatch):
    collection = MilvusCollection(server.removeprefix("milvus:"), "mine")
    with monkeypatch.context() as patch:
        gone = subprocess.Popen([sys.executable, "-c", ""])
        gone.wait()
        patch.setattr(os, "getpid", lambda: gone.pid)
        held = locked(collection)
        held.__enter__()
    with locked(collection), pytest.raises(BlockingIOError, match="is locked by"), locked(collection):
        pass
    with monkeypatch.context() as patch:
        patch.setattr("socket.gethostname", lambda: "another-machine")
        held = locked(collection)
        held.__enter__()
    with pytest.raises(BlockingIOError, match="is locked by another_machine_"), locked(collection):
        pass


SECOND = "import sys; from iaa.cli import main; sys.exit(main(sys.argv[1:]))"


def test_errors_of_milvus_are_one_line_and_lose_nothing(run, model, embedded, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("MILVUS_TOKEN", "root:secret")
    query = str(iaa.Gallery.open(model, store=embedded).ids[0])
    client = MilvusCollection(embedded.removeprefix("milvus:"), "mine").client
    client.create_collection("foreign", dimension=8)
    (tmp_path / "file.db").write_text("no database")
    for store, text in (
        ("milvus:http://127.0.0.1:1", "cannot reach milvus:http://127.0.0.1:1#iaa_run_own_"),
        ("milvus:http://user:word@127.0.0.1:1", "cannot reach milvus:http://127.0.0.1:1#iaa_run_own_"),
        (f"{embedded}#foreign", "#foreign is not a gallery: it lacks the fields class_key"),
        (f"{embedded}#a-b", "is named with letters, digits and underscores, got 'a-b'"),
        (f"milvus:{tmp_path / 'gallery'}", "an embedded Milvus database is a file ending in .db"),
        (f"milvus:{tmp_path / 'file.db'}", "cannot open milvus:"),
        ("milvus:", "a store must be milvus:FILE.db"),
        ("redis:x", "a store must be milvus:FILE.db"),
    ):
        assert main(["search", str(run), query, "--store", store]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert len(err.splitlines()) == 1
        assert text in err
        assert "secret" not in err
        assert "word@" not in err
    arguments = [sys.executable, "-c", SECOND, "search", str(run), query, "--store", embedded]
    second = subprocess.run(arguments, capture_output=True, text=True, timeout=120)
    assert second.returncode == 2
    assert "another process has it open" in second.stderr
    assert len(second.stderr.splitlines()) == 1
    assert len(iaa.Gallery.open(model, store=embedded)) == 30


def test_a_missing_permission_is_reported_in_one_line(monkeypatch):
    from pymilvus import MilvusException

    collection = MilvusCollection("http://host:19530", "mine")
    for message in ("PrivilegeQuery: permission deny to reader", "auth check failure, please check api key"):
        with (
            pytest.raises(PermissionError, match=r"no permission .*MILVUS_TOKEN must hold"),
            collection.errors(),
        ):
            raise MilvusException(code=65535, message=message)


def test_search_prints_the_index_and_its_recall(run, capsys, tmp_path):
    tiny_datasets.image(tmp_path / "x.png", seed=3, size=(20, 20))
    arguments = [
        "search",
        str(run),
        str(tmp_path / "x.png"),
        "--store",
        f"milvus:{tmp_path / 'g.db'}",
        "--top",
        "3",
    ]
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "HNSW finds 100.0 % of the true ten nearest" in out
    shutil.rmtree(run / "galleries", ignore_errors=True)
    assert main([*arguments, "--classes", "--json"]) == 0
    assert f'"name": "milvus:{tmp_path / "g.db"}#iaa_run_own_' in capsys.readouterr().out
    assert not Path(run / "galleries").exists()
