"""Servers that others can reach: tokens, host names, and the page's login."""

import httpx
import pytest

import tiny_server
from iaa.cli import main
from iaa.serve.access import Access, check_token

TOKEN = "correct-horse-battery"


@pytest.fixture(scope="module")
def protected(run):
    service = tiny_server.service(run)
    with tiny_server.served(service, hosts=None, token=TOKEN) as base:
        yield base


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/", 200),
        ("/api", 200),
        ("/page/search.js", 200),
        ("/api/gallery", 401),
        ("/api/images/0", 401),
        ("/api/search?id=0", 401),
        ("/openapi.json", 401),
        ("/nothing", 401),
        ("//api/gallery", 401),
        ("/page/../api/gallery", 401),
    ],
)
def test_only_pages_without_data_are_open(protected, path, status):
    answer = httpx.get(protected + path, timeout=30)
    assert answer.status_code == status
    if status == 401:
        assert "token" in answer.json()["error"]
        assert answer.headers["www-authenticate"] == "Bearer"


def test_uploads_need_the_token_as_well(protected, photo):
    assert tiny_server.post(protected, photo).status_code == 401
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = httpx.post(f"{protected}/api/search", files={"image": photo}, headers=headers, timeout=30)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        f"Bearer {TOKEN}x",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN.upper()}",
    ],
)
def test_a_wrong_token_is_refused(protected, header):
    answer = httpx.get(f"{protected}/api/gallery", headers={"authorization": header}, timeout=30)
    assert answer.status_code == 401


def test_without_a_token_health_says_only_that_the_server_is_alive(protected):
    assert httpx.get(f"{protected}/api/health", timeout=30).json() == {"status": "ok"}
    headers = {"authorization": f"Bearer {TOKEN}"}
    answer = httpx.get(f"{protected}/api/health", headers=headers, timeout=30).json()
    assert answer["gallery"]["images"] == 40


def test_login_gives_a_cookie_that_is_not_the_token(protected):
    with httpx.Client(base_url=protected, timeout=30) as client:
        assert client.post("/api/login").status_code == 401
        answer = client.post("/api/login", headers={"authorization": f"Bearer {TOKEN}"})
        assert answer.status_code == 204
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert client.get("/api/gallery").status_code == 200
        assert client.get("/api/images/0").status_code == 200
        client.cookies = {name: value[:-1] + "0" * 2 for name, value in client.cookies.items()}
        assert client.get("/api/gallery").status_code == 401


def test_tokens_are_compared_in_constant_time(monkeypatch):
    compared = []
    monkeypatch.setattr(
        "iaa.serve.access.hmac.compare_digest", lambda a, b: compared.append((a, b)) or a == b
    )
    access = Access(hosts=None, token=TOKEN)
    assert access.is_authorized({b"authorization": f"Bearer {TOKEN}"})
    assert not access.is_authorized({b"authorization": "Bearer short"})
    assert len(compared) == 2


@pytest.mark.parametrize("token", ["short", "has spaces in it", "überlange-kennung", ""])
def test_a_token_that_is_weak_or_cannot_be_sent_is_refused(token):
    with pytest.raises(ValueError, match="at least 12 ASCII characters") as refused:
        check_token(token)
    assert not token or token not in str(refused.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "--host 0.0.0.0 lets other machines reach the gallery: set a token"),
        (["--token", "short"], "at least 12 ASCII characters"),
        (["--token", TOKEN, "--no-token"], "only one of --token, --token-file and --no-token"),
        (["--token-file", "missing.txt"], "missing.txt"),
    ],
)
def test_other_addresses_than_loopback_need_a_token(tmp_path, arguments, message, capsys, monkeypatch):
    monkeypatch.delenv("IAA_TOKEN", raising=False)
    assert main(["serve", str(tmp_path / "nowhere"), "--port", "0", "--no-open", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


@pytest.mark.parametrize("way", ["option", "file", "environment"])
def test_with_a_token_any_address_is_allowed(tmp_path, way, capsys, monkeypatch):
    monkeypatch.delenv("IAA_TOKEN", raising=False)
    arguments = []
    if way == "option":
        arguments = ["--token", TOKEN]
    elif way == "file":
        (tmp_path / "token.txt").write_text(f"{TOKEN}\n")
        arguments = ["--token-file", str(tmp_path / "token.txt")]
    else:
        monkeypatch.setenv("IAA_TOKEN", TOKEN)
    command = ["serve", str(tmp_path / "nowhere"), "--port", "0", "--no-open", "--host", "0.0.0.0"]
    assert main([*command, *arguments]) == 2
    assert "no such run" in capsys.readouterr().err  # the address was accepted


def test_only_allowed_host_names_are_answered():
    access = Access(hosts=("localhost", "photos.example"))
    access.check("GET", "/", {b"host": "PHOTOS.example:8000"})
    with pytest.raises(Exception, match="does not answer to the name"):
        access.check("GET", "/", {b"host": "evil.example"})
