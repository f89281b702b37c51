"""Gaps: ranges of an ordered index that are known to hold no entry.

PostgreSQL cannot remove index entries of deleted rows while a transaction may still see them, and
a search for the first entry would scan all of them each time. `Gaps` records where entries may be,
as of a snapshot; the next search reads those segments and the entries of transactions that the
snapshot did not see. Pure: the statements are in `search`. Forgetting a gap only costs reads;
keeping one that holds an entry would hide that entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MAX_SEGMENTS = 16
"""Maximum number of segments; each costs a search one index descent."""
MAX_GROUPS = 32
"""Maximum number of groups of new entries; after the last, entries may be anywhere."""
MIN_GAP = 100
"""Minimum width of a gap, and the span of a group of new entries, in milliseconds. Scanning the
entries of 100 ms costs about as much as one more index descent."""


class Key(NamedTuple):
    """The position of an entry: the number that orders it, and a tie breaker."""

    order: int
    tie: str


LOWEST = Key(-(2**63), "")
HIGHEST = Key(2**63 - 1, "")
"""No entry has this position."""


class Segment(NamedTuple):
    """The positions from `start` up to but excluding `stop`."""

    start: Key
    stop: Key


class Snapshot(NamedTuple):
    """The transactions visible to a statement: those before `xmax` except the running ones."""

    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Parse the text of `pg_current_snapshot()`, `xmin:xmax:running,running`."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), tuple(int(each) for each in running.split(",") if each))

    def sees(self, xid: int) -> bool:
        """Return whether rows of a committed transaction were visible."""
        return xid < self.xmax and xid not in self.running


NO_SNAPSHOT = Snapshot(2**63 - 1, ())


class Found(NamedTuple):
    """The result of a search as of one snapshot."""

    snapshot: Snapshot
    entered: Sequence[Segment]
    """Segments of the entries below the bound that the earlier snapshot did not see: in order, at
    most MAX_GROUPS."""
    firsts: Sequence[Key | None]
    """The first entry in each segment."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The segments that may hold entries; everything outside them was empty at the snapshot."""

    snapshot: Snapshot = NO_SNAPSHOT
    segments: tuple[Segment, ...] = (Segment(LOWEST, HIGHEST),)

    @property
    def bound(self) -> Key:
        """Return the position from which new entries are in the last segment."""
        if self.segments and self.segments[-1].stop == HIGHEST:
            return self.segments[-1].start
        return HIGHEST

    def is_ahead_of(self, found: Found) -> bool:
        """Return whether this is known from a later state of the database than the result."""
        return self.snapshot is not NO_SNAPSHOT and found.snapshot.xmax < self.snapshot.xmax

    @property
    def first(self) -> int | None:
        """Return the order of the first entry; None: there is none."""
        return self.segments[0].start.order if self.segments else None

    def after(self, found: Found, is_stepping: bool = True) -> Gaps:
        """Return the gaps after a search.

        Empty ranges are still empty, except where a transaction that the earlier snapshot did not
        see added an entry. Segments are empty before their first entry. With `is_stepping`, the
        next search also searches after entries that have not moved.
        """
        pieces: list[Segment] = []
        standing: set[Key] = set()
        for segment, first in zip(self.segments, found.firsts, strict=True):
            if first is not None:
                pieces.append(Segment(first, segment.stop))
                if first == segment.start:
                    standing.add(first)
        pieces += found.entered
        if len(found.entered) >= MAX_GROUPS:
            pieces.append(Segment(found.entered[-1].start, HIGHEST))
        segments = _merged(sorted(pieces))
        return Gaps(found.snapshot, tuple(_stepped(segments, standing if is_stepping else set())))


def next_key(key: Key) -> Key:
    """Return the lowest position above one: no tie contains a NUL, so U+0001 is the least."""
    return Key(key.order, key.tie + "\x01")


def _merged(pieces: Sequence[Segment]) -> list[Segment]:
    """Join segments that overlap or are close; keep the widest gaps, at most MAX_SEGMENTS."""
    joined: list[Segment] = []
    for piece in pieces:
        if joined and piece.start.order - joined[-1].stop.order < MIN_GAP:
            joined[-1] = Segment(joined[-1].start, max(joined[-1].stop, piece.stop))
        else:
            joined.append(piece)
    while len(joined) > MAX_SEGMENTS:
        widths = [b.start.order - a.stop.order for a, b in pairwise(joined)]
        at = widths.index(min(widths))
        joined[at : at + 2] = [Segment(joined[at].start, joined[at + 1].stop)]
    return joined


def _stepped(segments: Sequence[Segment], standing: set[Key]) -> list[Segment]:
    """Split segments so that the next search also starts after an entry that has not moved.

    Such an entry may stay for long, for example if no worker knows its action. Without the split,
    dead entries after it would be scanned each time.
    """
    found: list[Segment] = []
    for segment in segments:
        behind = next_key(segment.start)
        if segment.start in standing and behind < segment.stop:
            found += [Segment(segment.start, behind), Segment(behind, segment.stop)]
        else:
            found.append(segment)
    return found
