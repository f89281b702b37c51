"""Tests of health: each check, passing and failing."""

from typing import Any

import pytest

from duly.model.index import IndexHealth
from duly.model.jobs import JobState
from duly.model.ledger_counts import MissingSchedule
from duly.model.queues import QueueSettings
from duly.model.schedules import ScheduleId
from duly.operate.health import Health, HealthInputs, judge

MISSING = MissingSchedule(ScheduleId("sch_1"), "crm", "user:ada", "digest", 10, 2, 5)
NOW_MS = 1_800_000_000_000


def vitals(index: dict[str, Any] | None = None, **fields: Any) -> HealthInputs:
    rows: dict[str, Any] = {"active": 3, "rows": 3, "missing": 0, "quarantined": 0, "due": 0}
    given: dict[str, Any] = {"workers_alive": 2, "workers": 2}
    known = IndexHealth(**{"oldest_due_ms": None} | rows | (index or {}))
    return HealthInputs(now_ms=NOW_MS, index=known, **given | fields)


def only_finding(health: Health) -> tuple[str, str]:
    (found,) = [each for each in health.findings if each.level != "ok"]
    return found.name, found.level


def test_healthy_inputs_have_no_findings() -> None:
    health = judge(vitals())
    assert health.level == "ok"
    assert {each.level for each in health.findings} == {"ok"}


def test_active_schedules_and_an_empty_index_are_a_fault() -> None:
    """An index without rows looks idle, although active schedules do not fire."""
    health = judge(vitals({"rows": 0, "missing": 3}))
    assert health.level == "bad"
    assert only_finding(health) == ("index", "bad")
    assert judge(vitals({"active": 0, "rows": 0})).level == "ok"


@pytest.mark.parametrize(
    ("facts", "name", "level"),
    [
        (vitals({"missing": 1}), "index", "bad"),
        (vitals({"quarantined": 1}), "quarantine", "bad"),
        (vitals({"due": 5, "oldest_due_ms": NOW_MS - 60_001}), "planning", "bad"),
        (vitals(workers_alive=0), "workers", "warning"),
        (
            vitals(workers_alive=0, states={JobState.QUEUED: 1}),
            "workers",
            "bad",
        ),
        (vitals(states={JobState.DEAD: 7}), "dead jobs", "warning"),
        (vitals(missing=[MISSING]), "misses", "warning"),
        (vitals(queues=[QueueSettings("mail", is_paused=True)]), "queues", "warning"),
    ],
)
def test_each_fault_is_found(facts: HealthInputs, name: str, level: str) -> None:
    health = judge(facts)
    assert only_finding(health) == (name, level)
    assert health.level == level


def test_posts_wait_for_a_tick_and_not_for_a_planner() -> None:
    def planning(**index: Any) -> tuple[str, str]:
        (found,) = [each for each in judge(vitals(index)).findings if each.name == "planning"]
        return found.level, found.text

    late_ms = NOW_MS - 90_000
    level, text = planning(posts_due=2, oldest_post_ms=late_ms)
    assert (level, text) == (
        "bad",
        "2 rows of hand-over http are due, the oldest for 90 s: no tick runs, or it is behind",
    )
    level, text = planning(due=1, oldest_due_ms=NOW_MS, posts_due=2, oldest_post_ms=late_ms)
    assert level == "bad"
    assert "planner" not in text
    assert planning(posts_due=2, oldest_post_ms=NOW_MS - 60_000)[0] == "ok"


def test_capped_counts_are_marked() -> None:
    states = {JobState.DEAD: 10, JobState.QUEUED: 9, JobState.RETRYING: 3}
    words = [each.text for each in judge(vitals(states=states, most=10)).findings]
    assert any("12 jobs wait" in text for text in words)
    assert any("10+ jobs are dead" in text for text in words)


def test_capped_counts_of_index_rows_are_marked() -> None:
    index = {"due": 10, "oldest_due_ms": NOW_MS, "quarantined": 7}
    assert "+" not in " ".join(each.text for each in judge(vitals(index)).findings)
    capped = {**index, "is_due_capped": True, "is_quarantined_capped": True}
    words = [each.text for each in judge(vitals(capped)).findings]
    assert any(text.startswith("10+ rows are due") for text in words)
    assert any(text.startswith("7+ rows cannot be evaluated") for text in words)


def test_an_incomplete_check_of_the_index_is_marked() -> None:
    part = judge(vitals({"is_whole": False}))
    assert part.level == "ok"
    assert "so far" in part.findings[0].text
    assert only_finding(judge(vitals({"is_whole": False, "missing": 1}))) == ("index", "bad")


def test_rows_just_due_are_no_fault() -> None:
    assert judge(vitals({"due": 5, "oldest_due_ms": NOW_MS - 60_000})).level == "ok"
    assert judge(vitals({"due": 1, "oldest_due_ms": NOW_MS + 5})).level == "ok"


def test_a_long_transaction_is_a_warning() -> None:
    assert judge(vitals(oldest_snapshot_ms=60_000)).level == "ok"
    health = judge(vitals(oldest_snapshot_ms=7_200_000))
    assert only_finding(health) == ("snapshot", "warning")
    assert "open for 120 min" in health.findings[-1].text
