"""Search a text for values that are known to be secret.

Returns the spans that hold a secret, or the beginning of one at the end of the text. The author of
an input chooses both secrets and texts, so the work is bounded: beyond the bound, whatever begins
like a secret is treated as one.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from urllib.parse import quote

CUT = "…"
MIN_SECRET = 4
"""Minimum length; shorter values would match inside ordinary words."""
MAX_WORK = 2_000_000
"""Limit of characters compared in the texts of one payload."""
_LOOKUP = 16
"""Fixed cost of a comparison, in characters."""


class KnownSecrets:
    """Secrets of one payload, in every form in which they may be written."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._forms = {form for each in secrets for form in _written(each)}
        self._ordered = sorted(self._forms)
        found: dict[str, set[int]] = {}
        for form in self._forms:
            found.setdefault(form[:MIN_SECRET], set()).add(len(form))
        # Longest first: it covers shorter secrets that begin at the same place.
        self._lengths = {begin: sorted(each, reverse=True) for begin, each in found.items()}
        self.work = 0
        """Characters compared so far."""

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the spans of secrets, ordered by start; spans may overlap."""
        if not self._lengths:
            return
        # The text may have been cut in the middle of a secret.
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
        """Return whether the end of the text is the beginning of a secret."""
        self.work += len(tail) + _LOOKUP
        place = bisect_right(self._ordered, tail)
        return place < len(self._ordered) and self._ordered[place].startswith(tail)

    def _end(self, text: str, start: int, lengths: list[int]) -> int | None:
        """Return the end of the longest secret that begins at `start`, or None."""
        for length in lengths:
            self.work += min(length, len(text) - start) + _LOOKUP
            if text[start : start + length] in self._forms:
                return min(start + length, len(text))
        return None


def _written(secret: str) -> set[str]:
    """Return a secret as written in text, in JSON, in a repr and in a URL."""
    return {
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        repr(secret)[1:-1],
        quote(secret, safe="", errors="replace"),
    }
