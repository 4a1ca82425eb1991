from pathlib import Path

import pytest

import iaa
import tiny_server
from iaa.serve.service import Service

pytest.importorskip("milvus_lite", reason="Milvus is not installed: pip install 'iaa[milvus]'")


def test_a_gallery_in_milvus_is_served_as_one_in_a_file(run, tmp_path):
    model = iaa.load(run, device="cpu")
    gallery = iaa.Gallery.open(model, store=f"milvus:{tmp_path / 'gallery.db'}")
    with tiny_server.served(Service(model, gallery)) as base:

        def get(path: str, **params: object) -> dict:
            return tiny_server.httpx.get(f"{base}{path}", params=params, timeout=30).json()

        assert get("/api/health")["gallery"]["images"] == len(gallery)
        result = get("/api/search", id=3, top=4)["results"]
        assert [hit["id"] for hit in result] == [
            hit.row for hit in gallery.search(gallery.ids[3], top=4, exclude=[3])[0]
        ]
        inside = get("/api/search", id=3, top=9, label="dark red")["results"]
        assert {hit["label"] for hit in inside} == {"dark red"}
        answer = tiny_server.post(base, Path(gallery.ids[7]).read_bytes()).json()
        assert answer["results"][0]["id"] == 7
