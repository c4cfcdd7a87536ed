"""A built documentation site: its pages as they are written, and a server that shows them."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
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


class Site:
    """The pages of a folder, parsed.

    Attributes
    ----------
    pages
        The parsed pages, by their paths below the folder.
    """

    def __init__(self, folder: Path) -> None:
        from bs4 import BeautifulSoup

        self.folder = folder
        files = sorted(path for path in folder.rglob("*.html") if "_static" not in path.parts)
        self.pages = {
            str(path.relative_to(folder)): BeautifulSoup(path.read_text(), "html.parser")
            for path in files
        }

    def broken_links(self) -> list[str]:
        """Return the links whose page, file or anchor is not there."""
        anchors = {
            page: {tag["id"] for tag in tree.find_all(id=True)} for page, tree in self.pages.items()
        }
        return [
            f"{page}: {link}"
            for page, link in self._links()
            if not urlsplit(link).netloc and not self._leads(page, link, anchors)
        ]

    def _leads(self, page: str, link: str, anchors: dict[str, set[str]]) -> bool:
        parts = urlsplit(link)
        target = (self.folder / page).parent / unquote(parts.path) if parts.path else None
        path = (target or self.folder / page).resolve()
        if not path.is_file():
            return False
        name = str(path.relative_to(self.folder.resolve()))
        return not parts.fragment or name not in anchors or unquote(parts.fragment) in anchors[name]

    def malformed_addresses(self) -> list[str]:
        """Return links to other hosts whose address cannot be right."""
        return [
            f"{page}: {link}"
            for page, link in self._links()
            if (parts := urlsplit(link)).netloc
            and (parts.scheme not in ("http", "https") or "." not in parts.netloc or " " in link)
        ]

    def _links(self) -> Iterator[tuple[str, str]]:
        for page, tree in self.pages.items():
            for tag in tree.find_all(["a", "link", "img", "script"]):
                link = tag.get("href") or tag.get("src")
                if link and link != "#" and not link.startswith(("data:", "mailto:")):
                    yield page, link

    def pictures_without_text(self) -> list[str]:
        """Return the pictures that say nothing to those who cannot see them.

        The gallery's thumbnails stand in a link beside its words.
        """
        return [
            f"{page}: {picture.get('src')}"
            for page, tree in self.pages.items()
            for picture in tree.find_all("img")
            if not (picture.get("alt") or "").strip()
            and not picture.find_parent(class_="sphx-glr-thumbcontainer")
        ]
