"""The page of states says what the code says: its tables are made here and compared."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

from duly.jobs import TRANSITIONS, JobState
from duly.ledger import LEDGER_TRANSITIONS, OccurrenceState, follow
from duly.schedules import ScheduleState
from duly.store import ScheduleEvent

PAGE = Path(__file__).parents[2] / "docs/reference/states.md"
MADE = re.compile(r"<!-- generated: (\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def table(*rows: Iterable[str]) -> str:
    """Rows of words as Markdown, the first of them the heading."""
    heading, *rest = ["| " + " | ".join(row) + " |" for row in rows]
    rule = "|" + "---|" * heading.count(" |")
    return "\n".join(["", heading, rule, *rest, "", ""])


def words(states: Iterable[str]) -> str:
    return ", ".join(f"`{state}`" for state in states) or "nothing"


def in_order(states: Iterable[str], order: Iterable[str]) -> list[str]:
    found = set(states)
    return [each for each in order if each in found]


def transitions(allowed: Iterable[tuple[str | None, Iterable[str]]], order: Iterable[str]) -> str:
    listed = list(order)
    rows = [
        (f"`{state}`" if state else "no row yet", words(in_order(targets, listed)))
        for state, targets in allowed
    ]
    return table(("from", "to"), *rows)


def followed() -> str:
    rows = []
    for job in JobState:
        moves = [(state, follow(state, job)) for state in OccurrenceState]
        told = [f"`{state}` → `{target}`" for state, target in moves if state != target]
        if told:
            rows.append((f"`{job}`", ", ".join(told)))
    return table(("the job goes to", "its occurrence goes"), *rows)


TABLES = {
    "ledger": transitions(LEDGER_TRANSITIONS.items(), OccurrenceState),
    "follows": followed(),
    "jobs": transitions(TRANSITIONS.items(), JobState),
}


def test_every_table_is_on_the_page() -> None:
    assert [name for name, _ in MADE.findall(PAGE.read_text())] == list(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_tables_are_those_of_the_code(name: str) -> None:
    """Where it fails, put the left side between the marks of the page."""
    assert TABLES[name] == dict(MADE.findall(PAGE.read_text()))[name]


def test_every_state_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", MADE.sub("", PAGE.read_text()), re.MULTILINE)
    states = [*OccurrenceState, *JobState, *get_args(ScheduleState)]
    assert explained == [str(state) for state in states]


def test_every_event_of_a_schedule_is_named() -> None:
    last = PAGE.read_text().rpartition("`schedule_events`")[2]
    kinds = get_args(get_type_hints(ScheduleEvent)["kind"])
    assert re.findall(r"`(\w+)`", last) == list(kinds)
