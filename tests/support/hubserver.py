"""A hub on the loopback interface: repositories of files, revisions, faults, and a log of requests.

It answers what the clients ask of the hub of Hugging Face when they load models and data sets: the
commit of a revision, the list of files, and files with the headers by which the clients know their
commit, size and hash. A revision of a repository is a folder; its commit is a hash of the names and
the content, so that another content is another commit. A `Fault` changes answers.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

LARGE = (".safetensors", ".bin", ".parquet", ".h5", ".onnx", ".gguf")  # kept as git-lfs objects
_NAME = r"(?P<name>[^/]+(?:/[^/]+)?)"
_API = re.compile(rf"/api/(?P<kind>models|datasets)/{_NAME}/(?P<what>revision|tree)/(?P<rest>.+)")
_INFO = re.compile(rf"/api/(?P<kind>models|datasets)/{_NAME}")
_FILE = re.compile(rf"/(?P<sets>datasets/)?{_NAME}/resolve/(?P<revision>[^/]+)/(?P<file>.+)")


@dataclass
class Fault:
    """A change of answers."""

    match: str  # a regular expression for ``METHOD PATH`` of the requests with the fault
    times: int = 1_000_000  # requests that have the fault
    status: int | None = None
    code: str | None = None  # ``X-Error-Code``
    headers: dict[str, str] = field(default_factory=dict)
    drop: int | None = None  # bytes of the body, after which the connection is closed
    short: int | None = None  # bytes that are sent, and said to be all
    zeros: bool = False  # whether zeros are sent in place of the content
    delay: float = 0.0  # seconds before the answer


@dataclass
class Hub:
    """A hub that runs."""

    root: Path  # with ``models/ORG/NAME/REVISION/`` and ``datasets/ORG/NAME/REVISION/``
    port: int = 0
    faults: list[Fault] = field(default_factory=list)
    log: list[str] = field(default_factory=list)  # requests so far: ``GET /api/...``
    moved: dict[str, str] = field(default_factory=dict)  # new names of models by their old ones

    @property
    def url(self) -> str:
        """Return the address, for HF_ENDPOINT."""
        return f"http://127.0.0.1:{self.port}"

    def folder(self, name: str, kind: str = "models", revision: str = "main") -> Path:
        """Return the folder of a revision, which a test fills."""
        return self.root / kind / name / quote(revision, safe="")

    def asked(self, *words: str) -> list[str]:
        """Return the requests that contain all words."""
        return [line for line in self.log if all(word in line for word in words)]

    def find(self, kind: str, name: str, revision: str) -> Path | None:
        """Return the folder of a branch, a tag or a commit."""
        place = self.root / kind / name
        every = [one for one in place.iterdir() if one.is_dir()] if place.is_dir() else []
        named = [one for one in every if revision in (unquote(one.name), commit_of(one))]
        return named[0] if named else None

    @contextmanager
    def running(self) -> Iterator[Hub]:
        """Answer requests inside the block, at the same port each time."""
        server = ThreadingHTTPServer(("127.0.0.1", self.port), _Handler)
        server.daemon_threads = True
        server.hub = self  # type: ignore[attr-defined]
        self.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


@cache
def _hashed(file: Path, _size: int, _time: int) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def hash_of(file: Path) -> str:
    """Return the SHA-256 of a file."""
    state = file.stat()
    return _hashed(file, state.st_size, state.st_mtime_ns)


def commit_of(folder: Path) -> str:
    """Return the commit of a revision."""
    names = [(path.relative_to(folder).as_posix(), hash_of(path)) for path in _files(folder)]
    return hashlib.sha1(json.dumps(names).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.hub: Hub = self.server.hub  # type: ignore[attr-defined]
        line = f"{self.command} {self.path}"
        self.hub.log.append(line)
        faults = [one for one in self.hub.faults if one.times > 0 and re.search(one.match, line)]
        self.fault = faults[0] if faults else Fault("")
        self.fault.times -= 1
        time.sleep(self.fault.delay)
        with suppress(BrokenPipeError, ConnectionResetError):
            if self.fault.status is not None:
                self._refuse(self.fault.status, self.fault.code, **self.fault.headers)
            else:
                self._route()

    def _route(self) -> None:
        url = urlsplit(self.path)
        # Clients quote the slashes of a revision, as in refs%2Fconvert%2Fparquet.
        path = url.path
        if (match := _FILE.fullmatch(path)) is not None:
            kind, revision, rest = "datasets" if match["sets"] else "models", match["revision"], ""
        elif (match := _API.fullmatch(path) or _INFO.fullmatch(path)) is not None:
            kind, (revision, _, rest) = match["kind"], ("main", "", "")
            if "rest" in match.groupdict():
                revision, _, rest = match["rest"].partition("/")
        else:
            return self._refuse(404)
        name, revision, rest = match["name"], unquote(revision), unquote(rest)
        if name in self.hub.moved:
            place = self.path.replace(name, self.hub.moved[name], 1)
            return self._send(307, b"", {"Location": place})
        if not (self.hub.root / kind / name).is_dir():
            return self._refuse(401, "RepoNotFound")
        folder = self.hub.find(kind, name, revision)
        if folder is None:
            return self._refuse(404, "RevisionNotFound")
        if "file" in match.groupdict():
            return self._send_file(folder, folder / unquote(match["file"]))
        if match.groupdict().get("what") == "tree":
            deep = parse_qs(url.query).get("recursive", ["false"])[0].lower() in ("true", "1")
            return self._list(folder, folder / rest, deep)
        listed = [{"rfilename": p.relative_to(folder).as_posix()} for p in _files(folder)]
        if "blobs" in parse_qs(url.query):
            for entry, path in zip(listed, _files(folder), strict=True):
                entry |= {"size": path.stat().st_size, "blobId": "0" * 40}
                if path.suffix in LARGE:
                    size = {"size": path.stat().st_size, "pointerSize": 130}
                    entry["lfs"] = {"sha256": hash_of(path), **size}
        return self._json({"_id": "1", "id": name, "sha": commit_of(folder), "siblings": listed})

    def _list(self, folder: Path, top: Path, deep: bool) -> None:
        if not top.is_dir():
            return self._refuse(404, "EntryNotFound")
        found = []
        for path in sorted(top.rglob("*") if deep else top.iterdir()):
            entry: dict[str, Any] = {"path": path.relative_to(folder).as_posix(), "oid": "0" * 40}
            if path.is_dir():
                found.append(entry | {"type": "directory", "size": 0})
                continue
            size = path.stat().st_size
            if path.suffix in LARGE:
                entry["lfs"] = {"oid": hash_of(path), "size": size, "pointerSize": 130}
            found.append(entry | {"type": "file", "size": size})
        return self._json(found)

    def _send_file(self, folder: Path, file: Path) -> None:
        commit = {"X-Repo-Commit": commit_of(folder)}
        if not file.is_file():
            return self._refuse(404, "EntryNotFound", **commit)
        data = file.read_bytes()
        tag = hash_of(file) if file.suffix in LARGE else hashlib.sha1(data).hexdigest()
        headers = {**commit, "ETag": f'"{tag}"', "Accept-Ranges": "bytes"}
        if file.suffix in LARGE:
            headers |= {"X-Linked-Etag": f'"{tag}"', "X-Linked-Size": str(len(data))}
        if self.fault.zeros:
            data = bytes(len(data))
        status, first = 200, 0
        if match := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
            first, last = int(match[1]), int(match[2] or len(data) - 1)
            if first >= len(data):
                return self._refuse(416, **{"Content-Range": f"bytes */{len(data)}"})
            headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[first : last + 1], 206
        if self.fault.short is not None:
            data = data[: self.fault.short]
        return self._send(status, data, headers)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _refuse(self, status: int, code: str | None = None, **headers: str) -> None:
        words = {"X-Error-Message": f"status {status}"} | ({"X-Error-Code": code} if code else {})
        body = json.dumps({"error": f"status {status}"}).encode()
        self._send(status, body, {**words, **headers, "Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        if self.fault.drop is None:
            self.wfile.write(body)
            return
        self.wfile.write(body[: self.fault.drop])
        self.wfile.flush()
        self.close_connection = True
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
