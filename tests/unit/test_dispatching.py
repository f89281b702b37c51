"""Tests of the states of a dispatch, with tables written by hand."""

import pytest

from duly.model.dispatches import DispatchEnd
from duly.model.jobs import Delivery
from duly.model.ledger import OccurrenceState, may_go
from duly.rules.dispatches import (
    CLOSED,
    DENIED,
    GAVE_UP,
    MAX_TRIES,
    NOT_FOUND,
    NOT_FOUND_LIMIT,
    POST_FAILED,
    SCHEDULE_DELETED,
    TICK_DIED,
    RowState,
    count_not_found,
    decide_answer,
    decide_lapse,
    not_found_error,
)

DISPATCHING = OccurrenceState.DISPATCHING
FAILED = OccurrenceState.FAILED
WITHDRAWN = OccurrenceState.WITHDRAWN
SUCCEEDED = OccurrenceState.SUCCEEDED
OFTEN: Delivery = "at_least_once"
ONCE: Delivery = "at_most_once"

LAPSES: list[tuple[Delivery, int, bool, RowState]] = [
    # delivery, posts so far, deleted
    (OFTEN, 0, False, RowState(DISPATCHING, None)),
    (OFTEN, 1, False, RowState(DISPATCHING, None)),
    (OFTEN, 9, False, RowState(DISPATCHING, None)),
    (OFTEN, 10, False, RowState(FAILED, GAVE_UP)),
    (OFTEN, 0, True, RowState(WITHDRAWN, SCHEDULE_DELETED)),
    (OFTEN, 1, True, RowState(WITHDRAWN, SCHEDULE_DELETED)),
    (OFTEN, 10, True, RowState(FAILED, GAVE_UP)),
    (ONCE, 0, False, RowState(DISPATCHING, None)),
    (ONCE, 1, False, RowState(FAILED, TICK_DIED)),
    (ONCE, 0, True, RowState(WITHDRAWN, SCHEDULE_DELETED)),
    # It may have run, so it cannot be called withdrawn.
    (ONCE, 1, True, RowState(FAILED, TICK_DIED)),
]

ANSWERS: list[tuple[DispatchEnd, Delivery, int, str | None, RowState]] = [
    ("closed", OFTEN, 1, "200", RowState(SUCCEEDED, CLOSED)),
    ("closed", ONCE, 1, None, RowState(SUCCEEDED, CLOSED)),
    ("closed", OFTEN, 10, None, RowState(SUCCEEDED, CLOSED)),
    ("again", OFTEN, 1, "503", RowState(DISPATCHING, "503")),
    ("again", OFTEN, 9, None, RowState(DISPATCHING, None)),
    ("again", OFTEN, 10, "503", RowState(FAILED, f"{GAVE_UP}: 503")),
    ("again", OFTEN, 10, None, RowState(FAILED, GAVE_UP)),
    ("again", ONCE, 1, "503", RowState(FAILED, "503")),
    ("again", ONCE, 1, None, RowState(FAILED, POST_FAILED)),
    ("failed", OFTEN, 1, "400", RowState(FAILED, "400")),
    ("failed", ONCE, 1, None, RowState(FAILED, POST_FAILED)),
    ("denied", OFTEN, 1, "403", RowState(OccurrenceState.DENIED, "403")),
    ("denied", ONCE, 1, None, RowState(OccurrenceState.DENIED, DENIED)),
    ("not_found", OFTEN, 1, "404", RowState(FAILED, "404")),
    ("not_found", ONCE, 1, None, RowState(FAILED, NOT_FOUND)),
]


def test_limits_are_those_of_the_tables() -> None:
    assert (MAX_TRIES, NOT_FOUND_LIMIT) == (10, 3)


@pytest.mark.parametrize(("delivery", "tries", "is_deleted", "row"), LAPSES)
def test_lapses(delivery: Delivery, tries: int, is_deleted: bool, row: RowState) -> None:
    assert decide_lapse(delivery, tries, is_deleted=is_deleted) == row


@pytest.mark.parametrize(("end", "delivery", "tries", "reason", "row"), ANSWERS)
def test_answers(
    end: DispatchEnd, delivery: Delivery, tries: int, reason: str | None, row: RowState
) -> None:
    assert decide_answer(end, delivery, tries, reason) == row


def test_every_state_is_in_the_transition_table() -> None:
    states = {row.state for *_, row in LAPSES} | {row.state for *_, row in ANSWERS}
    assert all(may_go(DISPATCHING, state) for state in states - {SUCCEEDED})
    # A closed dispatch takes two steps at once: the endpoint fired it, and it ended.
    assert may_go(DISPATCHING, OccurrenceState.FIRED)
    assert may_go(OccurrenceState.FIRED, SUCCEEDED)


@pytest.mark.parametrize(
    ("before", "ends", "after"),
    [
        (0, [], 0),
        (2, ["failed", "again"], 2),
        (1, ["not_found"], 2),
        (2, ["closed"], 0),
        (2, ["closed", "not_found"], 1),
        (0, ["not_found", "failed", "not_found", "not_found"], 3),
    ],
)
def test_not_found_is_counted_in_a_row(before: int, ends: list[DispatchEnd], after: int) -> None:
    assert count_not_found(before, ends) == after


def test_error_names_the_answer() -> None:
    assert (
        not_found_error(3, "404 schedule_not_found") == "404 schedule_not_found (3 times in a row)"
    )
    assert NOT_FOUND in not_found_error(3, None)
