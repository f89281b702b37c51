"""Where values that are known to be secret stand in a text.

Takes the values; gives the spans of a text that hold one, or the beginning of one at its end. Who
writes an input chooses both the secrets and the texts, so the work has an end: what comes after
that and begins like a secret is taken for one.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import quote

CUT = "…"
MIN_SECRET = 4
"""Shorter values are not looked for elsewhere: they would be found in every other word."""
MAX_WORK = 2_000_000
"""Characters that are compared in the texts of one payload."""
_LOOKUP = 16
"""What a comparison costs besides its characters, in characters."""


class KnownSecrets:
    """The secrets of one payload, in every way they may be written."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = {form for each in secrets for form in _written(each)}
        self._ordered = sorted(self._forms)
        found: dict[str, set[int]] = {}
        for form in self._forms:
            found.setdefault(form[:MIN_SECRET], set()).add(len(form))
        # The longest first: it covers what else begins there.
        self._lengths = {begin: sorted(each, reverse=True) for begin, each in found.items()}
        self.work = 0
        """Characters compared so far."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Where the secrets are, by their starts; they may lie in each other."""
        if not self._lengths:
            return
        # Somebody may have cut the text in the middle of a secret.
        uncut = len(text.rstrip(CUT))
        for start in range(len(text) - MIN_SECRET + 1):
            lengths = self._lengths.get(text[start : start + MIN_SECRET])
            if lengths is None:
                continue
            if self.work > MAX_WORK:
                yield 0, len(text)
                return
            if uncut - start < lengths[0] and self._is_begun(text[start:uncut]):
                yield start, len(text)
            elif end := self._end(text, start, lengths):
                yield start, end

    def _is_begun(self, tail: str) -> bool:
        """Whether a secret goes on where the text ended."""
        self.work += len(tail) + _LOOKUP
        place = bisect_right(self._ordered, tail)
        return place < len(self._ordered) and self._ordered[place].startswith(tail)

    def _end(self, text: str, start: int, lengths: list[int]) -> int | None:
        """Where the longest secret that stands there ends."""
        for length in lengths:
            self.work += min(length, len(text) - start) + _LOOKUP
            if text[start : start + length] in self._forms:
                return min(start + length, len(text))
        return None


def _written(secret: str) -> set[str]:
    """A secret as it stands in text, in JSON, in a repr and in an address."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
    }
