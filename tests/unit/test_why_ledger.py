"""Tests of `why()` for instants with a ledger row, with the answers written by hand."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.why_samples import S, a_ledger_row, an_event, ask, fact, ms

from duly.model.ledger import Occurrence
from duly.operate.why import Verdict

LEDGER: dict[str, tuple[Occurrence, Verdict, str]] = {
    "succeeded": (
        a_ledger_row(
            S.SUCCEEDED,
            "2026-03-10T08:00Z",
            fired_at_ms=ms("2026-03-10T08:00:01.500Z"),
            ended_at_ms=ms("2026-03-10T08:00:09Z"),
        ),
        Verdict.FIRED,
        (
            "It fired: Tue 2026-03-10 09:00 +0100 ran as job job_1, which began 1.5 s after its "
            "run time, and succeeded on Tue 2026-03-10 09:00:09 +0100."
        ),
    ),
    "at work": (
        a_ledger_row(S.FIRED, "2026-03-10T08:00Z", fired_at_ms=ms("2026-03-10T08:03:05Z")),
        Verdict.FIRED,
        (
            "It fired: Tue 2026-03-10 09:00 +0100 ran as job job_1, which began 3 min 5 s after "
            "its run time, and has not ended."
        ),
    ),
    "claimed by others": (
        a_ledger_row(S.FIRED, "2026-03-10T08:00Z", job_id=None),
        Verdict.FIRED,
        "It fired: Tue 2026-03-10 09:00 +0100 ran.",
    ),
    "failed": (
        a_ledger_row(
            S.FAILED,
            "2026-03-10T08:00Z",
            fired_at_ms=ms("2026-03-10T08:00Z"),
            ended_at_ms=ms("2026-03-10T08:10Z"),
        ),
        Verdict.FAILED,
        (
            "Tue 2026-03-10 09:00 +0100 ran as job job_1, which began 0 s after its run time, and "
            "failed for good on Tue 2026-03-10 09:10 +0100."
        ),
    ),
    "gave up": (
        a_ledger_row(S.FAILED, "2026-03-10T08:00Z", job_id=None, reason="gave up after 10 posts"),
        Verdict.FAILED,
        "Tue 2026-03-10 09:00 +0100 ran, and failed for good (gave up after 10 posts).",
    ),
    "planned": (
        a_ledger_row(S.PLANNED, "2026-03-13T08:00Z"),
        Verdict.WILL_FIRE,
        "It is planned: job job_1 waits for Fri 2026-03-13 09:00 +0100, in 20 h.",
    ),
    "late": (
        a_ledger_row(S.PLANNED, "2026-03-12T08:00Z"),
        Verdict.LATE,
        (
            "It is late: job job_1 was due 4 h ago and has not begun. Either no worker serves its "
            "queue, or all are busy, or an earlier run has not ended; `duly jobs show job_1` and "
            "`duly workers` show which."
        ),
    ),
    "dispatching": (
        a_ledger_row(S.DISPATCHING, "2026-03-12T08:00Z", job_id=None),
        Verdict.DISPATCHING,
        (
            "Thu 2026-03-12 09:00 +0100 is being posted: a tick has claimed it, and the endpoint "
            "has not accepted it."
        ),
    ),
    "skipped": (
        a_ledger_row(S.SKIPPED, "2026-03-10T08:00Z", job_id=None, reason="job job_0 had not ended"),
        Verdict.SKIPPED,
        "Tue 2026-03-10 09:00 +0100 was skipped: job job_0 had not ended.",
    ),
    "cancelled": (
        a_ledger_row(S.SKIPPED, "2026-03-10T08:00Z"),
        Verdict.SKIPPED,
        "Tue 2026-03-10 09:00 +0100 was skipped: its job was cancelled before it began.",
    ),
    "missed": (
        a_ledger_row(S.MISSED, "2026-03-10T08:00Z", job_id=None, reason="run_once"),
        Verdict.MISSED,
        (
            "Tue 2026-03-10 09:00 +0100 was missed: no planner or tick claimed it within the grace "
            "of 1 min, and the misfire policy run_once swallowed it. A backfill can run it."
        ),
    ),
    "missed among others": (
        a_ledger_row(
            S.MISSED,
            "2026-03-08T08:00Z",
            until_ms=ms("2026-03-11T08:00Z"),
            count=4,
            job_id=None,
            reason="skip",
        ),
        Verdict.MISSED,
        (
            "Tue 2026-03-10 09:00 +0100 is one of 4 times, from Sun 2026-03-08 09:00 +0100 to Wed "
            "2026-03-11 09:00 +0100, that were missed: no planner or tick claimed it within the "
            "grace of 1 min, and the misfire policy skip swallowed it. A backfill can run it."
        ),
    ),
    "denied": (
        a_ledger_row(S.DENIED, "2026-03-10T08:00Z"),
        Verdict.DENIED,
        (
            "Tue 2026-03-10 09:00 +0100 was denied: when its time came, its principal was not "
            "allowed to run it."
        ),
    ),
    "quarantined": (
        a_ledger_row(S.QUARANTINED, "2026-03-10T08:00Z", job_id=None, reason="no such zone"),
        Verdict.QUARANTINED,
        (
            "Tue 2026-03-10 09:00 +0100 did not fire: its row could not be evaluated and was "
            "quarantined: no such zone. Once the schedule is released with `duly schedules "
            "release`, or fixed without a change of its timing, the misfire policy decides about "
            "this time; a backfill can also run it."
        ),
    ),
    "withdrawn": (
        a_ledger_row(S.WITHDRAWN, "2026-03-10T08:00Z", reason="withdrawn: schedule changed"),
        Verdict.WITHDRAWN,
        "Tue 2026-03-10 09:00 +0100 was planned and then taken back (withdrawn: schedule changed).",
    ),
    "backfilled": (
        a_ledger_row(S.SUCCEEDED, "2026-03-10T08:00Z", reason="backfill"),
        Verdict.FIRED,
        (
            "It fired: Tue 2026-03-10 09:00 +0100 ran as job job_1, and succeeded. It was "
            "requested by a backfill."
        ),
    ),
}


@pytest.mark.parametrize("name", LEDGER)
def test_what_the_ledger_says(name: str) -> None:
    row, verdict, text = LEDGER[name]
    at = (
        "2026-03-10T09:00+01:00"
        if row.is_range
        else datetime.fromtimestamp(row.nominal_ms / 1000, UTC)
    )
    answer = ask(at, occurrence=row)
    assert (answer.verdict, answer.text) == (verdict, text)
    assert fact(answer, "state") == row.state


def test_extra_runs_are_shown_although_they_are_no_times() -> None:
    row = a_ledger_row(S.SUCCEEDED, "2026-03-10T10:30:12Z", reason="run_now")
    answer = ask("2026-03-10T10:30:12Z", occurrence=row)
    assert answer.verdict is Verdict.FIRED
    assert answer.text.endswith("It was requested with run_now.")


def test_instant_between_missed_times_is_not_a_time() -> None:
    row = LEDGER["missed among others"][0]
    answer = ask("2026-03-10T08:30Z", occurrence=row)
    assert answer.verdict is Verdict.NOT_A_TIME


def test_withdrawn_names_the_actor() -> None:
    """The job was made ahead of its time, so the edit may be earlier than that time."""
    edit = an_event("paused", "2026-03-10T07:59:30Z", "bob", note="holiday")
    row = a_ledger_row(S.WITHDRAWN, "2026-03-10T08:00Z")
    answer = ask("2026-03-10T08:00Z", edit, occurrence=row)
    assert answer.verdict is Verdict.WITHDRAWN
    assert answer.text == (
        "Tue 2026-03-10 09:00 +0100 was planned and then taken back: bob paused the schedule on "
        "Tue 2026-03-10 08:59:30 +0100 (holiday)."
    )
    assert fact(answer, "paused_by") == "bob"


def test_missed_in_a_pause() -> None:
    row = a_ledger_row(
        S.MISSED,
        "2026-03-08T08:00Z",
        until_ms=ms("2026-03-11T08:00Z"),
        count=4,
        job_id=None,
        reason="paused",
    )
    events = (
        an_event("paused", "2026-03-07T20:00Z", "bob", note="holiday"),
        an_event("resumed", "2026-03-11T10:00Z", "bob"),
    )
    answer = ask("2026-03-10T08:00Z", *events, occurrence=row)
    assert answer.verdict is Verdict.PAUSED
    assert answer.text == (
        "Tue 2026-03-10 09:00 +0100 is one of 4 times, from Sun 2026-03-08 09:00 +0100 to Wed "
        "2026-03-11 09:00 +0100, that were swallowed by a pause: bob paused the schedule on Sat "
        "2026-03-07 21:00 +0100 (holiday)."
    )


def test_every_verdict_has_its_case() -> None:
    """Verdicts that are not in the table above have tests in test_why."""
    apart = {
        "before_creation",
        "deleted",
        "external",
        "finished",
        "no_record",
        "not_a_time",
        "not_yet_planned",
        "paused",
    }
    assert {str(verdict) for _, verdict, _ in LEDGER.values()} | apart == set(Verdict)
