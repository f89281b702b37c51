"""Tests that messages show durations in s, min, h and d, never as raw milliseconds."""

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest

from duly import Flow, RetryPolicy, every, user
from duly.errors import DulyError, InvalidInput
from duly.model.jobs import JobId, NewJob
from duly.model.plans import PlanRequest
from duly.model.schedules import Definition, Limits, check
from duly.model.upkeep import LedgerRetention
from duly.rules.checks import check_plan
from duly.triggers.durations import check_duration, duration_text

SOURCE = Path(__file__).parents[2] / "src" / "duly"
RAW = re.compile(r"""\}\ ms\b | %[ds]\ ms\b | allowed:[^"]*\{[A-Z_]*_MS\}""", re.VERBOSE)
"""Raw milliseconds in a message."""
WRITES_MS = {"durations.py", "rendering.py"}


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 s"),
        (1, "1 ms"),
        (250, "250 ms"),
        (0.4, "0 s"),
        (1_000, "1 s"),
        (1_500, "1.5 s"),
        (60_000, "1 min"),
        (90_000, "1 min 30 s"),
        (300_000, "5 min"),
        (3_600_000, "1 h"),
        (5_400_000, "1 h 30 min"),
        (86_400_000, "1 d"),
        (86_461_000, "1 d 1 min"),
        (-90_000, "-1 min 30 s"),
    ],
)
def test_durations_as_text(ms: float, text: str) -> None:
    assert duration_text(ms) == text


def test_no_message_contains_raw_milliseconds() -> None:
    found = [
        f"{path.relative_to(SOURCE)}:{number}: {line.strip()}"
        for path in sorted(SOURCE.rglob("*.py"))
        if path.name not in WRITES_MS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if RAW.search(line)
    ]
    assert found == []


def often() -> None:
    limits = Limits(shortest_interval_ms=3_600_000)
    trigger = every(minutes=5).bind("k", datetime(2026, 5, 4, tzinfo=UTC))
    check(Definition(trigger, "send"), user("u"), limits, 1_800_000_000_000)


@pytest.mark.parametrize(
    ("refused", "words"),
    [
        (often, ["at least 1 h", "user schedules", "5 min"]),
        (lambda: RetryPolicy(first_delay_ms=90_000, longest_delay_ms=1_000), ["1 min 30 s", "1 s"]),
        (lambda: Flow("f").action(timeout_s=0)(often), ["timeout_s is 0 s", "1 ms to "]),
        (lambda: NewJob(id=JobId("j"), action="a.b", key_ttl_ms=0), ["key_ttl_ms is 0 s", "366 d"]),
        (lambda: check_plan(PlanRequest(look_ahead_ms=10**9)), ["11 d 13 h", "0 s to "]),
        (lambda: LedgerRetention(audit_ms=5), ["audit_ms is 5 ms", "1 d or more"]),
        (lambda: every(seconds=0.005), ["5 ms", "1 second"]),
        (lambda: check_duration("lease_ms", "x", 1, 60_000), ["'x'", "1 ms to 1 min"]),
    ],
)
def test_errors_show_durations_as_text(refused: object, words: list[str]) -> None:
    assert callable(refused)
    with pytest.raises((InvalidInput, DulyError)) as error:
        refused()
    for word in words:
        assert word in str(error.value)
    assert not re.search(r"\d{5,}", str(error.value))
