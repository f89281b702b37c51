"""Tests of `why()` for instants without a ledger row, with the answers written by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from tests.why_samples import (
    BERLIN,
    CREATED,
    DAILY,
    NOW,
    S,
    a_ledger_row,
    a_schedule,
    an_event,
    ask,
    fact,
    ms,
)

from duly import cron, every, once
from duly.model.index_rows import index_row
from duly.operate.why import Stored, Verdict, why
from duly.triggers.durations import duration_text
from duly.triggers.instants import to_ms


def test_before_creation() -> None:
    answer = ask("2026-03-02T08:00Z")
    assert answer.verdict is Verdict.BEFORE_CREATION
    assert answer.text == (
        "Mon 2026-03-02 08:00 +0000 is before the schedule, which was created on Mon 2026-03-02 "
        "12:00 +0000 by ada."
    )


def test_still_paused() -> None:
    schedule = a_schedule(state="paused", enabled=False)
    pause = an_event("paused", "2026-03-09T20:00Z", "bob", note="holiday")
    answer = ask("2026-03-10T08:00Z", pause, schedule=schedule)
    assert answer.verdict is Verdict.PAUSED
    assert answer.text == (
        "It did not fire at Tue 2026-03-10 09:00 +0100: bob paused the schedule on Mon 2026-03-09 "
        "21:00 +0100 (holiday), and it still is."
    )
    assert ask("2026-03-09T08:00Z", pause, schedule=schedule).verdict is Verdict.NO_RECORD


def test_created_paused() -> None:
    answer = ask("2026-03-10T08:00Z", schedule=a_schedule(state="paused", enabled=False))
    assert answer.verdict is Verdict.PAUSED
    assert "the schedule was paused from the beginning, and it still is" in answer.text
    resumed = an_event("resumed", "2026-03-11T00:00Z")
    answer = ask("2026-03-10T08:00Z", resumed)
    assert answer.verdict is Verdict.PAUSED
    assert answer.text.endswith("from the beginning, until Wed 2026-03-11 01:00 +0100.")


def test_deleted() -> None:
    deletion = an_event("deleted", "2026-03-09T20:00Z", "bob", trigger=DAILY.to_json())
    after = ask("2026-03-10T08:00Z", deletion, is_deleted=True)
    assert after.verdict is Verdict.DELETED
    assert after.text == (
        "It did not fire at Tue 2026-03-10 08:00 +0000: bob deleted the schedule on Mon 2026-03-09 "
        "20:00 +0000."
    )
    before = ask("2026-03-09T09:00Z", deletion, is_deleted=True)
    assert before.verdict is Verdict.NOT_A_TIME
    fired = a_ledger_row(S.SUCCEEDED, "2026-03-10T08:00Z")
    assert ask("2026-03-10T08:00Z", deletion, is_deleted=True, occurrence=fired).verdict == "fired"


def test_deleted_by_a_release_that_kept_no_rule() -> None:
    deletion = an_event("deleted", "2026-03-09T20:00Z", "bob")
    answer = ask("2026-03-05T08:00Z", deletion, is_deleted=True)
    assert answer.verdict is Verdict.DELETED
    assert "the rule of that time is no longer stored" in answer.text
    assert fact(answer, "deleted_by") == "bob"


def test_quarantined() -> None:
    schedule = replace(a_schedule(state="quarantined"), error="no such zone")
    event = an_event("quarantined", "2026-03-09T08:00:03Z", "system", error="no such zone")
    answer = ask("2026-03-10T08:00Z", event, schedule=schedule)
    assert answer.verdict is Verdict.QUARANTINED
    assert answer.text == (
        "It did not fire at Tue 2026-03-10 09:00 +0100: its row cannot be evaluated and is "
        "quarantined since Mon 2026-03-09 09:00:03 +0100: no such zone. Fix the schedule, or "
        "release it with `duly schedules release`."
    )


def test_finished_runs() -> None:
    schedule = a_schedule(state="finished", max_runs=3)
    event = an_event("finished", "2026-03-05T08:00Z", "system")
    answer = ask("2026-03-10T08:00Z", event, schedule=schedule)
    assert answer.verdict is Verdict.FINISHED
    assert answer.text == (
        "It did not fire at Tue 2026-03-10 09:00 +0100: the schedule had finished on Thu "
        "2026-03-05 09:00 +0100, since its 3 runs were used up."
    )


def test_behind_the_end() -> None:
    ending = cron("0 9 * * *", tz="Europe/Berlin", end_at=datetime(2026, 3, 9, 8, tzinfo=UTC))
    answer = ask("2026-03-10T08:00Z", schedule=a_schedule(ending, state="finished"))
    assert answer.verdict is Verdict.FINISHED
    assert answer.text == (
        "Tue 2026-03-10 09:00 +0100 is after its end: there is no time after Mon 2026-03-09 "
        "09:00 +0100."
    )


def test_future_times() -> None:
    answer = ask("2026-03-14T08:00Z")
    assert answer.verdict is Verdict.WILL_FIRE
    assert answer.text == (
        "It has not come yet: Sat 2026-03-14 09:00 +0100 is a time of this schedule, in 1 d 20 h. "
        "A planner makes its job shortly before."
    )


def test_runs_that_earlier_times_take() -> None:
    """Two runs are left, and are used on the 13th and the 14th."""
    schedule = a_schedule(max_runs=2)
    verdicts = [ask(f"2026-03-{day}T08:00Z", schedule=schedule).verdict for day in (13, 14, 15)]
    assert verdicts == ["will_fire", "will_fire", "finished"]
    answer = ask("2026-03-15T08:00Z", schedule=schedule)
    assert answer.text == (
        "It will not fire at Sun 2026-03-15 09:00 +0100: 2 runs are left, and earlier times take "
        "them."
    )


def test_due_and_not_planned() -> None:
    behind = datetime(2026, 3, 10, tzinfo=UTC)
    answer = ask("2026-03-12T08:00Z", row_after=behind)
    assert answer.verdict is Verdict.NOT_YET_PLANNED
    assert answer.text == (
        "Thu 2026-03-12 09:00 +0100 was due 4 h ago and is not planned yet: the index row still "
        "stands at Tue 2026-03-10 09:00 +0100. No planner runs for this flow, or it is behind; "
        "`duly health` shows what is due."
    )


def test_posts_wait_for_a_tick() -> None:
    schedule = a_schedule(hand_over="http")
    due = ask("2026-03-12T08:00Z", schedule=schedule, row_after=datetime(2026, 3, 10, tzinfo=UTC))
    assert "is not posted yet" in due.text
    assert "No tick runs for this flow, or it is behind" in due.text
    assert "planner" not in due.text + ask("2026-03-13T08:00Z", schedule=schedule).text


def test_active_without_a_row() -> None:
    for at in ("2026-03-12T08:00Z", "2026-03-13T08:00Z"):
        answer = ask(at, row_after=None)
        assert answer.verdict is Verdict.NOT_YET_PLANNED
        assert "has no index row" in answer.text


def test_no_record() -> None:
    answer = ask("2026-03-10T08:00Z")
    assert answer.verdict is Verdict.NO_RECORD
    assert answer.text == (
        "Tue 2026-03-10 09:00 +0100 was a time of this schedule, but the ledger has no row for it: "
        "a claim that keeps no ledger took it, or the row was removed."
    )
    resumed = an_event("changed", "2026-03-10T08:05Z", "bob")
    answer = ask("2026-03-10T08:00Z", resumed)
    assert "bob changed the schedule on Tue 2026-03-10 09:05 +0100, and its times" in answer.text


def test_older_than_the_ledger() -> None:
    schedule = replace(a_schedule(), created_at_ms=ms("2025-01-01T00:00Z"))
    stored = Stored(schedule, [], index_row(schedule, to_ms(NOW)))
    answer = why(stored, NOW, datetime(2025, 12, 1, 8, tzinfo=UTC))
    assert answer.verdict is Verdict.NO_RECORD
    assert "the ledger is kept for 90 days, and this is older" in answer.text


def test_external() -> None:
    schedule = a_schedule(hand_over="external")
    answer = ask("2026-03-10T08:00Z", schedule=schedule)
    assert answer.verdict is Verdict.EXTERNAL
    assert "no dispatch for Tue 2026-03-10 09:00 +0100 arrived" in answer.text


def test_external_and_paused() -> None:
    schedule = a_schedule(state="paused", hand_over="external", enabled=False)
    events = (an_event("paused", "2026-03-07T20:00Z", "bob"),)
    answer = ask("2026-03-10T08:00Z", *events, schedule=schedule)
    assert answer.verdict is Verdict.PAUSED
    assert answer.text.endswith("Dispatches of an outside scheduler are refused meanwhile.")


def test_not_a_time_names_its_neighbours() -> None:
    answer = ask("2026-03-10T08:30Z")
    assert answer.verdict is Verdict.NOT_A_TIME
    assert answer.text == (
        "Tue 2026-03-10 09:30 +0100 is not a time of this schedule (Every day at 09:00, "
        "Europe/Berlin); the one before is Tue 2026-03-10 09:00 +0100, the one after is Wed "
        "2026-03-11 09:00 +0100."
    )
    assert fact(answer, "before") == "2026-03-10T08:00:00.000Z"
    assert fact(answer, "after") == "2026-03-11T08:00:00.000Z"


def test_neighbours_on_one_side_only() -> None:
    schedule = a_schedule(once(datetime(2026, 3, 20, 12, tzinfo=UTC)))
    assert "; the one after is Fri 2026-03-20" in ask("2026-03-10T08:00Z", schedule=schedule).text
    assert ask("2026-03-21T08:00Z", schedule=schedule).text.endswith(
        "; the one before is Fri 2026-03-20 12:00 +0000."
    )


def test_times_are_shown_with_their_precision() -> None:
    start = datetime(2026, 3, 10, 0, 42, 55, 250_000, tzinfo=UTC)
    rule = every(seconds=5, start_at=start)
    answer = ask("2026-03-10T00:43Z", schedule=a_schedule(rule))
    assert answer.text.endswith(
        "; the one before is Tue 2026-03-10 00:42:55.250 +0000, the one after is Tue 2026-03-10 "
        "00:43:00.250 +0000."
    )
    assert answer.text.startswith("Tue 2026-03-10 00:43 +0000 is not a time")


def test_lost_wall_times_keep_their_seconds() -> None:
    rule = cron("15 30 2 * * *", tz="Europe/Berlin", seconds=True, gap="shift")
    asked = datetime(2026, 3, 29, 2, 30, 15, tzinfo=BERLIN)
    answer = ask(asked, schedule=a_schedule(replace(rule, wall=replace(rule.wall, gap="skip"))))
    assert answer.text.startswith("02:30:15 does not exist on 2026-03-29 in Europe/Berlin")


GAPS = {
    "next_valid": (
        "02:30 does not exist on 2026-03-29 in Europe/Berlin; gap=next_valid moved it to 03:00. "
        "Sun 2026-03-29 03:30 +0200 is not a time of this schedule (Every day at 02:30, "
        "Europe/Berlin); the one before is Sun 2026-03-29 03:00 +0200 (02:30 does not exist that "
        "day, moved to here), the one after is Mon 2026-03-30 02:30 +0200."
    ),
    "skip": (
        "02:30 does not exist on 2026-03-29 in Europe/Berlin; gap=skip leaves it out. Sun "
        "2026-03-29 03:30 +0200 is not a time of this schedule (Every day at 02:30, "
        "Europe/Berlin); the one before is Sat 2026-03-28 02:30 +0100, the one after is Mon "
        "2026-03-30 02:30 +0200."
    ),
}


@pytest.mark.parametrize("gap", GAPS)
def test_wall_times_that_do_not_exist(gap: Any) -> None:
    rule = cron("30 2 * * *", tz="Europe/Berlin", gap=gap)
    answer = ask(datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), schedule=a_schedule(rule))
    assert (answer.verdict, answer.text) == (Verdict.NOT_A_TIME, GAPS[gap])


def test_wall_time_that_a_shift_moved() -> None:
    """02:30 does not exist and is shifted to 03:30, at which the rule fires."""
    rule = cron("30 2 * * *", tz="Europe/Berlin", gap="shift")
    answer = ask(datetime(2026, 3, 29, 2, 30, tzinfo=BERLIN), schedule=a_schedule(rule))
    assert answer.verdict is Verdict.WILL_FIRE


def test_doubled_wall_times() -> None:
    rule = cron("30 2 * * *", tz="Europe/Berlin")
    second = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN, fold=1)
    answer = ask(second, schedule=a_schedule(rule))
    assert answer.verdict is Verdict.NOT_A_TIME
    assert (
        "the one before is Sun 2026-10-25 02:30 +0200 (02:30 comes twice that day, this is the "
        "first)"
    ) in answer.text


def test_another_rule_held_then() -> None:
    """The rule was at nine until the 9th, and is at ten since."""
    schedule = a_schedule(cron("0 10 * * *", tz="Europe/Berlin"))
    edit = an_event("changed", "2026-03-09T12:00Z", "bob", trigger=DAILY.to_json())
    answer = ask("2026-03-08T09:00Z", edit, schedule=schedule)
    assert answer.verdict is Verdict.NOT_A_TIME
    assert answer.text == (
        "Sun 2026-03-08 10:00 +0100 is not a time of this schedule (Every day at 09:00, "
        "Europe/Berlin); the one before is Sun 2026-03-08 09:00 +0100, the one after is Mon "
        "2026-03-09 09:00 +0100. The rule was different then: Every day at 09:00, Europe/Berlin; "
        "bob changed it on Mon 2026-03-09 13:00 +0100."
    )
    fired = a_ledger_row(S.SUCCEEDED, "2026-03-08T08:00Z")
    answer = ask("2026-03-08T08:00Z", edit, schedule=schedule, occurrence=fired)
    assert answer.verdict is Verdict.FIRED
    assert answer.text.endswith("bob changed it on Mon 2026-03-09 13:00 +0100.")
    assert ask("2026-03-10T09:00Z", edit, schedule=schedule).verdict is Verdict.NO_RECORD


def test_spread_moves_the_run_time_only() -> None:
    spread = cron("0 9 * * *", tz="Europe/Berlin", spread=3600).bind("key", CREATED)
    offset = spread.offset_ms
    assert 0 < offset < 3_600_000
    answer = ask("2026-03-13T08:00Z", schedule=a_schedule(spread))
    assert answer.verdict is Verdict.WILL_FIRE
    run_at = datetime.fromisoformat(fact(answer, "run_at"))
    assert to_ms(run_at) == ms("2026-03-13T08:00Z") + offset


def test_intervals_have_no_zone_to_name() -> None:
    rule = every(minutes=90, start_at=CREATED)
    answer = ask("2026-03-10T08:00Z", schedule=a_schedule(rule))
    assert "(Every 1 hour 30 minutes); the one before" in answer.text


def test_lengths_of_time() -> None:
    shown = [
        duration_text(each)
        for each in (0, 999, 1_000, 1_250, 59_949, 60_000, 3_725_000, 90_061_000)
    ]
    assert shown == ["0 s", "999 ms", "1 s", "1.2 s", "59.9 s", "1 min", "1 h 2 min", "1 d 1 h"]


def test_instant_of_a_write_belongs_to_what_was_before() -> None:
    """A schedule created, paused or resumed at nine has its first time after nine."""
    nine = cron("0 9 * * *")
    made = replace(a_schedule(nine), created_at_ms=ms("2026-03-03T09:00Z"))
    stored = Stored(made, [an_event("created", "2026-03-03T09:00Z")], index_row(made, to_ms(NOW)))
    born = why(stored, NOW, datetime(2026, 3, 3, 9, tzinfo=UTC))
    assert born.verdict is Verdict.BEFORE_CREATION
    pause = (an_event("paused", "2026-03-10T09:00Z"), an_event("resumed", "2026-03-11T09:00Z"))
    verdicts = [
        ask(f"2026-03-{day}T09:00Z", *pause, schedule=a_schedule(nine)).verdict
        for day in (10, 11, 12)
    ]
    assert verdicts == [Verdict.NO_RECORD, Verdict.PAUSED, Verdict.NO_RECORD]
