"""Tests that the page of states explains every state; its tables are generated."""

import re
from pathlib import Path
from typing import get_args, get_type_hints

from tools.reference.pages import MARK

from duly.model.jobs import JobState
from duly.model.ledger import OccurrenceState
from duly.model.schedule_writes import ScheduleEvent
from duly.model.schedules import ScheduleState

PAGE = Path(__file__).parents[2] / "docs/reference/states.md"


def test_every_state_is_explained() -> None:
    explained = re.findall(r"^\| `(\w+)` \|", MARK.sub("", PAGE.read_text()), re.MULTILINE)
    states = [*OccurrenceState, *JobState, *get_args(ScheduleState)]
    assert explained == [str(state) for state in states]


def test_every_event_of_a_schedule_is_named() -> None:
    last = PAGE.read_text().rpartition("`schedule_events`")[2]
    kinds = get_args(get_type_hints(ScheduleEvent)["kind"])
    assert re.findall(r"`(\w+)`", last) == list(kinds)
