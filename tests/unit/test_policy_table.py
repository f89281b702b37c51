"""Tests of each misfire policy at both clock changes of 2026 in Berlin, worked out by hand.

The planner was down from before the first time until half a minute after the last one listed, so
the last is on time and all others are misfires; or until `back`, so that all are misfires. Clocks
go from 02:00 CET to 03:00 CEST at 01:00 UTC on 29 March, and from 03:00 CEST to 02:00 CET at 01:00
UTC on 25 October.
"""

from datetime import UTC, datetime
from typing import NamedTuple

import pytest

from duly import Trigger, cron
from duly.model.index_rows import IndexRow, policies_text, trigger_text
from duly.model.ledger import OccurrenceState
from duly.model.schedules import Misfire, Policies, ScheduleId
from duly.rules.planning import Plan, plan, plan_many
from duly.triggers.instants import from_ms, to_ms

BERLIN = "Europe/Berlin"
HOUR = 3_600_000
LATE_MS = 30_000
LOOK_AHEAD_MS = 60_000

POLICIES = {
    "run_once": Misfire("run_once"),
    "skip": Misfire("skip"),
    "two": Misfire("catch_up", limit=2, per_minute=4),
    "all": Misfire("catch_up", limit=100, per_minute=4),
    "a day": Misfire("catch_up", limit=100, max_age_ms=24 * HOUR, per_minute=4),
}
RULES = {
    "daily": cron("30 2 * * *", tz=BERLIN),
    "daily, gap=skip": cron("30 2 * * *", tz=BERLIN, gap="skip"),
    "daily, gap=shift": cron("30 2 * * *", tz=BERLIN, gap="shift"),
    "daily, fold=both": cron("30 2 * * *", tz=BERLIN, fold="both"),
    "daily, fold=second": cron("30 2 * * *", tz=BERLIN, fold="second"),
    "hourly": cron("0 * * * *", tz=BERLIN),
    "one to four": cron("0 1-4 * * *", tz=BERLIN),
}


class Case(NamedTuple):
    """UTC times: the missed range (first, last, count), the times that run, the next time."""

    rule: str
    policy: str
    missed: tuple[str, str, int] | None
    runs: list[str]
    following: str
    back: str | None = None


