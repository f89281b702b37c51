"""Tests of overlap and misfires: tables written by hand, and properties of any line of jobs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.model.jobs import JobId, Turn
from duly.model.schedules import Misfire, Overlap, Policies
from duly.rules.overlap import Asking, OverlapDecision, Unstarted, decide_late, decide_overlap

NOW_MS = 1_000_000_000
MINUTE_MS = 60_000
OVERLAPS: list[Overlap] = ["skip", "buffer_one", "cancel_running"]


def asking(text: str, overlap: Overlap) -> list[Asking]:
    """Return jobs from text: `a b+` are two jobs, of which b always waits."""
    return [
        Asking(JobId(each.rstrip("+")), "waits" if each.endswith("+") else "asks", overlap)
        for each in text.split()
    ]


def as_text(turns: OverlapDecision) -> str:
    """Return a decision as `holder (new: *) | in line | skipped`, and the job it cancels."""
    holder = f"{turns.holder}{'*' * turns.is_new}"
    cancels = f" cancels {turns.cancels}" if turns.cancels else ""
    return f"{holder} | {' '.join(turns.in_line)} | {' '.join(turns.skipped)}{cancels}"


# Overlap policy, holder, jobs in line, new jobs; then holder | in line | skipped.
TABLE: list[tuple[Overlap, str | None, str, str, str]] = [
    ("skip", None, "", "", "None |  | "),
    ("skip", None, "", "a", "a* |  | "),
    ("skip", None, "", "a b", "a* |  | b"),
    ("skip", None, "", "a+ b+ c", "a* | b | c"),
    ("skip", None, "", "a b+ c+", "a* | b c | "),
    ("skip", "h", "", "a", "h |  | a"),
    ("skip", "h", "", "a+ b", "h | a | b"),
    ("skip", "h", "x+", "a b+", "h | b | a"),
    ("buffer_one", None, "", "a", "a* |  | "),
    ("buffer_one", None, "", "a b c", "a* | b | c"),
    ("buffer_one", "h", "", "a b", "h | a | b"),
    ("buffer_one", "h", "x", "a", "h |  | a"),
    # Jobs that always wait take no place in the buffer.
    ("buffer_one", "h", "x+", "a b", "h | a | b"),
    ("buffer_one", "h", "x", "a+ b", "h | a | b"),
    ("cancel_running", None, "", "a", "a* |  | "),
    # Jobs due together are handled one after another. None has begun, so the newest runs.
    ("cancel_running", None, "", "a b", "b* |  | a"),
    ("cancel_running", None, "", "a b c", "c* |  | a b"),
    # Jobs that always wait are never skipped, wherever they are in the order.
    ("cancel_running", None, "", "a+ b", "a* | b | "),
    ("cancel_running", None, "", "a+ b c", "a* | c | b"),
    ("cancel_running", None, "", "a b+ c", "b* | c | a"),
    ("cancel_running", None, "", "a b c+", "b* | c | a"),
    ("cancel_running", "h", "", "a", "h | a |  cancels h"),
    ("cancel_running", "h", "", "a b", "h | b | a cancels h"),
    ("cancel_running", "h", "x", "a", "h | a | x cancels h"),
    ("cancel_running", "h", "x+", "a b", "h | b | a cancels h"),
    ("cancel_running", "h", "", "a+", "h | a | "),
    ("cancel_running", "h", "x", "a+", "h | a | "),
]


@pytest.mark.parametrize(("overlap", "holder", "line", "asks", "expected"), TABLE)
def test_the_table_of_overlap(
    overlap: Overlap, holder: str | None, line: str, asks: str, expected: str
) -> None:
    given_holder = None if holder is None else JobId(holder)
    turns = decide_overlap(asking(asks, overlap), given_holder, asking(line, overlap))
    assert as_text(turns) == expected


def test_the_reasons_name_the_blocking_job() -> None:
    turns = decide_overlap(asking("a b", "skip"), None)
    assert turns.skipped == {"b": "job a had not ended"}
    turns = decide_overlap(asking("a", "cancel_running"), JobId("h"), asking("x", "cancel_running"))
    assert turns.skipped == {"x": "job a came after it"}


def test_each_job_goes_by_its_own_policy() -> None:
    """Extra runs outlive an edit, so jobs in one line may have different policies."""
    mixed = [Asking(JobId("a"), "asks", "skip"), Asking(JobId("b"), "asks", "buffer_one")]
    assert as_text(decide_overlap(mixed, JobId("h"))) == "h | b | a"


WAITING_RUNS: st.SearchStrategy[Turn] = st.sampled_from(["asks", "waits"])
NAMES = [JobId(name) for name in "abcdefghij"]


@st.composite
def lines(draw: st.DrawFn) -> tuple[list[Asking], JobId | None, list[Asking]]:
    """Draw new jobs, a holder or none, and the jobs in line behind a holder."""
    overlap = draw(st.sampled_from(OVERLAPS))
    turns: list[Turn] = draw(st.lists(WAITING_RUNS, max_size=len(NAMES)))
    jobs = [Asking(name, turn, overlap) for name, turn in zip(NAMES, turns, strict=False)]
    holder = draw(st.none() | st.just(JobId("h")))
    standing = 0 if holder is None else draw(st.integers(0, len(jobs)))
    line = jobs[:standing]
    # A line made by these rules has at most one job that asks.
    asks = [job for job in line if job.turn == "asks"]
    line = [job for job in line if job not in asks[1:]]
    return jobs[standing:], holder, line


@given(lines())
def test_every_job_has_one_result(
    drawn: tuple[list[Asking], JobId | None, list[Asking]],
) -> None:
    asks, holder, line = drawn
    turns = decide_overlap(asks, holder, line)
    decided: list[JobId] = [*turns.in_line, *(each for each in turns.skipped)]
    if turns.is_new and turns.holder is not None:
        decided.append(turns.holder)
    stood = {each.job_id for each in line}
    assert sorted(each for each in decided if each not in stood) == sorted(j.job_id for j in asks)
    assert len(decided) == len(set(decided))
    assert set(turns.in_line).isdisjoint(stood)


@given(lines())
def test_a_marker_has_one_holder(drawn: tuple[list[Asking], JobId | None, list[Asking]]) -> None:
    asks, holder, line = drawn
    turns = decide_overlap(asks, holder, line)
    assert turns.is_new == (holder is None and bool(asks))
    asked = [each.job_id for each in asks if each.job_id not in turns.skipped]
    assert turns.holder == (asked[0] if turns.is_new else holder)
    assert turns.cancels in (None, holder)


@given(st.sampled_from(OVERLAPS), st.integers(1, len(NAMES)))
def test_jobs_at_once_are_decided_like_one_after_another(overlap: Overlap, count: int) -> None:
    """Unless a job begins in between, it does not matter how many jobs a planner finds at once."""
    asks = [Asking(name, "asks", overlap, ms) for ms, name in enumerate(NAMES[:count])]
    holder: JobId | None = None
    line: list[Asking] = []
    for each in asks:
        turns = decide_overlap([each], holder, line)
        line = [one for one in [*line, each] if one.job_id in turns.in_line or one in line]
        line = [one for one in line if one.job_id not in turns.skipped]
        holder = line.pop(0).job_id if turns.cancels else turns.holder
    at_once = decide_overlap(asks, None)
    assert (at_once.holder, at_once.in_line) == (holder, [each.job_id for each in line])


def test_older_run_never_stops_a_newer_one() -> None:
    """Two workers promote two jobs at once, and the newer job is promoted first."""
    older = Asking(JobId("a"), "asks", "cancel_running", 5)
    newer = Asking(JobId("b"), "asks", "cancel_running", 6)
    turns = decide_overlap([older], JobId("b"), held_at_ms=6)
    assert (as_text(turns), list(turns.skipped.values())) == ("b |  | a", ["job b came after it"])
    turns = decide_overlap([older], JobId("h"), [newer], held_at_ms=4)
    assert (as_text(turns), list(turns.skipped.values())) == ("h |  | a", ["job b came after it"])
    assert as_text(decide_overlap([newer], JobId("a"), held_at_ms=5)) == "a | b |  cancels a"
    # A holder that waited is late in any case, so its time is not compared.
    assert as_text(decide_overlap([older], JobId("h"), held_at_ms=None)) == "h | a |  cancels h"


@given(lines())
def test_at_most_one_job_in_line_asks(
    drawn: tuple[list[Asking], JobId | None, list[Asking]],
) -> None:
    asks, holder, line = drawn
    turns = decide_overlap(asks, holder, line)
    turn_of = {each.job_id: each.turn for each in (*asks, *line)}
    stands = [each.job_id for each in line if each.job_id not in turns.skipped] + turns.in_line
    asking_in_line = [each for each in stands if turn_of[each] == "asks"]
    assert len(asking_in_line) <= 1
    overlap = asks[0].overlap if asks else None
    if overlap == "skip":
        assert not set(asking_in_line) - {each.job_id for each in line}
    if overlap == "cancel_running" and turns.cancels:
        newest = [each.job_id for each in asks if each.turn == "asks"][-1]
        assert asking_in_line == [newest]


@given(lines())
def test_waiting_jobs_are_never_skipped(
    drawn: tuple[list[Asking], JobId | None, list[Asking]],
) -> None:
    asks, holder, line = drawn
    turns = decide_overlap(asks, holder, line)
    waiting = {each.job_id for each in (*asks, *line) if each.turn == "waits"}
    assert waiting.isdisjoint(turns.skipped)


# Age of each job in minutes, oldest first (+: always waits); the policy; ages of missed jobs.
GRACE = {"grace_ms": 5 * MINUTE_MS}
LATE: list[tuple[str, dict[str, Any], str]] = [
    ("", {}, ""),
    ("0", {}, ""),
    ("5", {}, ""),
    ("6", {}, ""),
    ("7 6", {}, "7"),
    ("9 8 7 6", {}, "9 8 7"),
    # A job that is on time runs instead of the latest misfire.
    ("9 8 5", {}, "9 8"),
    ("6 0", {}, "6"),
    # Jobs that always wait are neither late nor on time.
    ("9 8 0+", {}, "9"),
    ("9+ 8+", {}, ""),
    ("9+ 8 7", {}, "8"),
    ("6", {"misfire": Misfire("skip")}, "6"),
    ("9 6 5 0", {"misfire": Misfire("skip")}, "9 6"),
    ("9+ 6", {"misfire": Misfire("skip")}, "6"),
    ("9 8 7 6", {"misfire": Misfire("catch_up", limit=2)}, "9 8"),
    ("9 8 7 6 1", {"misfire": Misfire("catch_up", limit=2)}, "9 8"),
    ("9 8", {"misfire": Misfire("catch_up", limit=5)}, ""),
    ("9 8 7", {"misfire": Misfire("catch_up", max_age_ms=8 * MINUTE_MS)}, "9"),
    ("9 8 7", {"misfire": Misfire("catch_up", max_age_ms=6 * MINUTE_MS)}, "9 8 7"),
]


def unstarted(text: str, turn: Turn | None) -> list[Unstarted]:
    return [
        Unstarted(
            JobId(each.rstrip("+")),
            NOW_MS - int(each.rstrip("+")) * MINUTE_MS,
            "waits" if each.endswith("+") else turn,
        )
        for each in text.split()
    ]


@pytest.mark.parametrize("turn", ["asks", None])
@pytest.mark.parametrize(("jobs", "policies", "missed"), LATE)
def test_the_table_of_lateness(
    jobs: str, policies: dict[str, Any], missed: str, turn: Turn | None
) -> None:
    found = unstarted(jobs, turn)
    expected = set(missed.split())
    assert decide_late(found, Policies(**GRACE | policies), NOW_MS) == expected
    assert decide_late(found[::-1], Policies(**GRACE | policies), NOW_MS) == expected


def test_the_grace_is_inclusive() -> None:
    skipping = Policies(misfire=Misfire("skip"), grace_ms=0)
    on_time = Unstarted(JobId("a"), NOW_MS, "asks")
    late = Unstarted(JobId("b"), NOW_MS - 1, "asks")
    assert decide_late([on_time, late], skipping, NOW_MS) == {"b"}


MISFIRES = st.builds(
    Misfire,
    kind=st.sampled_from(["run_once", "skip", "catch_up"]),
    limit=st.integers(1, 6),
    max_age_ms=st.sampled_from([5 * MINUTE_MS, 60 * MINUTE_MS]),
)
AGES = st.lists(
    st.tuples(st.integers(0, 20 * MINUTE_MS), st.sampled_from(["asks", "waits", None])), max_size=10
)


@given(AGES, MISFIRES, st.sampled_from([0, MINUTE_MS, 10 * MINUTE_MS]))
def test_jobs_are_missed_or_kept(
    ages: list[tuple[int, Turn | None]], misfire: Misfire, grace_ms: int
) -> None:
    jobs = [
        Unstarted(JobId(str(number)), NOW_MS - age, turn) for number, (age, turn) in enumerate(ages)
    ]
    missed = decide_late(jobs, Policies(misfire=misfire, grace_ms=grace_ms), NOW_MS)
    kept = {job.job_id for job in jobs} - missed
    assert missed | kept == {job.job_id for job in jobs}
    late = {job.job_id for job in jobs if job.turn != "waits" and job.run_at_ms < NOW_MS - grace_ms}
    assert missed <= late
    most = {"skip": 0, "run_once": 1, "catch_up": misfire.limit}[misfire.kind]
    assert len(late - missed) <= most
    # The newest are kept: no missed job is newer than a misfire that runs.
    age = {job.job_id: NOW_MS - job.run_at_ms for job in jobs}
    assert all(age[one] >= age[other] for one in missed for other in late - missed)
