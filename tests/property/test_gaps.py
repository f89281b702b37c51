"""Tests of gaps against a model of transactions: no entry is missed, no dead entry read twice."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.stores.sql.gaps.ranges import (
    HIGHEST,
    MAX_GROUPS,
    MAX_SEGMENTS,
    MIN_GAP,
    NO_SNAPSHOT,
    Found,
    Gaps,
    Key,
    Segment,
    Snapshot,
    next_key,
)

Step = tuple[str, int, int]
STEPS = ("begin", "enter", "enter", "leave", "commit", "rollback", "look", "look")
ORDERS = (*range(0, 5_000, 250), *range(7_000, 7_060), -(2**43) + 5, -(2**43) + 900, 2**43)


@dataclass
class Row:
    """An entry, with the transactions that inserted and deleted it."""

    key: Key
    entered: int
    left: int | None = None


@dataclass
class Table:
    """A table with dead rows, as in PostgreSQL while an old snapshot prevents VACUUM."""

    fault: str = ""
    next_xid: int = 100
    running: list[int] = field(default_factory=list)
    undone: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    gaps: Gaps = field(default_factory=Gaps)
    walked: int = 0

    def snapshot(self) -> Snapshot:
        return Snapshot(self.next_xid, tuple(self.running))

    def is_done(self, xid: int | None, snapshot: Snapshot) -> bool:
        return xid is not None and snapshot.sees(xid) and xid not in self.undone

    def is_visible(self, row: Row, snapshot: Snapshot) -> bool:
        return self.is_done(row.entered, snapshot) and not self.is_done(row.left, snapshot)

    def do(self, step: Step) -> None:
        name, a, b = step
        if name == "begin" and len(self.running) < 6:
            self.running.append(self.next_xid)
            self.next_xid += 1
        elif name == "look":
            self.look()
        elif self.running:
            xid = self.running[a % len(self.running)]
            if name == "enter":
                self.rows.append(Row(Key(ORDERS[b % len(ORDERS)], f"job_{b % 7}"), xid))
            elif name == "leave":
                self.leave(xid, b)
            else:
                self.running.remove(xid)
                self.undone |= {xid} if name == "rollback" else set()

    def leave(self, xid: int, choice: int) -> None:
        """Delete one of the lowest rows that no other transaction is deleting."""
        now = self.snapshot()
        free = [r for r in self.rows if self.is_visible(r, now) and r.left not in self.running]
        if free:
            sorted(free, key=lambda row: row.key)[: 1 + choice % 3][-1].left = xid

    def look(self) -> None:
        """Search as the SQL statement does, and check that every visible entry is in a segment."""
        seen = self.snapshot()
        visible = [row for row in self.rows if self.is_visible(row, seen)]
        if self.fault == "reads with locks":
            visible = [row for row in visible if row.left not in self.running]
        firsts = [self.first(each, visible) for each in self.gaps.segments]
        found = Found(seen, self.entered(visible), firsts)
        self.gaps = self.gaps.after(found)
        if self.fault == "keeps a gap with a new entry":
            self.gaps = Gaps(seen, tuple(s for s in self.gaps.segments if s[0] in found.firsts))
        for row in self.rows:
            if self.is_visible(row, seen):
                assert covers(self.gaps.segments, row.key), (row, self.gaps)
        assert len(self.gaps.segments) <= 2 * MAX_SEGMENTS

    def entered(self, visible: Iterable[Row]) -> list[Segment]:
        """Group the entries that the last snapshot did not see, as the SQL statement does."""
        known = self.gaps.snapshot
        if known is NO_SNAPSHOT:
            return []
        if self.fault == "forgets running transactions":
            known = Snapshot(known.xmax, ())
        keys = [r.key for r in visible if not known.sees(r.entered)]
        keys = [key for key in keys if key.order <= self.gaps.bound.order]
        groups: dict[int, list[Key]] = {}
        for key in keys:
            groups.setdefault(int(key.order / MIN_GAP), []).append(key)
        pieces = [
            Segment(
                Key(min(k.order for k in group), min(k.tie for k in group)),
                next_key(Key(max(k.order for k in group), max(k.tie for k in group))),
            )
            for group in groups.values()
        ]
        return sorted(pieces)[:MAX_GROUPS]

    def first(self, segment: Segment, visible: Iterable[Row]) -> Key | None:
        """Return the lowest visible entry of a segment, and count the dead entries before it."""
        inside = [row.key for row in visible if segment.start <= row.key < segment.stop]
        found = min(inside, default=None)
        stop = segment.stop if found is None else found
        self.walked += sum(segment.start <= row.key < stop for row in self.rows)
        return found


def covers(segments: Sequence[Segment], key: Key) -> bool:
    return any(each.start <= key < each.stop for each in segments)


steps = st.tuples(st.sampled_from(STEPS), st.integers(0, 50), st.integers(0, 500))


@given(st.lists(steps, max_size=120))
def test_a_search_finds_every_visible_entry(plan: list[Step]) -> None:
    table = Table()
    for step in [*plan, ("look", 0, 0)]:
        table.do(step)


@pytest.mark.planted("gaps")
@pytest.mark.parametrize(
    "fault",
    ["forgets running transactions", "keeps a gap with a new entry", "reads with locks"],
)
def test_a_faulty_search_is_caught(fault: str) -> None:
    """The faults ignore open transactions, new entries in a gap, and deletions rolled back."""
    caught = 0
    for seed in range(200):
        chance = random.Random(seed)
        table = Table(fault)
        try:
            for _ in range(150):
                table.do((chance.choice(STEPS), chance.randrange(50), chance.randrange(500)))
        except AssertionError:
            caught += 1
    assert caught, fault


@pytest.mark.parametrize("urgent", [0, 10])
def test_dead_entries_are_read_once(urgent: int) -> None:
    """Jobs are inserted and deleted one by one, some of them with a higher priority."""
    table = Table()
    for number in range(1_000):
        order = number * MIN_GAP - (2**43 if number % 20 < urgent else 0)
        for name, b in (("begin", 0), ("commit", 0)):
            if name == "commit":
                table.rows.append(Row(Key(order, "job"), table.running[0]))
            table.do((name, 0, b))
        table.look()
        table.do(("begin", 0, 0))
        table.do(("leave", 0, 0))
        table.do(("commit", 0, 0))
    table.look()
    assert table.gaps.segments == ()
    assert table.walked <= 1_100


def test_dead_entries_behind_a_live_one_are_read_once() -> None:
    table = Table()
    table.rows.append(Row(Key(0, "unwanted"), 1))
    for number in range(1, 1_000):
        table.rows.append(Row(Key(number * MIN_GAP, "job"), table.next_xid))
        table.next_xid += 1
        table.look()
        table.rows[-1].left = table.next_xid
        table.next_xid += 1
    assert table.walked <= 1_100


def test_a_burst_is_one_segment() -> None:
    table = Table()
    table.look()
    table.rows += [Row(Key(1_000 + number // 5, f"job_{number:03}"), 100) for number in range(500)]
    table.next_xid = 101
    table.look()
    (segment,) = table.gaps.segments
    assert segment.start == Key(1_000, "job_000")
    assert segment.stop < HIGHEST
