"""A stand-in for the Hugging Face hub on loopback: create, preupload, LFS, commit, resolve; nothing else."""

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

TOKEN = "hf_may_write"
CLIENT_WARNING = "ignore:Use 'content=<...>' to upload raw:DeprecationWarning"
"""The hub's own client passes its file in a way that its HTTP library no longer likes."""


@dataclass
class Hub:
    """Repositories by id: commits by their hash, and branches that name commits."""

    url: str = ""
    commits: dict[str, dict[str, dict[str, bytes]]] = field(default_factory=dict)
    branches: dict[str, dict[str, str]] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def put(self, repo: str, files: dict[str, bytes], branch: str = "main") -> str:
        """A commit with some more files."""
        commits, branches = self.commits.setdefault(repo, {}), self.branches.setdefault(repo, {})
        before = commits.get(branches.get(branch, branches.get("main", "")), {})
        sha = hashlib.sha1(f"{repo} {branch} {len(commits)}".encode()).hexdigest()
        commits[sha], branches[branch] = {**before, **files}, sha
        return sha

    def files(self, repo: str, branch: str = "main") -> dict[str, bytes]:
        return self.commits[repo][self.branches[repo][branch]]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.resolve(body=False)

    def do_GET(self) -> None:
        self.resolve(body=True)

    def do_PUT(self) -> None:
        self.hub.requests.append(f"PUT {self.path}")
        self.hub.objects[self.path.rpartition("/")[2]] = self.body()
        self.answer(200, b"")

    def do_POST(self) -> None:
        self.hub.requests.append(f"POST {self.path}")
        content = self.body()
        path = unquote(self.path.partition("?")[0])
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self.fail(403 if self.headers.get("Authorization") else 401)
        if path == "/api/repos/create":
            return self.create(json.loads(content))
        if path == "/api/validate-yaml":
            return self.json({"errors": [], "warnings": []})
        parts = path.split("/")
        if path.endswith("/info/lfs/objects/batch"):
            return self.lfs(json.loads(content))
        repo, action, branch = "/".join(parts[3:5]), parts[5], "/".join(parts[6:])
        if action == "branch":
            self.hub.branches[repo][branch] = self.hub.branches[repo].get("main", "")
            return self.json({})
        if action == "preupload":
            names = [file["path"] for file in json.loads(content)["files"]]
            modes = ("lfs" if name.endswith(".safetensors") else "regular" for name in names)
            files = [
                {"path": name, "uploadMode": mode, "shouldIgnore": False, "oid": None}
                for name, mode in zip(names, modes, strict=True)
            ]
            return self.json({"files": files})
        assert action == "commit", path
        files = {}
        for line in map(json.loads, content.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            if line["key"] == "lfsFile":
                assert hashlib.sha256(self.hub.objects[value["oid"]]).hexdigest() == value["oid"]
                files[value["path"]] = self.hub.objects[value["oid"]]
        sha = self.hub.put(repo, files, branch)
        self.json({"success": True, "commitOid": sha, "commitUrl": f"{self.hub.url}/{repo}/commit/{sha}"})

    def create(self, asked: dict[str, Any]) -> None:
        repo = f"{asked['organization']}/{asked['name']}"
        if repo in self.hub.commits:
            return self.fail(409)
        self.hub.put(repo, {})
        if asked.get("private") or asked.get("visibility") == "private":
            self.hub.private.add(repo)
        self.json({"url": f"{self.hub.url}/{repo}"})

    def lfs(self, asked: dict[str, Any]) -> None:
        objects = [
            {**entry, "actions": {"upload": {"href": f"{self.hub.url}/lfs/{entry['oid']}"}}}
            for entry in asked["objects"]
        ]
        self.json({"transfer": "basic", "objects": objects})

    def resolve(self, *, body: bool) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        parts = unquote(self.path.partition("?")[0]).strip("/").split("/")
        repo = "/".join(parts[2:4] if parts[0] == "api" else parts[:2])
        commits, branches = self.hub.commits.get(repo), self.hub.branches.get(repo, {})
        allowed = repo not in self.hub.private or self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if commits is None or not allowed:
            return self.fail(404 if allowed and self.headers.get("Authorization") else 401, "RepoNotFound")
        revision = (parts[5] if len(parts) > 5 else "main") if parts[0] == "api" else parts[3]
        sha = branches.get(revision, revision)
        if sha not in commits:
            return self.fail(404, "RevisionNotFound")
        if parts[0] == "api":
            names = [{"rfilename": name} for name in commits[sha]]
            return self.json({"id": repo, "sha": sha, "siblings": names, "private": False, "tags": []})
        name = "/".join(parts[4:])
        if name not in commits[sha]:
            return self.fail(404, "EntryNotFound", sha)
        content = commits[sha][name]
        etag = hashlib.sha256(content).hexdigest()
        self.answer(200, content, {"ETag": f'"{etag}"', "X-Repo-Commit": sha}, body=body)

    def body(self) -> bytes:
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            content = b""
            while size := int(self.rfile.readline(), 16):
                content += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return content
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def json(self, content: dict[str, Any]) -> None:
        self.answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def fail(self, status: int, code: str = "", sha: str = "") -> None:
        headers = {"X-Error-Code": code} if code else {}
        self.answer(status, b'{"error": "no"}', headers | ({"X-Repo-Commit": sha} if sha else {}))

    def answer(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, *, body: bool = True
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body and self.command != "HEAD":
            self.wfile.write(content)


@contextmanager
def running() -> Iterator[Hub]:
    """A hub of its own on a free port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
