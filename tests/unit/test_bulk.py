"""Tests that the bulk form gives the same answers as each trigger by itself."""

from collections.abc import Sequence
from datetime import UTC, datetime
from random import Random

import pytest

from duly import InvalidInstant, InvalidTrigger, Trigger, cron, every, next_after_many, once, weekly
from duly.triggers.core import WallCore

DAY = 86_400_000
BASE = datetime(2026, 3, 27, tzinfo=UTC)
BASE_MS = 1_774_569_600_000


def at(day: int, hour: int = 0) -> datetime:
    return datetime(2026, 3, day, hour, tzinfo=UTC)


TRIGGERS: list[Trigger] = [
    cron("0 9 * * *"),
    cron("0 9 * * *", tz="Europe/Berlin"),
    cron("30 2 * * *", tz="Europe/Berlin"),
    cron("30 2 * * *", tz="Europe/Berlin", gap="skip", fold="both"),
    cron("*/7 * * * *", tz="Europe/Berlin"),
    cron("0 0 29 2 *"),
    cron("H H * * *").bind("user:ada/digest", BASE),
    cron("0 9 * * *", start_at=at(29, 9)),
    cron("0 9 * * *", end_at=at(28, 9)),
    cron("0 9 * * *", start_at=at(28), end_at=at(29)),
    cron("0 9 * * *", spread=60),
    cron("*/10 * * * * *", seconds=True),
    weekly({"sun": "02:30"}, tz="Europe/Berlin"),
    weekly({}),
    every(minutes=15, start_at=at(27, 12)),
    once(at(28, 12)),
]


def one_by_one(triggers: Sequence[Trigger], instants: Sequence[int]) -> list[int | None]:
    pairs = zip(triggers, instants, strict=True)
    return [trigger.next_after_ms(ms) for trigger, ms in pairs]


def test_by_hand() -> None:
    daily = cron("0 9 * * *")
    rows = [daily, daily, daily, every(minutes=15, start_at=BASE), weekly({})]
    asked = [BASE_MS + DAY, BASE_MS, BASE_MS + 9 * 3_600_000, BASE_MS, BASE_MS]
    nine = BASE_MS + 9 * 3_600_000
    assert next_after_many(rows, asked) == [nine + DAY, nine, nine + DAY, BASE_MS + 900_000, None]


@pytest.mark.parametrize("seed", range(20))
def test_bulk_agrees_with_single_answers(seed: int) -> None:
    """Many rows with few rules, unordered, over four days with a clock change."""
    random = Random(seed)
    triggers = random.choices(TRIGGERS, k=400)
    instants = [BASE_MS + random.randrange(4 * DAY) for _ in triggers]
    instants[:40] = [each - each % 600_000 for each in instants[:40]]  # also exactly on a fire
    assert next_after_many(triggers, instants) == one_by_one(triggers, instants)


def test_the_last_instant_is_a_fire() -> None:
    daily, nine = cron("0 9 * * *"), BASE_MS + 9 * 3_600_000
    assert next_after_many([daily, daily], [BASE_MS, nine]) == [nine, nine + DAY]
    assert next_after_many([daily], [nine]) == [nine + DAY]


def test_an_end_does_not_end_others_with_the_same_rule() -> None:
    ended, endless = cron("0 9 * * *", end_at=at(1)), cron("0 9 * * *")
    nine = BASE_MS + 9 * 3_600_000
    assert next_after_many([ended, endless], [BASE_MS, BASE_MS]) == [None, nine]
    assert next_after_many([ended, endless], [BASE_MS, BASE_MS + 1]) == [None, nine]


def test_a_start_is_kept_beside_others_with_the_same_rule() -> None:
    early, late = cron("0 9 * * *"), cron("0 9 * * *", start_at=at(29))
    nine = BASE_MS + 9 * 3_600_000
    assert next_after_many([early, late, early], [BASE_MS] * 3) == [nine, nine + 2 * DAY, nine]


def test_the_end_of_the_calendar() -> None:
    triggers = [cron("0 9 * * *"), cron("0 9 * * *"), cron("0 0 1 1 *")]
    last = 7_258_118_400_000
    assert next_after_many(triggers, [last - DAY, last - 1, last - 1]) == [
        last - 15 * 3_600_000,
        None,
        None,
    ]


@pytest.mark.parametrize("outside", [-1, 7_258_118_400_000])
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_instants_outside_are_refused(trigger: Trigger, outside: int) -> None:
    with pytest.raises(InvalidInstant):
        next_after_many([trigger, trigger], [BASE_MS, outside])


def test_lengths_must_agree() -> None:
    with pytest.raises(ValueError, match="2 triggers but 1 instants"):
        next_after_many([cron("@daily")] * 2, [BASE_MS])


def test_no_rows() -> None:
    assert next_after_many([], []) == []


def test_unbound_triggers_are_refused() -> None:
    for trigger in (cron("H * * * *"), every(minutes=15)):
        with pytest.raises(InvalidTrigger, match="bind"):
            next_after_many([trigger], [BASE_MS])


def test_the_arguments_stay_as_they_are() -> None:
    triggers, instants = [cron("@daily"), cron("@hourly")], [BASE_MS + 5, BASE_MS]
    next_after_many(triggers, instants)
    assert (triggers, instants) == ([cron("@daily"), cron("@hourly")], [BASE_MS + 5, BASE_MS])


def count_calls(monkeypatch: pytest.MonkeyPatch, trigger: Trigger) -> list[int]:
    """Return a list that records the instants asked of a trigger's rule from now on."""
    core, asked = trigger.core, list[int]()
    assert isinstance(core, WallCore)
    compute = core.next_seconds

    def counted(after: int) -> int:
        asked.append(after)
        return compute(after)

    monkeypatch.setattr(core, "next_seconds", counted)
    return asked


@pytest.mark.parametrize(("span_ms", "most"), [(1000, 1), (3 * DAY, 5)])
def test_rows_with_the_same_rule_share_the_work(
    monkeypatch: pytest.MonkeyPatch, span_ms: int, most: int
) -> None:
    """The rule is asked once if nothing fires between the instants, else about once per fire."""
    trigger = cron("7 9 * * *")
    asked = count_calls(monkeypatch, trigger)
    rows = [cron("7 9 * * *") if i % 2 else trigger for i in range(1000)]
    next_after_many(rows, [BASE_MS + i * span_ms // 1000 for i in range(1000)])
    assert 1 <= len(asked) <= most


def test_distant_rows_do_not_step_through_every_fire(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are 14,400 fires of the rule between the two rows."""
    trigger = cron("*/1 * * * *")
    asked = count_calls(monkeypatch, trigger)
    found = next_after_many([trigger, trigger], [BASE_MS, BASE_MS + 10 * DAY])
    assert found == [BASE_MS + 60_000, BASE_MS + 10 * DAY + 60_000]
    assert len(asked) < 200
