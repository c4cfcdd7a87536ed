"""A built documentation site: its pages as they are written, and a server that shows them."""

from __future__ import annotations

import functools
import posixpath
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


class Quiet(SimpleHTTPRequestHandler):
    """A server of files that does not print every request."""

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on this machine, and return its address."""
    handler = functools.partial(Quiet, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


class Page(HTMLParser):
    """The identifiers, classes, links and pictures without words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.classes: set[str] = set()
        self.links: list[str] = []
        self.wordless: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if "id" in given:
            self.anchors.add(given["id"] or "")
        self.classes |= {*(given.get("class") or "").split()}
        link = given.get("href") or given.get("src") or ""
        is_link = tag in ("a", "link", "img", "script") and link not in ("", "#")
        if is_link and not link.startswith(("data:", "mailto:")):
            self.links.append(link)
        # The gallery's thumbnails stand in a link beside its words.
        if tag == "img" and not (given.get("alt") or "").strip() and "_thumb." not in link:
            self.wordless.append(link)


class Site:
    """The pages of a folder.

    Attributes
    ----------
    pages
        The parsed pages, by their paths below the folder.
    """

    def __init__(self, folder: Path) -> None:
        there = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
        self._files = {*map(str, there)}
        self.pages = {
            str(file): Page((folder / file).read_text())
            for file in there
            if file.suffix == ".html" and "_static" not in file.parts
        }

    def broken_links(self) -> list[str]:
        """Return the links whose page, file or anchor is not there."""
        return [
            f"{page}: {link}"
            for page, link in self._links()
            if not urlsplit(link).netloc and not self._leads(page, link)
        ]

    def _leads(self, page: str, link: str) -> bool:
        parts = urlsplit(link)
        path = posixpath.join(posixpath.dirname(page), unquote(parts.path)) if parts.path else page
        name = posixpath.normpath(path)
        anchors = self.pages[name].anchors if name in self.pages else None
        known = not parts.fragment or anchors is None or unquote(parts.fragment) in anchors
        return name in self._files and known

    def malformed_addresses(self) -> list[str]:
        """Return links to other hosts whose address cannot be right."""
        return [
            f"{page}: {link}"
            for page, link in self._links()
            if (parts := urlsplit(link)).netloc
            and (parts.scheme not in ("http", "https") or "." not in parts.netloc or " " in link)
        ]

    def _links(self) -> Iterator[tuple[str, str]]:
        for name, page in self.pages.items():
            yield from ((name, link) for link in dict.fromkeys(page.links))

    def pictures_without_text(self) -> list[str]:
        """Return the pictures that say nothing to those who cannot see them."""
        return [f"{name}: {link}" for name, page in self.pages.items() for link in page.wordless]
