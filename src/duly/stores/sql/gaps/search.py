"""Search an ordered index of PostgreSQL from where the last search ended.

Builds the columns and parameters of a statement and reads its result. One statement reads all
columns, so they share a snapshot. Each store object keeps the known gaps in a `GapMemory`: a new
process knows none and scans the index once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Row

from duly.stores.sql.dialects.postgresql.arrays import numbers_array, texts_array
from duly.stores.sql.gaps.ranges import (
    MAX_GROUPS,
    MIN_GAP,
    NO_SNAPSHOT,
    Found,
    Gaps,
    Key,
    Segment,
    Snapshot,
    next_key,
)

if TYPE_CHECKING:
    from duly.stores.sql.db import Db

MAX_AGE_MS = 600_000
"""Milliseconds (10 min) for which gaps are trusted. Rows restored from a backup into a running
system carry old transaction numbers; they are found after this time at the latest."""
_MAX_PARTS = 1_000


class Ordered(NamedTuple):
    """An index whose lowest entries are searched, worked on and removed, by its column names."""

    table: str
    parts: tuple[str, ...]
    """Columns that partition the index; each value has its own order."""
    order: str
    tie: str = ""
    """Column that breaks ties of the order; "": entries of equal order are never skipped singly."""
    condition: str = "true"
    unseen_condition: str = "true"
    """The same condition as written in the index of new entries only: the planner may read all of
    a partial index whose condition is in the query."""
    is_stepping: bool = False
    """Entries may stay for long while later ones are worked on."""

    @property
    def key(self) -> str:
        """Return the columns of the index."""
        return ", ".join([*self.parts, self.order, *([self.tie] if self.tie else [])])

    def bounds(self, name: str, is_one: bool) -> tuple[str, str]:
        """Return the start and the stop of a segment as expressions for the key."""
        parts = [f":part_{name}_{number}" for number in range(len(self.parts))]
        if is_one:
            a, b, c, d = (f":{word}_{name}" for word in ("start", "start_tie", "stop", "stop_tie"))
        else:
            a, b, c, d = "s.a", "s.b", "s.c", "s.d"
        start, stop = ([a, b], [c, d]) if self.tie else ([a], [c])
        return ", ".join(parts + start), ", ".join(parts + stop)


LINE = Ordered("job_line", ("queue",), "place", "id", is_stepping=True)
LANE = Ordered(
    "schedule_index",
    ("hand_over", "flow"),
    "run_at_ms",
    condition="run_at_ms IS NOT NULL",
    unseen_condition="run_at_ms + 0 IS NOT NULL",
)
WAITING = Ordered(
    "jobs", ("queue",), "run_at_ms", "id", condition="waits = 1", unseen_condition="waits + 0 = 1"
)
MARKS = Ordered("job_marks", ("state",), "at_ms")
Wanted = tuple[Ordered, tuple[str, ...]]
"""A partition of an ordered index, with the values of its part columns."""
Ask = Callable[[str, dict[str, Any]], Sequence[Row[Any]]]
"""Runs a statement with these columns and parameters; returns one or more rows with `now_ms`."""

_SEEN = (
    "CAST(pg_current_snapshot() AS text) AS seen, "
    "pg_current_xact_id_if_assigned() IS NULL AS is_unwritten, "
    "CAST(pg_postmaster_start_time() AS text) AS server"
)
"""Columns of every search: the snapshot, and whether the result may be kept."""


@lru_cache(maxsize=256)
def _columns(ordered: Ordered, name: str, shape: _Shape) -> str:
    """Return the columns of one search; `name` distinguishes several in a statement."""
    start, stop = ordered.bounds(name, shape.is_one)
    first = (
        f"SELECT json_build_array({ordered.order}, {ordered.tie or _NO_TIE}) "
        f"FROM {{p}}{ordered.table} WHERE {ordered.condition} AND ({ordered.key}) >= ({start}) "
        f"AND ({ordered.key}) < ({stop}) ORDER BY {ordered.key} LIMIT 1"
    )
    firsts = f"ARRAY[({first})]" if shape.is_one else f"ARRAY(SELECT ({first}) FROM {_table(name)})"
    return f"{_entered(ordered, name, shape)} AS entered_{name}, {firsts} AS firsts_{name}"


_NO_TIE = "CAST('' AS text)"


class _Shape(NamedTuple):
    """The parts of a statement; it is planned each time, and fewer parts are planned faster."""

    is_known: bool
    has_running: bool
    is_one: bool

    @classmethod
    def of(cls, gaps: Gaps) -> _Shape:
        is_known = gaps.snapshot is not NO_SNAPSHOT
        return cls(is_known, bool(gaps.snapshot.running), len(gaps.segments) == 1)


def _entered(ordered: Ordered, name: str, shape: _Shape) -> str:
    """Return the column with the groups of entries that the snapshot did not see.

    The conditions are expressions of the index of new entries, so that the planner does not search
    for them in the index with the dead entries.
    """
    if not shape.is_known:
        return "CAST(NULL AS json[])"
    order, tie = ordered.order, ordered.tie or _NO_TIE
    of_part = " AND ".join(
        f"{column} || '' = :part_{name}_{number}" for number, column in enumerate(ordered.parts)
    )
    spans = [f"entered >= :xmax_{name}"]
    if shape.has_running:
        spans.append(f"entered = ANY(CAST(:running_{name} AS bigint[]))")
    unseen = " UNION ALL ".join(
        f"SELECT {order} AS place, {tie} AS tie FROM {{p}}{ordered.table} "
        f"WHERE {ordered.unseen_condition} AND {of_part} AND {span} "
        f"AND {order} + 0 <= :bound_{name}"
        for span in spans
    )
    return (
        "ARRAY(SELECT json_build_array(min(place), min(tie), max(place), max(tie)) "
        f"FROM ({unseen}) AS unseen GROUP BY place / {MIN_GAP} ORDER BY min(place) "
        f"LIMIT {MAX_GROUPS})"
    )


def each_segment(name: str, statement: str) -> str:
    """Return a SELECT of `spot` for each of several segments, one after another."""
    return f"SELECT spot FROM {_table(name)} CROSS JOIN LATERAL ({statement}) AS part"


def _table(name: str) -> str:
    return (
        f"unnest(CAST(:starts_{name} AS bigint[]), CAST(:start_ties_{name} AS text[]), "
        f"CAST(:stops_{name} AS bigint[]), CAST(:stop_ties_{name} AS text[])) AS s (a, b, c, d)"
    )


def values_of(
    wanted: Wanted, segments: Sequence[Segment], name: str, is_one: bool
) -> dict[str, Any]:
    """Return the parameters of `Ordered.bounds`."""
    ordered, parts = wanted
    values: dict[str, Any] = {f"part_{name}_{number}": part for number, part in enumerate(parts)}
    if not ordered.tie:
        segments = [Segment(_whole(each.start), _whole(each.stop)) for each in segments]
    ends = {
        "start": [each.start.order for each in segments],
        "stop": [each.stop.order for each in segments],
    }
    ties = {
        "start_tie": [each.start.tie for each in segments],
        "stop_tie": [each.stop.tie for each in segments],
    }
    if not is_one:
        values |= {f"{word}s_{name}": numbers_array(ends[word]) for word in ends}
        return values | {f"{word}s_{name}": texts_array(ties[word]) for word in ties}
    values |= {f"{word}_{name}": ends[word][0] for word in ends}
    return values | ({f"{word}_{name}": ties[word][0] for word in ties} if ordered.tie else {})


def _whole(key: Key) -> Key:
    """Return a position for an index without ties: one with a tie becomes the next order."""
    return Key(key.order + 1, "") if key.tie else key


def _values(wanted: Wanted, gaps: Gaps, name: str) -> dict[str, Any]:
    shape = _Shape.of(gaps)
    known = {f"xmax_{name}": gaps.snapshot.xmax, f"bound_{name}": gaps.bound.order}
    running = {f"running_{name}": numbers_array(gaps.snapshot.running)}
    return {
        **(known if shape.is_known else {}),
        **(running if shape.has_running else {}),
        **values_of(wanted, gaps.segments, name, shape.is_one),
    }


def _found_in(row: Row[Any], name: str) -> Found:
    groups = getattr(row, f"entered_{name}") or ()
    entered = [Segment(Key(a, b), next_key(Key(c, d))) for a, b, c, d in groups]
    firsts = [None if first is None else Key(*first) for first in getattr(row, f"firsts_{name}")]
    return Found(Snapshot.parse(row.seen), entered, firsts)


@dataclass(frozen=True, slots=True)
class _Kept:
    gaps: Gaps
    server: str
    """Start time of the server: another server may have lost transactions of this one."""
    begun_ms: int
    """Time of the full scan that these gaps go back to."""


@dataclass(frozen=True, slots=True)
class _Recalled:
    """The gaps known at the start of a search."""

    kept: Mapping[Wanted, _Kept | None]
    era: int

    def ask(self, ask: Ask) -> tuple[Sequence[Row[Any]], dict[Wanted, Gaps] | None]:
        """Return the rows and the new gaps; None: the server changed or its state is older."""
        begins = {each: Gaps() if kept is None else kept.gaps for each, kept in self.kept.items()}
        asked, given = [_SEEN], dict[str, Any]()
        for number, (wanted, gaps) in enumerate(begins.items()):
            asked.append(_columns(wanted[0], str(number), _Shape.of(gaps)))
            given |= _values(wanted, gaps, str(number))
        rows = ask(", ".join(asked), given)
        after: dict[Wanted, Gaps] = {}
        for number, (wanted, gaps) in enumerate(begins.items()):
            found, kept = _found_in(rows[0], str(number)), self.kept[wanted]
            if kept is not None and (kept.server != rows[0].server or gaps.is_ahead_of(found)):
                return rows, None
            after[wanted] = gaps.after(found, wanted[0].is_stepping)
        return rows, after


class GapMemory:
    """The known gaps of one store object; thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[Wanted, _Kept] = {}
        self._era = 0

    def forget(self) -> None:
        """Forget all gaps: the server may have been replaced by one that lost transactions."""
        with self._lock:
            self._kept.clear()
            self._era += 1

    def search(
        self, wanted: Sequence[Wanted], ask: Ask
    ) -> tuple[Sequence[Row[Any]], dict[Wanted, Gaps]]:
        """Return the rows of the statement and the gaps of each partition."""
        recalled = self._recall(wanted)
        rows, after = recalled.ask(ask)
        if after is None:
            self.forget()
            recalled = _Recalled(dict.fromkeys(wanted), self._era)
            rows, after = recalled.ask(ask)
            assert after is not None, "nothing was known that could be contradicted"
        self._keep(recalled, rows[0], after)
        return rows, after

    def _recall(self, wanted: Sequence[Wanted]) -> _Recalled:
        with self._lock:
            return _Recalled({each: self._kept.get(each) for each in wanted}, self._era)

    def _keep(self, recalled: _Recalled, row: Row[Any], after: Mapping[Wanted, Gaps]) -> None:
        """Keep the result, unless the transaction has written something.

        A rollback would bring back rows that it deleted.
        """
        if not row.is_unwritten:
            return
        now_ms = int(row.now_ms)
        with self._lock:
            if recalled.era != self._era:
                return
            for wanted, gaps in after.items():
                before = recalled.kept[wanted]
                begun_ms = now_ms if before is None else before.begun_ms
                self._kept.pop(wanted, None)
                if 0 <= now_ms - begun_ms <= MAX_AGE_MS:
                    self._kept[wanted] = _Kept(gaps, row.server, begun_ms)
            for oldest in list(self._kept)[: max(0, len(self._kept) - _MAX_PARTS)]:
                del self._kept[oldest]


def search_alone(db: Db, wanted: Sequence[Wanted]) -> dict[Wanted, Gaps]:
    """Return the gaps of partitions, using a separate statement."""
    return search_now(db, wanted)[1]


def search_now(db: Db, wanted: Sequence[Wanted]) -> tuple[int, dict[Wanted, Gaps]]:
    """Return the time and the gaps of partitions, using a separate statement."""

    def ask(columns: str, given: dict[str, Any]) -> Sequence[Row[Any]]:
        return db.run(f"SELECT {{now}} AS now_ms, {columns}", **given).all()

    rows, found = db.gaps.search(wanted, ask)
    return int(rows[0].now_ms), found