TABLE = [
    # 02:30 does not exist on the 29th: it fires at 03:00 CEST, which is 01:00 UTC.
    Case(
        "daily",
        "run_once",
        ("03-27 01:30", "03-29 01:00", 3),
        ["03-30 00:30"],
        "03-31 00:30",
    ),
    Case("daily", "skip", ("03-27 01:30", "03-29 01:00", 3), ["03-30 00:30"], "03-31 00:30"),
    Case(
        "daily",
        "two",
        ("03-27 01:30", "03-27 01:30", 1),
        ["03-28 01:30", "03-29 01:00", "03-30 00:30"],
        "03-31 00:30",
    ),
    Case(
        "daily",
        "all",
        None,
        ["03-27 01:30", "03-28 01:30", "03-29 01:00", "03-30 00:30"],
        "03-31 00:30",
    ),
    # 01:00 on the 29th is 23 hours and a half ago, though a calendar day has passed.
    Case(
        "daily",
        "a day",
        ("03-27 01:30", "03-28 01:30", 2),
        ["03-29 01:00", "03-30 00:30"],
        "03-31 00:30",
    ),
    Case(
        "daily, gap=skip",
        "run_once",
        ("03-27 01:30", "03-28 01:30", 2),
        ["03-30 00:30"],
        "03-31 00:30",
    ),
    Case(
        "daily, gap=skip",
        "skip",
        ("03-27 01:30", "03-28 01:30", 2),
        ["03-30 00:30"],
        "03-31 00:30",
    ),
    Case(
        "daily, gap=skip",
        "a day",
        ("03-27 01:30", "03-28 01:30", 2),
        ["03-30 00:30"],
        "03-31 00:30",
    ),
    # 02:30 plus the gap is 03:30 CEST, 01:30 UTC.
    Case(
        "daily, gap=shift",
        "run_once",
        ("03-28 01:30", "03-29 01:30", 2),
        ["03-30 00:30"],
        "03-31 00:30",
    ),
    # 02:30 exists twice on the 25th, at 00:30 and at 01:30 UTC; the first counts.
    Case(
        "daily",
        "run_once",
        ("10-23 00:30", "10-25 00:30", 3),
        ["10-26 01:30"],
        "10-27 01:30",
    ),
    Case("daily", "skip", ("10-23 00:30", "10-25 00:30", 3), ["10-26 01:30"], "10-27 01:30"),
    Case(
        "daily",
        "two",
        ("10-23 00:30", "10-23 00:30", 1),
        ["10-24 00:30", "10-25 00:30", "10-26 01:30"],
        "10-27 01:30",
    ),
    Case(
        "daily",
        "all",
        None,
        ["10-23 00:30", "10-24 00:30", "10-25 00:30", "10-26 01:30"],
        "10-27 01:30",
    ),
    # Between 02:30 on the 25th and on the 26th lie 25 hours: more than a day.
    Case("daily", "a day", ("10-23 00:30", "10-25 00:30", 3), ["10-26 01:30"], "10-27 01:30"),
    Case(
        "daily, fold=both",
        "run_once",
        ("10-24 00:30", "10-25 01:30", 3),
        ["10-26 01:30"],
        "10-27 01:30",
    ),
    Case(
        "daily, fold=both",
        "two",
        ("10-24 00:30", "10-24 00:30", 1),
        ["10-25 00:30", "10-25 01:30", "10-26 01:30"],
        "10-27 01:30",
    ),
    Case(
        "daily, fold=second",
        "run_once",
        ("10-24 00:30", "10-25 01:30", 2),
        ["10-26 01:30"],
        "10-27 01:30",
    ),
    # Local times are 00:00, 01:00, 03:00, 04:00: an hour field of * does not fire in the gap.
    Case(
        "hourly",
        "run_once",
        ("03-28 23:00", "03-29 01:00", 3),
        ["03-29 02:00"],
        "03-29 03:00",
    ),
    Case("hourly", "skip", ("03-28 23:00", "03-29 01:00", 3), ["03-29 02:00"], "03-29 03:00"),
    Case(
        "hourly",
        "two",
        ("03-28 23:00", "03-28 23:00", 1),
        ["03-29 00:00", "03-29 01:00", "03-29 02:00"],
        "03-29 03:00",
    ),
    Case(
        "hourly",
        "all",
        None,
        ["03-28 23:00", "03-29 00:00", "03-29 01:00", "03-29 02:00"],
        "03-29 03:00",
    ),
    # Local times are 01:00, 02:00, 02:00, 03:00: it fires in both folds.
    Case(
        "hourly",
        "run_once",
        ("10-24 23:00", "10-25 01:00", 3),
        ["10-25 02:00"],
        "10-25 03:00",
    ),
    Case("hourly", "skip", ("10-24 23:00", "10-25 01:00", 3), ["10-25 02:00"], "10-25 03:00"),
    Case(
        "hourly",
        "two",
        ("10-24 23:00", "10-24 23:00", 1),
        ["10-25 00:00", "10-25 01:00", "10-25 02:00"],
        "10-25 03:00",
    ),
    Case(
        "hourly",
        "all",
        None,
        ["10-24 23:00", "10-25 00:00", "10-25 01:00", "10-25 02:00"],
        "10-25 03:00",
    ),
    # 02:00 moves to 03:00, which is a time of the rule already: one run for both.
    Case(
        "one to four",
        "run_once",
        ("03-29 00:00", "03-29 01:00", 2),
        ["03-29 02:00"],
        "03-29 23:00",
    ),
    Case("one to four", "skip", ("03-29 00:00", "03-29 01:00", 2), ["03-29 02:00"], "03-29 23:00"),
    Case("one to four", "two", None, ["03-29 00:00", "03-29 01:00", "03-29 02:00"], "03-29 23:00"),
    # 02:00 fires in the first fold only, so there are two hours until 03:00 CET.
    Case(
        "one to four",
        "run_once",
        ("10-24 23:00", "10-25 02:00", 3),
        ["10-25 03:00"],
        "10-26 00:00",
    ),
    Case("one to four", "skip", ("10-24 23:00", "10-25 02:00", 3), ["10-25 03:00"], "10-26 00:00"),
    Case(
        "one to four",
        "two",
        ("10-24 23:00", "10-24 23:00", 1),
        ["10-25 00:00", "10-25 02:00", "10-25 03:00"],
        "10-26 00:00",
    ),
    # All are late, so the latest runs, even if it was moved by a gap or is the second of a fold.
    Case(
        "daily",
        "run_once",
        ("03-27 01:30", "03-28 01:30", 2),
        ["03-29 01:00"],
        "03-30 00:30",
        back="03-29 12:00",
    ),
    Case(
        "daily, gap=skip",
        "run_once",
        ("03-27 01:30", "03-27 01:30", 1),
        ["03-28 01:30"],
        "03-30 00:30",
        back="03-29 12:00",
    ),
    Case(
        "daily",
        "run_once",
        ("10-23 00:30", "10-24 00:30", 2),
        ["10-25 00:30"],
        "10-26 01:30",
        back="10-25 12:00",
    ),
    Case(
        "daily, fold=both",
        "run_once",
        ("10-24 00:30", "10-25 00:30", 2),
        ["10-25 01:30"],
        "10-26 01:30",
        back="10-25 12:00",
    ),
    Case(
        "hourly",
        "run_once",
        ("03-28 23:00", "03-29 00:00", 2),
        ["03-29 01:00"],
        "03-29 02:00",
        back="03-29 01:30",
    ),
    Case(
        "hourly",
        "run_once",
        ("10-24 23:00", "10-25 00:00", 2),
        ["10-25 01:00"],
        "10-25 02:00",
        back="10-25 01:30",
    ),
]


