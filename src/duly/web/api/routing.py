"""Matching of raw paths to endpoints. Pure.

Paths are matched as sent, still percent-encoded, because a decoded slash would make one schedule
look like another. `{name}` is one segment, `{name+}` one or more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote


@dataclass(frozen=True, slots=True)
class Match:
    """A matched path."""

    path: str
    """The pattern, as in `/api/flows/{flow}/schedules`."""
    params: dict[str, str]
    """Still percent-encoded."""


class Paths:
    """Path patterns of a surface."""

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [(each, each.split("/")) for each in patterns]

    def match(self, raw_path: str) -> Match | None:
        """Return the first pattern that matches a path, with its parameters; None: no match."""
        segments = raw_path.split("/")
        for pattern, parts in self._patterns:
            params = _fit(parts, segments)
            if params is not None:
                return Match(pattern, params)
        return None


def _fit(parts: list[str], segments: list[str]) -> dict[str, str] | None:
    params: dict[str, str] = {}
    spare = len(segments) - len(parts)
    if spare < 0 or (spare and not any(part.endswith("+}") for part in parts)):
        return None
    position = 0
    for part in parts:
        taken = spare + 1 if part.endswith("+}") else 1
        found = "/".join(segments[position : position + taken])
        position += taken
        if part.startswith("{"):
            params[part.strip("{+}")] = found
        elif part != found:
            return None
    return params


def raw_path(scope: Mapping[str, Any]) -> str:
    """Return the path of an ASGI scope below its mount, as sent."""
    sent: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    whole = sent.split(b"?", 1)[0].decode("latin-1")
    root = scope.get("root_path", "").rstrip("/")
    segments = whole.split("/")
    below = root.count("/") + 1
    if root and unquote("/".join(segments[:below])) == root:
        return "/" + "/".join(segments[below:])
    return whole


def decoded(segment: str) -> str | None:
    """Return a segment, decoded once; None: not UTF-8."""
    try:
        return unquote(segment, errors="strict")
    except UnicodeDecodeError:
        return None
