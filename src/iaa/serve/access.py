"""Who may use the server: host names, origins and the access token."""

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from urllib.parse import urlsplit

from iaa.serve.api_errors import ApiError

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEALTH = "/api/health"
OPEN_PATHS = ("/", "/api", HEALTH)
"""Served without a token: pages without data, and whether the server is alive."""
MIN_TOKEN = 12
"""Characters of a token: with fewer, it could be guessed over the network."""


class Access:
    """Checks the host name, the origin and the token of a request.

    ``hosts=None`` accepts any host name. On loopback the check keeps foreign pages from reaching the server
    by pointing a name of their own at it (DNS rebinding). Without a ``token`` nobody has to send one.
    """

    def __init__(self, *, hosts: Iterable[str] | None, token: str | None = None) -> None:
        self.hosts = None if hosts is None else frozenset(host.lower() for host in hosts)
        self.token = None if token is None else check_token(token)
        self._session = "" if token is None else hmac.digest(token.encode(), b"session", "sha256").hex()
        self._cookie = f"iaa_{hashlib.sha256(self._session.encode()).hexdigest()[:8]}"  # one name per token

    def check(self, method: str, path: str, headers: Mapping[bytes, str]) -> None:
        """Raise an ``ApiError`` if the request may not pass."""
        host = headers.get(b"host", "")
        if self.hosts is not None and _host_name(host) not in self.hosts:
            raise ApiError(421, f"this server does not answer to the name {host[:100]!r}")
        if method not in ("GET", "HEAD") and _is_cross_site(headers, host):
            raise ApiError(403, "pages of other sites may not send requests to this server")
        if path not in OPEN_PATHS and not path.startswith("/page/") and not self.is_authorized(headers):
            raise ApiError(401, "this server needs its access token: Authorization: Bearer TOKEN")

    def is_authorized(self, headers: Mapping[bytes, str]) -> bool:
        """Whether the token, or the cookie that the page got for it, was sent; compared in constant time."""
        if self.token is None:
            return True
        scheme, _, given = headers.get(b"authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode(), self.token.encode())
        for cookie in headers.get(b"cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            if name == self._cookie:
                return hmac.compare_digest(value.encode(), self._session.encode())
        return False

    def session_cookie(self) -> str:
        """The ``Set-Cookie`` header of a page that has sent the token: images cannot send another header."""
        return f"{self._cookie}={self._session}; Path=/; HttpOnly; SameSite=Strict"


def check_token(token: str) -> str:
    """A usable token, or a ``ValueError`` that says what is wrong with it, without repeating it."""
    if len(token) < MIN_TOKEN or not all("!" <= character <= "~" for character in token):
        raise ValueError(f"the token must have at least {MIN_TOKEN} ASCII characters and no spaces")
    return token


def _is_cross_site(headers: Mapping[bytes, str], host: str) -> bool:
    site, origin = headers.get(b"sec-fetch-site"), headers.get(b"origin")
    if site is not None:
        return site in ("cross-site", "same-site")
    return origin is not None and _authority(origin) != host.lower()


def _authority(origin: str) -> str:
    """Host and port of an origin; empty if it is not a URL."""
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _host_name(host: str) -> str:
    """The host without its port: ``[::1]:8000`` is ``::1``."""
    try:
        return (urlsplit(f"//{host}").hostname or "").lower()
    except ValueError:
        return ""
