"""Gaps: ranges of an ordered index that are known to hold no entry.

PostgreSQL cannot remove index entries of deleted rows while any transaction may still see them. A
search for the first entry would walk over all of them each time. `Gaps` says where entries may be,
as of a snapshot; the next search looks there, and at the entries of transactions which that
snapshot did not see. Pure: the statements are in `gap_search`. Forgetting a gap costs reads and
nothing else; keeping one that holds an entry would hide that entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

MAX_SEGMENTS = 16
"""A search costs a descent of the index for each segment."""
MAX_GROUPS = 32
"""Groups of new entries that are told apart; from the last on, entries may be anywhere."""
MIN_GAP = 100
"""A narrower gap is not kept, and new entries of one such span are one group. The unit is that of
the order: milliseconds. Walking over what 100 ms leave costs about as much as one more descent."""


class Key(NamedTuple):
    """The position of an entry: the number that orders it, and what breaks ties."""

    order: int
    tie: str


LOWEST = Key(-(2**63), "")
HIGHEST = Key(2**63 - 1, "")
"""No entry has this position."""


class Segment(NamedTuple):
    """Positions from `start` up to and without `stop`."""

    start: Key
    stop: Key


class Snapshot(NamedTuple):
    """The transactions that a statement saw: those before `xmax` except those still running."""

    xmax: int
    running: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> Snapshot:
        """Return what `pg_current_snapshot()` says as a text, `xmin:xmax:running,running`."""
        _, xmax, running = text.split(":")
        return cls(int(xmax), tuple(int(each) for each in running.split(",") if each))

    def sees(self, xid: int) -> bool:
        """Return whether the rows of a committed transaction were visible."""
        return xid < self.xmax and xid not in self.running


NO_SNAPSHOT = Snapshot(2**63 - 1, ())


class Found(NamedTuple):
    """The answer to a search, all of it as of one snapshot."""

    snapshot: Snapshot
    entered: Sequence[Segment]
    """Where the entries are that the earlier snapshot did not see, those below the bound: in order,
    at most MAX_GROUPS."""
    firsts: Sequence[Key | None]
    """The first entry in each segment."""


@dataclass(frozen=True, slots=True)
class Gaps:
    """The segments that may hold entries; everything outside them was empty at the snapshot."""

    snapshot: Snapshot = NO_SNAPSHOT
    segments: tuple[Segment, ...] = (Segment(LOWEST, HIGHEST),)

    @property
    def bound(self) -> Key:
        """Return the position from which on new entries lie in the last segment."""
        if self.segments and self.segments[-1].stop == HIGHEST:
            return self.segments[-1].start
        return HIGHEST

    def is_ahead_of(self, found: Found) -> bool:
        """Return whether this was learnt from a later state of the database than the answer."""
        return self.snapshot is not NO_SNAPSHOT and found.snapshot.xmax < self.snapshot.xmax

    @property
    def first(self) -> int | None:
        """Return the order of the first entry; None: there is none."""
        return self.segments[0].start.order if self.segments else None

    def after(self, found: Found, is_stepping: bool = True) -> Gaps:
        """Return what is known after a search.

        What was empty is empty still, except where a transaction entered something that the earlier
        snapshot did not see. Before the first entry of a segment there is nothing. With
        `is_stepping`, the next search looks behind entries that have not moved.
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
    """Join segments that overlap or are near; at most MAX_SEGMENTS, the widest gaps stay."""
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
    """Let the next search look behind an entry that has not moved since the last one.

    Nobody may want it, for example because no worker knows its action. Without this, what passes
    behind it would be walked over each time.
    """
    found: list[Segment] = []
    for segment in segments:
        behind = next_key(segment.start)
        if segment.start in standing and behind < segment.stop:
            found += [Segment(segment.start, behind), Segment(behind, segment.stop)]
        else:
            found.append(segment)
    return found
