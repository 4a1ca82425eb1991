import asyncio
import gc
import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
import torch

import iaa
import tiny_server
from iaa.cli import main
from iaa.serve import app, service
from iaa.serve.service import Service


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    return tiny_server.trained(tmp_path_factory.mktemp("run"))


def start(run: Path, *arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A server of its own process, and its address once it has captured it."""
    command = [sys.executable, "-m", "iaa", "serve", str(run), "--port", "0", "--no-open", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    result = re.search(r"http://\S+/", line)
    assert result, line + process.stderr.read()
    assert line == f"40 images of 8 classes at {result[0]} (Ctrl-C stops)\n"
    return process, result[0]


def test_ctrl_c_stops_the_server_without_an_error(run):
    process, address = start(run)
    try:
        assert httpx.get(f"{address}api/health", timeout=20).json()["run"] == run.name
        answer = tiny_server.post(
            address.rstrip("/"), (run.parents[1] / "images/dark red/1.png").read_bytes(), top=1
        )
        assert answer.json()["results"][0]["label"] == "dark red"
        port = int(address.rstrip("/").rpartition(":")[2])
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", port)):  # a page that stays open
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=30)
        assert (out, error) == ("stopped\n", "")
        assert process.returncode == 0
        assert time.monotonic() - began < 12
    finally:
        process.kill()
        process.wait()


def test_addresses_other_machines_can_reach_are_warned_about(run):
    process, address = start(run, "--host", "0.0.0.0", "--no-token")
    try:
        assert address.startswith("http://localhost:")
        answer = httpx.get(f"{address}api/health", headers={"host": "my-machine.lan"}, timeout=20)
        assert answer.status_code == 200
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
        assert error == (
            "warning: 0.0.0.0 can be reached from other machines, without a token: "
            "whoever reaches it sees the images of the gallery\n"
        )
    finally:
        process.kill()
        process.wait()


def test_another_gallery_is_served(run, tmp_path, monkeypatch):
    tiny_server.images(tmp_path / "other", each=2)
    process, address = start_other(run, tmp_path / "other")
    try:
        assert httpx.get(f"{address}api/health", timeout=20).json()["gallery"]["images"] == 16
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def start_other(run: Path, folder: Path) -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-m", "iaa", "serve", str(run), "--gallery", f"folder:{folder}"]
    command += ["--port", "0", "--no-open", "--index", "flat"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    return process, re.search(r"http://\S+/", process.stdout.readline())[0]


def test_a_port_in_use_is_reported_before_anything_is_loaded(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main(["serve", str(tmp_path / "nowhere"), "--port", str(port)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"iaa serve: cannot listen on 127.0.0.1:{port} (")
    assert "--port 0 picks a free one" in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--port", "99999"], "--port must lie in [0, 65535], got 99999"),
        (["--host", "no.such.host.invalid", "--no-token"], "is not an address of this machine"),
        (
            ["--host", "192.0.2.1", "--no-token"],
            "--host 192.0.2.1 is not an address of this machine (Cannot assign",
        ),
        (["--max-megabytes", "0"], "--max-megabytes must be more than 0"),
        (["--max-megabytes", "inf"], "--max-megabytes must be more than 0 and at most 1,000,000, got inf"),
        (["--max-megabytes", "nan"], "--max-megabytes must be more than 0 and at most 1,000,000, got nan"),
        (["--max-megapixels", "inf"], "--max-megapixels must be more than 0"),
        (["--max-seconds", "0"], "--max-seconds must be more than 0"),
        (["--max-seconds", "nan"], "--max-seconds must be more than 0"),
        (["--max-requests", "-1"], "--max-requests must be more than 0 and at most 1,000,000, got -1"),
        (["--batch-size", "0"], "--batch-size must be more than 0"),
        ([], "nowhere"),
    ],
)
def test_errors_are_one_line(tmp_path, arguments, message, capsys):
    assert main(["serve", str(tmp_path / "nowhere"), "--port", "0", "--no-open", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_ctrl_c_while_it_starts_ends_the_threads(run, monkeypatch, capsys):
    closed = []
    close = Service.close
    monkeypatch.setattr(Service, "close", lambda self: (closed.append(self), close(self)))
    monkeypatch.setattr(app, "create_app", interrupted)
    monkeypatch.setattr(os, "_exit", sys.exit)  # where a thread is still at work after two seconds
    with suppress(SystemExit):
        assert main(["serve", str(run), "--port", "0", "--no-open"]) == 0
    assert capsys.readouterr().out == "stopped\n"
    assert len(closed) == 1


def test_ctrl_c_while_a_thread_starts_does_not_wait_for_it(run, monkeypatch, capsys):
    monkeypatch.setattr(service, "Service", interrupted)
    monkeypatch.setattr(os, "_exit", sys.exit)
    with pytest.raises(SystemExit) as ended:
        main(["serve", str(run), "--port", "0", "--no-open"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == "stopped\n"


def test_uploads_are_embedded_in_the_precision_asked_for(run, monkeypatch):
    image = run.parents[1] / "images" / "dark red" / "1.png"
    embeddings = []

    def upload(service: Service, **options: object) -> None:
        embeddings.append(asyncio.run(service.embed(image.read_bytes(), "client")))
        raise KeyboardInterrupt

    monkeypatch.setattr(app, "create_app", upload)
    monkeypatch.setattr(os, "_exit", sys.exit)
    for precision in ("fp32", "bf16"):
        with suppress(SystemExit):
            main(["serve", str(run), "--port", "0", "--no-open", "--precision", precision])
    expected = [iaa.load(run, precision=precision).embed(image)[0] for precision in ("fp32", "bf16")]
    torch.testing.assert_close(embeddings, expected, rtol=0, atol=2e-5)
    assert (expected[0] - expected[1]).abs().max() > 1e-4


def interrupted(*given, **options):
    raise KeyboardInterrupt


def test_small_responses_are_sent_at_once():
    """asyncio turns Nagle's algorithm off for sockets that say they are TCP; else an answer takes 40 ms."""
    from iaa.serve.server import bind

    with bind("127.0.0.1", 0) as bound:
        assert bound.proto == socket.IPPROTO_TCP


def test_help_shows_an_example(capsys):
    with pytest.raises(SystemExit):
        main(["serve", "--help"])
    captured = capsys.readouterr().out
    assert "curl -F image=@photo.jpg" in captured
    assert "--max-megapixels" in captured


def test_a_browser_is_opened_only_where_there_is_a_screen(monkeypatch):
    from iaa.serve.server import has_screen

    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    assert not has_screen()
    monkeypatch.setitem(os.environ, "WAYLAND_DISPLAY", "wayland-0")
    assert has_screen()


@pytest.mark.parametrize(
    ("host", "local"),
    [
        ("127.0.0.1", True),
        ("127.1.2.3", True),
        ("::1", True),
        ("localhost", True),
        ("0.0.0.0", False),
        ("10.0.0.1", False),
    ],
)
def test_loopback_addresses_are_recognised(host, local):
    from iaa.serve.server import is_loopback

    assert is_loopback(host) == local


def test_loaded_objects_are_frozen_out_of_garbage_collection(run, monkeypatch):
    """A full collection over all modules keeps every request waiting for a fifth of a second."""
    frozen = []

    class Server:
        def __init__(self, app, *, on_start):
            self.on_start = on_start

        def run(self, sockets):
            self.on_start()
            frozen.append(gc.get_freeze_count())

    monkeypatch.setattr("iaa.serve.server.make_server", Server)
    monkeypatch.setattr(os, "_exit", sys.exit)
    try:
        with suppress(SystemExit):
            main(["serve", str(run), "--port", "0", "--no-open"])
    finally:
        gc.unfreeze()
    assert frozen[0] > 10_000
