"""Tests of job options: explicit ones override declared ones, which override the defaults."""

import pytest

from duly import InvalidInput, RetryPolicy
from duly.model.run_options import DEFAULTS, RunOptions, choose, options_of
from duly.model.schedules import Policies

DECLARED = RunOptions("slow", RetryPolicy(attempts=7), 9_000, "at_most_once")


def test_declared_options_apply_without_explicit_ones() -> None:
    assert options_of(Policies(), DECLARED) == DECLARED
    assert choose({"queue": None, "delivery": None}, DECLARED) == DECLARED


def test_defaults_apply_without_declared_options() -> None:
    assert options_of(Policies()) == DEFAULTS == RunOptions()
    assert (DEFAULTS.queue, DEFAULTS.delivery) == ("default", "at_least_once")


@pytest.mark.parametrize("field", ["queue", "retry", "timeout_ms", "delivery"])
def test_each_explicit_option_wins_even_when_it_equals_the_default(field: str) -> None:
    found = choose({field: getattr(DEFAULTS, field)}, DECLARED)
    for each in ("queue", "retry", "timeout_ms", "delivery"):
        assert getattr(found, each) == getattr(DEFAULTS if each == field else DECLARED, each)


def test_a_schedule_sets_everything_but_the_queue() -> None:
    own = Policies(retry=RetryPolicy(), timeout_ms=300_000, delivery="at_least_once")
    assert options_of(own, DECLARED) == RunOptions("slow")


@pytest.mark.parametrize(
    "wrong", [{"delivery": "twice"}, {"timeout_ms": 0}, {"retry": {"attempts": 3}}]
)
def test_wrong_explicit_options_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        Policies(**wrong)  # type: ignore[arg-type]
