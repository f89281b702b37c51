"""Search an ordered index of PostgreSQL from where the last search ended.

Gives the columns of a statement, their parameters, and the reading of the answer. All columns are
read by one statement and so by one snapshot. `GapMemory` keeps what was learnt, one for each store
object: a process that begins knows nothing and walks once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from threading import Lock
from typing import Any, NamedTuple

from sqlalchemy import Row

from duly.stores.sql.gaps import (
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
from duly.stores.sql.postgresql_arrays import numbers_array, texts_array

MAX_AGE_MS = 600_000
"""How long gaps are trusted. Rows that were restored from a backup into a running system carry the
transaction numbers of the time of the backup; they are found after this time at the latest."""
_MAX_PARTS = 1_000


class Ordered(NamedTuple):
    """An ordered index that searches begin at the lowest entry of; names of columns."""

    table: str
    part: str
    """Each value of this column is an order of its own."""
    order: str
    tie: str
    condition: str = "true"


LINE = Ordered("job_line", "queue", "place", "id")
Wanted = tuple[Ordered, str]
"""A part of an ordered index."""
Ask = Callable[[str, dict[str, Any]], Sequence[Row[Any]]]
"""Runs a statement with these columns and parameters; gives its rows, one at least, with `now_ms`.
"""

_SEEN = (
    "CAST(pg_current_snapshot() AS text) AS seen, "
    "pg_current_xact_id_if_assigned() IS NULL AS is_unwritten, "
    "CAST(pg_postmaster_start_time() AS text) AS server"
)
"""What every search asks: the snapshot, and whether the answer may be kept."""


@lru_cache(maxsize=256)
def _columns(ordered: Ordered, name: str, shape: _Shape) -> str:
    """Return the columns of one search; `name` tells apart several in a statement."""
    table, column, order, tie, condition = ordered
    key = f"{column}, {order}, {tie}"
    a, b, c, d = segment_columns(name, shape.is_one)
    first = (
        f"SELECT json_build_array({order}, {tie}) FROM {{p}}{table} WHERE {condition} "
        f"AND ({key}) >= (:part_{name}, {a}, {b}) AND ({key}) < (:part_{name}, {c}, {d}) "
        f"ORDER BY {key} LIMIT 1"
    )
    firsts = f"ARRAY[({first})]" if shape.is_one else f"ARRAY(SELECT ({first}) FROM {_table(name)})"
    return f"{_entered(ordered, name, shape)} AS entered_{name}, {firsts} AS firsts_{name}"


class _Shape(NamedTuple):
    """What a statement needs; the less, the sooner it is planned, and it is planned each time."""

    is_known: bool
    has_running: bool
    is_one: bool

    @classmethod
    def of(cls, gaps: Gaps) -> _Shape:
        is_known = gaps.snapshot is not NO_SNAPSHOT
        return cls(is_known, bool(gaps.snapshot.running), len(gaps.segments) == 1)


def _entered(ordered: Ordered, name: str, shape: _Shape) -> str:
    """Return where entries are that the snapshot did not see.

    The conditions are expressions that only their own index has: the planner must not look for them
    in the order of what has passed.
    """
    table, column, order, tie, condition = ordered
    if not shape.is_known:
        return "CAST(NULL AS json[])"
    spans = [f"entered >= :xmax_{name}"]
    if shape.has_running:
        spans.append(f"entered = ANY(CAST(:running_{name} AS bigint[]))")
    unseen = " UNION ALL ".join(
        f"SELECT {order}, {tie} FROM {{p}}{table} WHERE {condition} "
        f"AND {column} || '' = :part_{name} AND {span} AND {order} + 0 <= :bound_{name}"
        for span in spans
    )
    return (
        f"ARRAY(SELECT json_build_array(min({order}), min({tie}), max({order}), max({tie})) "
        f"FROM ({unseen}) AS unseen GROUP BY {order} / {MIN_GAP} ORDER BY min({order}) "
        f"LIMIT {MAX_GROUPS})"
    )


def segment_columns(name: str, is_one: bool) -> tuple[str, str, str, str]:
    """Return where a segment begins and stops, order and tie each, as a statement names them."""
    if not is_one:
        return "s.a", "s.b", "s.c", "s.d"
    return (f":start_{name}", f":start_tie_{name}", f":stop_{name}", f":stop_tie_{name}")


def each_segment(name: str, statement: str) -> str:
    """Return a SELECT of `spot` for each of several segments, one after another."""
    return f"SELECT spot FROM {_table(name)} CROSS JOIN LATERAL ({statement}) AS part"


def _table(name: str) -> str:
    return (
        f"unnest(CAST(:starts_{name} AS bigint[]), CAST(:start_ties_{name} AS text[]), "
        f"CAST(:stops_{name} AS bigint[]), CAST(:stop_ties_{name} AS text[])) AS s (a, b, c, d)"
    )


def segment_values(segments: Sequence[Segment], name: str) -> dict[str, Any]:
    """Return the parameters of `segment_columns`."""
    if len(segments) == 1:
        (a, b), (c, d) = segments[0]
        return {
            f"start_{name}": a,
            f"start_tie_{name}": b,
            f"stop_{name}": c,
            f"stop_tie_{name}": d,
        }
    starts, stops = [each.start for each in segments], [each.stop for each in segments]
    return {
        f"starts_{name}": numbers_array([key.order for key in starts]),
        f"start_ties_{name}": texts_array([key.tie for key in starts]),
        f"stops_{name}": numbers_array([key.order for key in stops]),
        f"stop_ties_{name}": texts_array([key.tie for key in stops]),
    }


def _values(part: str, gaps: Gaps, name: str) -> dict[str, Any]:
    shape = _Shape.of(gaps)
    known = {f"xmax_{name}": gaps.snapshot.xmax, f"bound_{name}": gaps.bound.order}
    running = {f"running_{name}": numbers_array(gaps.snapshot.running)}
    return {
        f"part_{name}": part,
        **(known if shape.is_known else {}),
        **(running if shape.has_running else {}),
        **segment_values(gaps.segments, name),
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
    """When the server started: another one may have lost transactions that this one had."""
    begun_ms: int
    """When nothing was known and everything was walked."""


@dataclass(frozen=True, slots=True)
class _Recalled:
    """What was known when a search began."""

    kept: Mapping[Wanted, _Kept | None]
    era: int

    def ask(self, ask: Ask) -> tuple[Sequence[Row[Any]], dict[Wanted, Gaps] | None]:
        """Search; None: the answer is of another server, or of an earlier state."""
        begins = {each: Gaps() if kept is None else kept.gaps for each, kept in self.kept.items()}
        asked, given = [_SEEN], dict[str, Any]()
        for number, (wanted, gaps) in enumerate(begins.items()):
            asked.append(_columns(wanted[0], str(number), _Shape.of(gaps)))
            given |= _values(wanted[1], gaps, str(number))
        rows = ask(", ".join(asked), given)
        after: dict[Wanted, Gaps] = {}
        for number, (wanted, gaps) in enumerate(begins.items()):
            found, kept = _found_in(rows[0], str(number)), self.kept[wanted]
            if kept is not None and (kept.server != rows[0].server or gaps.is_ahead_of(found)):
                return rows, None
            after[wanted] = gaps.after(found)
        return rows, after


class GapMemory:
    """The gaps that one store object knows; used by several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: dict[Wanted, _Kept] = {}
        self._era = 0

    def forget(self) -> None:
        """Forget everything: the server may have been replaced by one that lost transactions."""
        with self._lock:
            self._kept.clear()
            self._era += 1

    def search(
        self, wanted: Sequence[Wanted], ask: Ask
    ) -> tuple[Sequence[Row[Any]], dict[Wanted, Gaps]]:
        """Return the rows of the statement, and for each part where its entries are."""
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
        """Remember the answer, unless the transaction has written something.

        Its own deletions count as done, and would come back if it is rolled back.
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
