"""Real requests over a real socket: what is answered, and what is refused, how."""

import io
import json
import socket
import struct
import threading
import time
import zlib
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import torch
from PIL import Image

import iaa
import tiny_server
from iaa.serve.app import PAGE
from iaa.serve.middleware import HEADERS
from tiny_server import post


def get(base: str, path: str, **options) -> httpx.Response:
    return httpx.get(base + path, timeout=30, **options)


def encoded(width: int, height: int, kind: str = "PNG") -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, kind)
    return out.getvalue()


def claims(width: int, height: int) -> bytes:
    """A PNG whose header claims more than it holds."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = struct.pack(">I", 13) + b"IHDR" + header + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    data = zlib.compress(b"\x00" * 64)
    rest = struct.pack(">I", len(data)) + b"IDAT" + data + struct.pack(">I", zlib.crc32(b"IDAT" + data))
    return b"\x89PNG\r\n\x1a\n" + chunk + rest


def cut_short() -> bytes:
    out = io.BytesIO()
    Image.effect_noise((64, 64), 50).save(out, "PNG")
    return out.getvalue()[:1000]


def test_an_upload_finds_what_the_library_finds(base, run, service, photo):
    result = post(base, photo, top=6).json()
    model = iaa.load(run, device="cpu")
    (hits,) = service.gallery.search(model.embed([photo]), top=6)
    assert [entry["id"] for entry in result["results"]] == [hit.row for hit in hits]
    assert [entry["similarity"] for entry in result["results"]] == pytest.approx(
        [h.similarity for h in hits], abs=1e-4
    )
    first = result["results"][0]
    assert (first["label"], first["name"]) == ("light red", "light red/0.png")
    assert first["similarity"] == pytest.approx(1, abs=1e-4)
    assert result["total"] == 40
    assert result["milliseconds"] > 0
    assert result["query"] is None


def test_a_search_response_names_the_likeliest_classes(base, photo, service):
    likely = post(base, photo).json()["likely"]
    assert likely["classes"][0]["label"] == "light red"
    scores = [entry["score"] for entry in likely["classes"]]
    assert scores == sorted(scores, reverse=True)
    assert likely["known"] in (True, False, None)


def test_an_embedding_is_that_of_the_library(base, run, photo):
    answer = post(base, photo, "/api/embed").json()
    assert answer["dim"] == len(answer["embedding"]) == 8
    z = iaa.load(run, device="cpu").embed([photo])[0]
    torch.testing.assert_close(torch.tensor(answer["embedding"]), z, rtol=1e-4, atol=1e-5)


def test_searching_from_a_gallery_image_leaves_it_out(base, service):
    row = int(service.gallery.classes["dark blue"][2])
    result = get(base, "/api/search", params={"id": row, "top": 39}).json()
    assert result["query"]["label"] == "dark blue"
    ids = [entry["id"] for entry in result["results"]]
    assert row not in ids
    assert sorted([*ids, row]) == list(range(40))
    values = [entry["similarity"] for entry in result["results"]]
    assert values == sorted(values, reverse=True)


@pytest.mark.parametrize("upload", [True, False])
def test_label_restricts_the_search_to_a_class(base, photo, service, upload):
    if upload:
        result = post(base, photo, label="dark green").json()
    else:
        row = int(service.gallery.classes["dark green"][0])
        result = get(base, "/api/search", params={"id": row, "label": "dark green"}).json()
    assert {entry["label"] for entry in result["results"]} == {"dark green"}
    assert len(result["results"]) == 5 - (not upload)
    assert result["total"] == 5


def test_concurrent_uploads_share_batches(base, run, service):
    files = sorted((run.parents[1] / "images").glob("*/*.png"))[:24]
    before = service.batcher.batches, service.batcher.items
    answers: dict[Path, dict] = {}

    def ask(file: Path) -> None:
        answers[file] = post(base, file.read_bytes(), top=1).json()

    threads = [threading.Thread(target=ask, args=(file,)) for file in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for file, answer in answers.items():  # everyone got the answer to their own question
        assert answer["results"][0]["name"] == f"{file.parent.name}/{file.name}"
    assert len(answers) == service.batcher.items - before[1] == 24
    assert service.batcher.batches - before[0] < 24


def test_health_reports_what_is_served(base):
    answer = get(base, "/api/health").json()
    assert answer["status"] == "ok"
    assert answer["gallery"] == {"images": 40, "classes": 8, "dim": 8}
    assert answer["takes_images"] is True
    assert answer["limits"]["upload_bytes"] == 200_000


def test_classes_are_found_by_part_of_their_name(base):
    answer = get(base, "/api/classes", params={"find": "RED"}).json()
    assert [entry["label"] for entry in answer["classes"]] == ["dark red", "light red"]
    assert {entry["images"] for entry in answer["classes"]} == {5}
    answer = get(base, "/api/classes", params={"find": "l", "limit": 2}).json()
    assert [entry["label"] for entry in answer["classes"]] == ["light blue", "light green"]
    assert answer["total"] == 5  # dark blue, too


def test_a_class_shows_how_it_varies(base, service):
    about = get(base, "/api/class", params={"label": "dark red"}).json()
    data = service.gallery.data
    rows = service.gallery.classes["dark red"]
    stats = iaa.estimate(data.z, data.labels, num_classes=8)
    total = stats.variance.sum(1)
    assert about["images"] == 5
    assert about["spread"] == pytest.approx(float(total[data.labels[rows[0]]] / total.mean()), rel=1e-3)
    assert 1 <= about["directions"] <= 4
    assert about["borrowed"] == pytest.approx(float(iaa.correction_weight(torch.tensor([5]))), rel=1e-4)
    unit = torch.nn.functional.normalize(data.z[rows], dim=1)
    typical = unit @ torch.nn.functional.normalize(unit.sum(0), dim=0)
    expected = rows[typical.argsort(descending=True)].tolist()
    assert [entry["id"] for entry in about["examples"]] == expected
    assert "dark red" not in {entry["label"] for entry in about["similar"]}
    assert len(about["similar"]) == 5


def test_the_gallery_starts_with_an_image_of_each_class(base):
    answer = get(base, "/api/gallery", params={"limit": 8}).json()
    assert len({entry["label"] for entry in answer["results"]}) == 8
    answer = get(base, "/api/gallery", params={"limit": 3, "label": "light grey"}).json()
    assert [entry["name"] for entry in answer["results"]] == [f"light grey/{i}.png" for i in range(3)]


def test_only_images_of_the_gallery_are_sent(base, run):
    shown = get(base, "/api/gallery", params={"limit": 1, "label": "dark blue"}).json()["results"][0]
    answer = get(base, shown["image"])
    assert answer.headers["content-type"] == "image/png"
    assert "immutable" in answer.headers["cache-control"]
    sent = Image.open(io.BytesIO(answer.content))
    assert sent.size == (24, 24)
    with Image.open(run.parents[1] / "images" / shown["name"]) as original:
        assert sent.tobytes() == original.tobytes()
    assert get(base, f"/api/images/{shown['id']}").headers["cache-control"] == "no-store"
    assert str(run) not in json.dumps(shown)


@pytest.mark.parametrize(
    ("content", "status", "arguments"),
    [
        (b"", 422, "the file is empty"),
        (b"just some text", 422, "the file is not a readable image"),
        (cut_short(), 422, "the image cannot be read"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", 422, "not a readable image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", 422, "not a readable image"),
        (encoded(2000, 600), 413, "2,000 x 600 pixels are too many: at most 1,000,000 are accepted"),
        (claims(30_000, 3_000), 413, "too many"),
        (claims(2**31 - 1, 2**31 - 1), 413, "too many"),
        (encoded(1, 4000), 413, "too long and narrow"),
    ],
    ids=["empty", "text", "cut", "eps", "svg", "large", "claims much", "claims all", "narrow"],
)
@pytest.mark.parametrize("path", ["/api/search", "/api/embed"])
def test_a_bad_image_is_refused_in_one_line(base, content, status, arguments, path):
    answer = post(base, content, path)
    assert answer.status_code == status
    assert arguments in answer.json()["error"]
    assert set(answer.json()) == {"error"}


@pytest.mark.parametrize(
    ("method", "path", "options", "status", "arguments"),
    [
        ("POST", "/api/search", {}, 422, "image: field required"),
        ("POST", "/api/search", {"data": {"image": "arguments"}}, 422, "image: must be a file"),
        ("POST", "/api/search", {"content": b"{}"}, 422, "image: field required"),
        (
            "POST",
            "/api/search",
            {"content": b"--x\r\ngarbage", "headers": {"content-type": "multipart/form-data"}},
            400,
            "boundary",
        ),
        ("GET", "/api/search", {}, 422, "id: field required"),
        ("GET", "/api/search?id=40", {}, 404, "no image 40: ids go from 0 to 39"),
        ("GET", "/api/search?id=-1", {}, 404, "no image -1"),
        ("GET", "/api/search?id=first", {}, 422, "id: input should be a valid integer"),
        ("GET", "/api/search?id=0&top=0", {}, 422, "top: input should be greater than or equal to 1"),
        ("GET", "/api/search?id=0&top=201", {}, 422, "top: input should be less than or equal to 200"),
        ("GET", "/api/search?id=0&label=pink", {}, 404, "no class 'pink'"),
        ("GET", "/api/class?label=pink", {}, 404, "no class 'pink'"),
        ("GET", "/api/images/40", {}, 404, "no image 40"),
        ("GET", "/api/images/..%2F..%2Fetc%2Fpasswd", {}, 404, "nothing at this address"),
        ("GET", "/page/..%2Fapp.py", {}, 404, "nothing at this address"),
        ("GET", "/page/%2Fetc%2Fpasswd", {}, 404, "nothing at this address"),
        ("GET", "/nothing", {}, 404, "nothing at this address"),
        ("DELETE", "/api/search", {}, 405, "does not support DELETE"),
    ],
)
def test_a_bad_request_is_refused_in_one_line(base, method, path, options, status, arguments):
    answer = httpx.request(method, base + path, timeout=30, **options)
    assert answer.status_code == status
    assert arguments in answer.json()["error"].lower() or arguments in answer.json()["error"]


def test_an_unknown_class_is_refused_before_anything_is_embedded(base, photo, service):
    before = service.batcher.items
    assert post(base, photo, label="pink").status_code == 404
    assert service.batcher.items == before


def test_a_declared_size_beyond_the_limit_gets_413(base):
    host, port = base.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as line:
        head = f"POST /api/search HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 999999999\r\n"
        line.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x".encode())
        answer = line.recv(4096)  # nothing more was sent
    assert b" 413 " in answer.splitlines()[0]


def test_a_chunked_upload_beyond_the_limit_gets_413(base):
    sent = 0

    def endless():
        nonlocal sent
        yield b'--x\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
        for _ in range(2000):
            sent += 10_000
            yield b"a" * 10_000

    headers = {"content-type": "multipart/form-data; boundary=x"}
    with suppress(httpx.ReadError):  # the line may be closed before we read
        answer = httpx.post(base + "/api/search", content=endless(), headers=headers, timeout=30)
        assert answer.status_code == 413
    assert sent < 20_000_000
    assert get(base, "/api/health").status_code == 200


@pytest.mark.parametrize("announced", [True, False])
def test_a_client_that_sends_everything_first_still_reads_its_413(base, announced):
    head = b'--x\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n'
    parts = [head, *[b"a" * 10_000] * 30]
    content = b"".join(parts) if announced else iter(parts)
    headers = {"content-type": "multipart/form-data; boundary=x"}
    for _ in range(5):
        answer = httpx.post(base + "/api/search", content=content, headers=headers, timeout=30)
        assert answer.status_code == 413
        assert answer.json()["error"] == "the upload is larger than 0.19 MB"
        content = b"".join(parts) if announced else iter(parts)


@pytest.mark.parametrize("name", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1"])
def test_other_host_names_get_421(base, name):
    answer = get(base, "/api/health", headers={"host": name})
    assert answer.status_code in (400, 421)
    assert "gallery" not in answer.text


@pytest.mark.parametrize("name", ["localhost", "LOCALHOST:1234", "127.0.0.1", "[::1]:80"])
def test_loopback_names_are_answered(base, name):
    assert get(base, "/api/health", headers={"host": name}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://["}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:1"}, 200),
        ({}, 200),
    ],
)
def test_pages_of_other_sites_may_not_upload(base, photo, headers, status):
    answer = httpx.post(base + "/api/search", files={"image": photo}, headers=headers, timeout=30)
    assert answer.status_code == status
    assert ("error" in answer.json()) == (status == 403)


@pytest.mark.parametrize("path", ["/", "/api", "/page/search.js", "/api/health", "/api/images/0", "/nothing"])
def test_every_response_has_the_security_headers(base, path):
    headers = get(base, path).headers
    for name, value in HEADERS.items():
        assert headers[name] == value
    assert "server" not in headers


def test_pages_load_nothing_from_elsewhere(base):
    for file in PAGE.iterdir():
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, file.name
        assert "https://" not in text, file.name
    assert get(base, "/docs").status_code == 404
    assert get(base, "/openapi.json").json()["info"]["title"] == "tiny: search"


def test_too_many_requests_at_once_are_asked_to_retry(run, photo):
    slow = tiny_server.service(run, in_flight=2, batch=1, gather_seconds=0)
    gate = threading.Event()
    through = slow.batcher._run
    slow.batcher._run = lambda items: (gate.wait(20), through(items))[1]
    statuses: list[int] = []
    with tiny_server.served(slow) as base:
        ask = [
            threading.Thread(target=lambda: statuses.append(post(base, photo).status_code)) for _ in range(2)
        ]
        for thread in ask:
            thread.start()
        tiny_server.eventually(lambda: slow.batcher.batches + len(slow.batcher) == 2)
        began = time.monotonic()
        answer = post(base, photo)
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) >= 1
        assert "try again" in answer.json()["error"]
        assert time.monotonic() - began < 5
        assert get(base, "/api/health").status_code == 200  # which is never refused
        gate.set()
        for thread in ask:
            thread.join()
        assert statuses == [200, 200]
        assert post(base, photo).status_code == 200


def test_a_request_that_outlasts_the_server_gets_503_and_leaves_no_traceback(run, photo, monkeypatch, capfd):
    monkeypatch.setattr("iaa.serve.server.STOP_SECONDS", 1)
    slow = tiny_server.service(run)
    gate, answers = threading.Event(), []
    slow.batcher._run = lambda items: gate.wait(20) and items
    with tiny_server.served(slow) as base:
        asking = threading.Thread(target=lambda: answers.append(post(base, photo)))
        asking.start()
        tiny_server.eventually(lambda: slow.batcher.batches == 1)
        threading.Timer(3, gate.set).start()  # the server has given up by then
    asking.join()
    assert [(answer.status_code, answer.json()["error"]) for answer in answers] == [
        (503, "the server is stopping")
    ]
    assert "Traceback" not in capfd.readouterr().err


def test_a_request_that_takes_too_long_gets_503(run, photo):
    slow = tiny_server.service(run, seconds=1.0)
    gate = threading.Event()
    slow.batcher._run = lambda items: gate.wait(20) and items
    with tiny_server.served(slow) as base:
        answer = post(base, photo)
        assert answer.status_code == 503
        assert "no response within 1 seconds" in answer.json()["error"]
        gate.set()


def test_a_client_that_sends_too_slowly_gets_408(run):
    with tiny_server.served(tiny_server.service(run, seconds=1.0)) as base:
        host, port = base.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as line:
            head = f"POST /api/embed HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: 5000\r\n"
            line.sendall(f"{head}Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\n".encode())
            answer = line.recv(4096)
        assert b" 408 " in answer.splitlines()[0]


def test_a_missing_gallery_image_gets_404(run, tmp_path):
    made = tiny_server.service(run)
    made.gallery.ids[3] = str(tmp_path / "gone.png")
    with tiny_server.served(made) as base:
        answer = get(base, "/api/images/3")
    assert answer.status_code == 404
    assert answer.json()["error"] == "the file of image 3 is missing"


def test_an_internal_error_is_logged_and_the_client_gets_500(run, photo, caplog):
    broken = tiny_server.service(run)
    broken.batcher._run = lambda items: 1 / 0
    with tiny_server.served(broken) as base:
        answer = post(base, photo)
    assert answer.status_code == 500
    assert answer.json() == {"error": "the server failed to answer this request; see its log"}
    assert "ZeroDivisionError" in caplog.text


def test_overflowing_weights_get_500_and_not_null(run, photo):
    broken = tiny_server.service(run)
    broken.batcher._run = lambda items: [torch.full((8,), float("inf")) for _ in items]
    with tiny_server.served(broken) as base:
        for path in ("/api/embed", "/api/search"):
            answer = post(base, photo, path)
            assert answer.status_code == 500
            assert "infinite or undefined numbers" in answer.json()["error"]


def test_top_and_label_may_be_query_parameters_of_an_upload(base, photo):
    assert len(post(base, photo, "/api/search?top=1").json()["results"]) == 1
    assert len(post(base, photo, "/api/search?top=1", top=3).json()["results"]) == 3
    labels = {hit["label"] for hit in post(base, photo, "/api/search?label=dark+green").json()["results"]}
    assert labels == {"dark green"}
    assert post(base, photo, "/api/search?top=0").status_code == 422


@pytest.mark.parametrize("path", ["/api/search?id=0&tops=1", "/api/gallery?top=1", "/api/images/0?w=1"])
def test_parameters_that_do_not_exist_are_refused(base, path):
    answer = get(base, path)
    assert answer.status_code == 422
    assert "no such query parameter" in answer.json()["error"]


def test_health_is_not_refused_for_a_parameter(base):
    assert get(base, "/api/health?now=1").status_code == 200


def test_a_gallery_image_that_changes_on_disk_is_read_again(run, tmp_path):
    file = tmp_path / "image.png"
    Image.new("RGB", (20, 20), "red").save(file)
    made = tiny_server.service(run)
    made.gallery.ids[3] = str(file)
    with tiny_server.served(made) as base:
        before = get(base, "/api/search?id=3").json()["query"]["image"]
        first = get(base, before)
        Image.new("RGB", (30, 30), "lime").save(file)
        after = get(base, "/api/search?id=3").json()["query"]["image"]
        assert after != before
        assert "immutable" in get(base, after).headers["cache-control"]
        assert get(base, before).headers["cache-control"] == "no-store"
        assert Image.open(io.BytesIO(get(base, after).content)).size == (30, 30)
        assert Image.open(io.BytesIO(first.content)).size == (20, 20)
        file.write_bytes(file.read_bytes()[:40])
        assert get(base, "/api/images/3").status_code == 404
