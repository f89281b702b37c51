"""Read the schedule index by lane: the rows of one flow and one hand-over.

The due index begins with both, followed by the claim order, so reading some lanes never touches the
rows of others. Results of several lanes are merged here: a database that merges them may read and
sort all their due rows.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, get_args

from sqlalchemy import Row

from duly.model.index_rows import TRIGGER_VERSION
from duly.model.schedules import HandOver
from duly.stores.sql.db import Db, columns, tuples
from duly.stores.sql.gaps.search import LANE, Wanted

HAND_OVERS: tuple[HandOver, ...] = get_args(HandOver)
ALWAYS_MS = 2**62
"""Greater than every run time."""
_ARMS = 50
"""Maximum number of lanes in one statement."""
_ORDER = "ORDER BY i.run_at_ms, i.priority DESC, i.row_id"
_FIRST = (
    "SELECT lane.hand_over, lane.flow, (SELECT i.run_at_ms FROM {p}schedule_index i "
    "WHERE i.hand_over = lane.hand_over AND i.flow = lane.flow AND i.run_at_ms IS NOT NULL "
    f"{_ORDER} LIMIT 1), {{now}} FROM lane WHERE lane.flow IS NOT NULL"
)
_FLOW = (
    "(SELECT i.flow FROM {p}schedule_index i WHERE i.hand_over = %s.hand_over %s"
    "AND i.run_at_ms IS NOT NULL ORDER BY i.flow LIMIT 1)"
)
_ALL_FLOWS = (
    "WITH RECURSIVE kind(hand_over) AS (%s), lane(hand_over, flow) AS ("
    f"SELECT kind.hand_over, {_FLOW % ('kind', '')} FROM kind UNION ALL "
    f"SELECT lane.hand_over, {_FLOW % ('lane', 'AND i.flow > lane.flow ')} FROM lane "
    f"WHERE lane.flow IS NOT NULL) {_FIRST}"
)
_NAMED_FLOWS = f"WITH lane(hand_over, flow) AS (%s) {_FIRST}"
_DUE = (
    "SELECT %s FROM {p}schedule_index i WHERE i.hand_over = :hand_over_%d AND i.flow = :flow_%d "
    # Earlier entries are dead, left by rows that moved on, and may stay for long (ADR 0031).
    "AND i.run_at_ms >= :first_ms_%d AND i.run_at_ms <= :until_ms %s"
    # With an unknown limit the planner follows the index that has the order.
    f"{_ORDER} LIMIT {{limit :limit_%d}} %s"
)
_CLAIMABLE = "AND i.trigger_version <= :newest "
_CLAIMED = "i.row_id, i.nominal_ms, i.run_at_ms, i.runs_left, i.version, i.priority"


class Lane(NamedTuple):
    """The rows of one flow and one hand-over."""

    hand_over: HandOver
    flow: str
    first_ms: int
    """Earliest run time."""
    now_ms: int
    """Time of the read, by the deciding clock."""


class Place(NamedTuple):
    """The position of a row in claim order, and its lane."""

    run_at_ms: int
    low_priority: int
    """Negated priority, so that places sort in claim order."""
    row_id: int
    lane: Lane


Due = list[list[Any]]
"""Rows in claim order as columns: number, nominal time, run time, runs left and version."""


def find(
    db: Db, hand_overs: Sequence[HandOver] = HAND_OVERS, flows: Collection[str] | None = None
) -> list[Lane]:
    """Return the lanes that have rows with a next time, with a few index probes for each."""
    if flows is not None and db.dialect.tracks_entries:
        return _search(db, [(each, flow) for flow in dict.fromkeys(flows) for each in hand_overs])
    if flows is None:
        found = db.run(_ALL_FLOWS % " UNION ALL ".join(f"SELECT '{each}'" for each in hand_overs))
    else:
        named = {f"flow_{n}": flow for n, flow in enumerate(dict.fromkeys(flows))}
        if not named:
            return []
        found = db.run(_NAMED_FLOWS % _union(hand_overs, named), **named)
    return [Lane._make(row) for row in tuples(found) if row[2] is not None]


def _union(hand_overs: Sequence[HandOver], names: Iterable[str]) -> str:
    """Return SELECTs of all pairs of a hand-over and a named flow."""
    return " UNION ALL ".join(
        f"SELECT '{each}', CAST(:{name} AS {{text}})" for name in names for each in hand_overs
    )


def _search(db: Db, names: Sequence[tuple[HandOver, str]]) -> list[Lane]:
    """Return lanes by name, skipping dead index entries."""

    def ask(columns: str, given: dict[str, Any]) -> Sequence[Row[Any]]:
        return db.run(f"SELECT {{now}} AS now_ms, {columns}", **given).all()

    found: list[Lane] = []
    for start in range(0, len(names), _ARMS):
        wanted: list[Wanted] = [(LANE, name) for name in names[start : start + _ARMS]]
        rows, gaps = db.gaps.search(wanted, ask)
        for name in names[start : start + _ARMS]:
            first_ms = gaps[LANE, name].first
            if first_ms is not None:
                found.append(Lane(*name, first_ms, int(rows[0].now_ms)))
    return found


def next_ms(lanes: Sequence[Lane]) -> int | None:
    """Return the earliest run time of lanes."""
    return min((lane.first_ms for lane in lanes), default=None)


def due_among(lanes: Sequence[Lane], until_ms: int) -> list[Lane]:
    """Return the lanes that have a due row."""
    return [lane for lane in lanes if lane.first_ms <= until_ms]


def lock_due(db: Db, lanes: Sequence[Lane], until_ms: int, limit: int) -> Due:
    """Lock and return up to `limit` due rows of lanes, skipping rows locked by others.

    Each lane contributes as many rows as it has among the first `limit` of all, locked rows
    included. Locked rows are replaced by the next ones of the same lane, then of any lane.
    """
    due = due_among(lanes, until_ms)
    if len(due) == 1:
        *found, _ = _lock(db, {due[0]: limit}, until_ms)
        return found
    shares = _shares(db, due, until_ms, limit)
    wanted = sum(shares.values())
    locked: dict[int, tuple[Any, ...]] = {}
    for part in _parts(shares):
        locked |= _by_number(_lock(db, part, until_ms))
    for lane in sorted(due, key=lambda lane: lane.first_ms):
        if len(locked) >= wanted:
            break
        # Our own locks are not skipped: rows locked above are returned again.
        most = shares.get(lane, 0) + wanted - len(locked)
        more = _by_number(_lock(db, {lane: most}, until_ms))
        new = [number for number in more if number not in locked][: wanted - len(locked)]
        locked |= {number: more[number] for number in new}
    rows = sorted(locked.values(), key=lambda row: (row[2], -row[5], row[0]))
    return [list(column) for column in zip(*rows, strict=True)][:5] or [[], [], [], [], []]


def _lock(db: Db, counts: Mapping[Lane, int], until_ms: int) -> Due:
    statement, given = _arms(counts, _CLAIMED, _CLAIMABLE, "{skip}")
    return columns(db.run(statement, until_ms=until_ms, newest=TRIGGER_VERSION, **given))


def _by_number(found: Due) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row for row in zip(*found, strict=True)}


def _shares(db: Db, lanes: Sequence[Lane], until_ms: int, limit: int) -> dict[Lane, int]:
    shares: dict[Lane, int] = {}
    for place in first_places(db, lanes, until_ms, limit, is_claim=True):
        shares[place.lane] = shares.get(place.lane, 0) + 1
    return shares


def first_places(
    db: Db, lanes: Sequence[Lane], until_ms: int, limit: int, *, is_claim: bool = False
) -> list[Place]:
    """Return the first `limit` rows of lanes with a run time up to `until_ms`, in order.

    Each lane is read up to its share of the limit, then twice as far as long as all its rows are
    among the first: so it reads about as many rows as it returns, plus one for each lane.
    """
    due = due_among(lanes, until_ms)
    asked = dict.fromkeys(due, min(limit, limit // max(1, len(due)) + 1))
    which = _CLAIMABLE if is_claim else ""
    found: dict[Lane, list[Place]] = {}
    while True:
        for part in _parts(asked):
            found |= _read(db, part, until_ms, which)
        places = sorted(place for some in found.values() for place in some)[:limit]
        if not places:
            return []
        # A lane that returned fewer rows than requested has no more.
        asked = {
            lane: min(2 * count, limit)
            for lane, count in asked.items()
            if len(found[lane]) == count < limit
            and (len(places) < limit or found[lane][-1] <= places[-1])
        }
        if not asked:
            return places


def _read(db: Db, part: Mapping[Lane, int], until_ms: int, which: str) -> dict[Lane, list[Place]]:
    names = list(part)
    found: dict[Lane, list[Place]] = {lane: [] for lane in names}
    shown = "%d AS lane, i.run_at_ms, -i.priority AS reversed_priority, i.row_id"
    statement, given = _arms(part, shown, which, "")
    if which:
        given["newest"] = TRIGGER_VERSION
    for number, run_at_ms, low_priority, row_id in tuples(
        db.run(statement, until_ms=until_ms, **given)
    ):
        lane = names[number]
        found[lane].append(Place(run_at_ms, low_priority, row_id, lane))
    return {lane: sorted(some) for lane, some in found.items()}


def _parts(counts: Mapping[Lane, int]) -> Iterator[dict[Lane, int]]:
    """Yield lanes in batches that fit into one statement."""
    lanes = list(counts)
    for start in range(0, len(lanes), _ARMS):
        yield {lane: counts[lane] for lane in lanes[start : start + _ARMS]}


def _arms(
    counts: Mapping[Lane, int], shown: str, which: str, lock: str
) -> tuple[str, dict[str, Any]]:
    """Return one statement for all lanes, each with its own limit, and its values."""
    given: dict[str, Any] = {}
    arms = []
    for number, (lane, count) in enumerate(counts.items()):
        given |= {
            f"hand_over_{number}": lane.hand_over,
            f"flow_{number}": lane.flow,
            f"first_ms_{number}": lane.first_ms,
            f"limit_{number}": count,
        }
        named = shown % number if "%d" in shown else shown
        arms.append(_DUE % (named, number, number, number, which, number, lock))
    if len(arms) == 1:
        return arms[0], given
    return " UNION ALL ".join(
        f"SELECT * FROM ({arm}) AS arm_{n}" for n, arm in enumerate(arms)
    ), given
