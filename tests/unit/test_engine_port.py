"""Tests that transactions of the engine read their own writes."""

from duly.engine.kinds import (
    DUE,
    LEDGER,
    OCCURRENCE,
    ROW,
    SCHEDULE_EVENTS,
    StoredOccurrence,
    StoredRow,
)
from duly.engine.schedules.rows import due_rows, lanes
from duly.engine.transaction import PAGE, Tx
from duly.model.index_rows import TRIGGER_VERSION, IndexRow
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import ScheduleId
from duly.stores.memory.source import MemorySource
from duly.stores.memory.tables import Tables

NOW_MS = 1_800_000_000_000
ID = ScheduleId("id-a")


def a_row(
    name: str, run_at_ms: int, flow: str = "mail", version: int = TRIGGER_VERSION
) -> IndexRow:
    return IndexRow(
        ScheduleId(f"id-{name}"),
        flow,
        "system",
        name,
        "{}",
        NOW_MS + run_at_ms,
        NOW_MS + run_at_ms,
        hand_over="jobs",
        trigger_version=version,
    )


def an_occurrence(ms: int) -> StoredOccurrence:
    return StoredOccurrence(
        Occurrence(
            schedule_id=ID,
            nominal_ms=ms,
            until_ms=ms,
            count=1,
            run_at_ms=ms,
            state=OccurrenceState.PLANNED,
            flow="mail",
            scope="system",
            name="a",
        )
    )


def begin(tables: Tables) -> tuple[Tx, MemorySource]:
    source = MemorySource(tables, NOW_MS)
    return Tx(source), source


def with_rows(*rows: IndexRow) -> Tables:
    tables = Tables()
    for row in rows:
        tables.put_row(row)
    return tables


def move(tx: Tx, row: IndexRow, to: IndexRow) -> None:
    item = tx.get(ROW, row.flow, row.scope, row.name)
    assert item is not None
    tx.put(ROW, item._replace(row=to))


def names(items: list[StoredRow]) -> list[str]:
    return [item.row.name for item in items]


def test_a_moved_first_member_comes_after_the_next() -> None:
    tx, _ = begin(with_rows(a_row("a", 0), a_row("b", 5)))
    move(tx, a_row("a", 0), a_row("a", 10))
    for found in (
        tx.peek_first(DUE, "jobs", "mail"),
        tx.peek_first_among(DUE, [("jobs", "mail"), ("jobs", "other")]),
    ):
        assert found is not None
        assert found.row.name == "b"


def test_first_of_several_partitions() -> None:
    tx, _ = begin(
        with_rows(a_row("a", 5), a_row("b", 1, flow="other"), a_row("c", 0, flow="third"))
    )
    found = tx.peek_first_among(DUE, [("jobs", "mail"), ("jobs", "other")])
    assert found is not None
    assert found.row.name == "b"
    assert tx.peek_first_among(DUE, []) is None


def test_due_rows_are_sorted_in_the_order_of_claims() -> None:
    rows = [a_row("late", 3), a_row("z", 1), a_row("y", 1, flow="other"), a_row("x", 9)]
    tx, _ = begin(with_rows(*rows, a_row("new", 0, version=TRIGGER_VERSION + 1)))
    among = lanes(tx, "jobs", None)
    assert among == [("jobs", "mail"), ("jobs", "other")]
    assert names(due_rows(tx, among, NOW_MS + 3, 2)) == ["z", "y"]
    assert names(due_rows(tx, among, NOW_MS + 3, 10)) == ["z", "y", "late"]


def test_due_rows_skip_moved_rows() -> None:
    rows = [a_row("a", 0), a_row("b", 1), a_row("c", 2)]
    tx, _ = begin(with_rows(*rows))
    among = lanes(tx, "jobs", ["mail"])
    assert names(due_rows(tx, among, NOW_MS + 2, 1)) == ["a"]
    move(tx, rows[0], a_row("a", 100))
    assert names(due_rows(tx, among, NOW_MS + 2, 1)) == ["b"]
    move(tx, rows[1], a_row("b", 2))
    assert names(due_rows(tx, among, NOW_MS + 2, 2)) == ["b", "c"]


def test_all_members_are_read_page_by_page() -> None:
    tables = Tables()
    tx, source = begin(tables)
    for ms in range(NOW_MS, NOW_MS + 2 * PAGE + 1):
        tx.add(OCCURRENCE, an_occurrence(ms))
    source.commit(tx)
    tx, _ = begin(tables)
    last_ms = NOW_MS + 3 * PAGE
    tx.add(OCCURRENCE, an_occurrence(last_ms))
    found = tx.all_members(LEDGER, ID, since=(NOW_MS + 1,))
    times = [item.occurrence.nominal_ms for item in found]
    assert times == [*range(NOW_MS + 1, NOW_MS + 2 * PAGE + 1), last_ms]
    assert tx.locked == []


def test_history_has_what_this_transaction_appends() -> None:
    tables = Tables()
    first = ScheduleEvent(ID, "created", NOW_MS, "ada")
    other = ScheduleEvent(ScheduleId("id-b"), "created", NOW_MS, "ada")
    last = ScheduleEvent(ID, "deleted", NOW_MS, "ada")
    tables.events += [first, other]
    tx, _ = begin(tables)
    tx.append(SCHEDULE_EVENTS, last)
    assert tx.history(SCHEDULE_EVENTS, ID) == [first, last]
    assert tx.history(SCHEDULE_EVENTS, ID, limit=1) == [last]