def ms_of(text: str) -> int:
    return to_ms(datetime.fromisoformat(f"2026-{text}").replace(tzinfo=UTC))


def text_of(ms: int | None) -> str | None:
    return None if ms is None else f"{from_ms(ms):%m-%d %H:%M}"


def row_of(trigger: Trigger, first_ms: int, policies: Policies) -> IndexRow:
    assert trigger.next_after_ms(first_ms - 1) == first_ms
    text = policies_text(policies)
    return IndexRow(
        ScheduleId("s"), "mail", "user:u", "n", trigger_text(trigger), first_ms, first_ms,
        policies=text,
    )  # fmt: skip


def planned(case: Case) -> tuple[Plan, int]:
    """Return the plan of a case and its time; `plan` and `plan_many` must agree."""
    policies = Policies(misfire=POLICIES[case.policy])
    first = case.missed[0] if case.missed else case.runs[0]
    row = row_of(RULES[case.rule], ms_of(first), policies)
    now_ms = ms_of(case.back) if case.back else ms_of(case.runs[-1]) + LATE_MS
    made = plan(row, now_ms, now_ms + LOOK_AHEAD_MS, policies)
    assert plan_many([row], now_ms, now_ms + LOOK_AHEAD_MS) == [made]
    return made, now_ms


@pytest.mark.parametrize("case", TABLE, ids=lambda each: f"{each.rule}-{each.policy}")
def test_expected_times(case: Case) -> None:
    made, _ = planned(case)
    missed = [each for each in made.occurrences if each.state is OccurrenceState.MISSED]
    ranges = [(text_of(each.nominal_ms), text_of(each.until_ms), each.count) for each in missed]
    assert ranges == ([case.missed] if case.missed else [])
    runs = [each for each in made.occurrences if each.state is OccurrenceState.PLANNED]
    assert [text_of(each.nominal_ms) for each in runs] == case.runs
    assert text_of(made.next_nominal_ms) == case.following
    assert (made.error, made.runs_left) == (None, None)


@pytest.mark.parametrize("case", TABLE, ids=lambda each: f"{each.rule}-{each.policy}")
def test_expected_run_times(case: Case) -> None:
    made, now_ms = planned(case)
    runs = [each for each in made.occurrences if each.state is OccurrenceState.PLANNED]
    late = runs
    if case.back is None:
        *late, on_time = runs
        assert (on_time.run_at_ms, on_time.reason) == (on_time.nominal_ms, None)
    assert [each.reason for each in late] == [POLICIES[case.policy].kind] * len(late)
    if POLICIES[case.policy].kind == "catch_up":
        # Four in a minute: one every fifteen seconds, the first at once.
        staggered = [now_ms, now_ms + 15_000, now_ms + 30_000][: len(late)]
        assert [each.run_at_ms for each in late] == staggered
    else:
        assert [each.run_at_ms for each in late] == [each.nominal_ms for each in late]


def test_the_table_has_every_policy_at_both_changes() -> None:
    seen = {(case.rule, case.policy, case.following[:2]) for case in TABLE}
    for rule in ("daily", "hourly"):
        for policy in ("run_once", "skip", "two", "all"):
            assert {(rule, policy, "03"), (rule, policy, "10")} <= seen
