"""Rewrite the links of documents for the site. Pure.

Documents link to files outside `docs/`, such as the architecture and the examples. Those are added
to the site under `repository/`, and each link is rewritten relative to its page there. A link to a
folder, for which the site has no page, becomes plain text.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from pathlib import Path

OUTSIDE = "repository"
# Code spans match first, because a link inside one is not a link.
LINK = re.compile(r"`[^`]*`|(!?\[(?:[^\[\]]|\[[^\[\]]*\])*\])\(([^()\s#]+)(#[^()\s]*)?\)")
FENCED = re.compile(r"(^ *(```+|~~~+).*?^ *\2 *$)", re.MULTILINE | re.DOTALL)


def site_uri(path: str) -> str:
    """Return the path of a repository file in the site. Code gets `.txt`, so browsers show it."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{OUTSIDE}/{path}" if path.endswith(".md") else f"{OUTSIDE}/{path}.txt"


def repository_path(uri: str) -> str:
    """Return the repository file that a page of the site is built from."""
    inside = f"{OUTSIDE}/"
    return uri.removeprefix(inside) if uri.startswith(inside) else f"docs/{uri}"


def targets(text: str, here: str) -> Iterator[str]:
    """Yield the files that a document links to, as paths in the repository."""
    for found in LINK.finditer(FENCED.sub("", text)):
        if found[2] and not _is_address(found[2]):
            yield _resolved(here, found[2])


def relinked(text: str, here: str, is_folder: Callable[[str], bool]) -> str:
    """Return a document with links for the site; `here` is its path in the repository."""

    def anew(found: re.Match[str]) -> str:
        if not found[2] or _is_address(found[2]):
            return found[0]
        target = _resolved(here, found[2])
        if is_folder(target):
            return found[1].removeprefix("[").removesuffix("]")
        relative = posixpath.relpath(site_uri(target), posixpath.dirname(site_uri(here)) or ".")
        return f"{found[1]}({relative}{found[3] or ''})"

    # split() returns each fenced block followed by its fence, which is a group of the pattern.
    parts = FENCED.split(text)
    return "".join(
        part if number % 3 == 1 else "" if number % 3 == 2 else LINK.sub(anew, part)
        for number, part in enumerate(parts)
    )


def linked_files(root: Path) -> set[str]:
    """Return all files outside `docs/` that documents link to, directly or indirectly."""
    waiting = [path.relative_to(root).as_posix() for path in sorted(root.glob("docs/**/*.md"))]
    found = set(waiting)
    while waiting:
        here = waiting.pop()
        if here.endswith(".md"):
            for target in targets((root / here).read_text(), here):
                if target not in found and (root / target).is_file():
                    found.add(target)
                    waiting.append(target)
    return {path for path in found if not path.startswith("docs/")}


def _resolved(here: str, target: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(here), target))


def _is_address(target: str) -> bool:
    return re.match(r"[a-z]+:", target) is not None
