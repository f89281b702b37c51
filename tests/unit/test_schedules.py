"""Tests of definitions: refusals, the stored form, and edits."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly import cron, every, once, weekly
from duly.errors import InvalidInput, InvalidTrigger, UnknownTrigger
from duly.model.index_rows import policies_text
from duly.model.retries import RetryPolicy
from duly.model.schedules import (
    DEFAULT_LIMITS,
    Definition,
    HandOver,
    Limits,
    Misfire,
    Policies,
    Schedule,
    ScheduleId,
    bind,
    binding_key,
    check,
    rebind,
    state_of,
)
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.rules.planning import policies_of
from duly.triggers import Trigger
from duly.triggers.instants import to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
NOW_MS = to_ms(NOW)
KEY = binding_key("mail", user("u"), "digest")
HOURLY = cron("0 * * * *")

TRIGGERS: st.SearchStrategy[Trigger] = st.sampled_from(
    [
        HOURLY,
        cron("H 9 * * MON", tz="Europe/Berlin", gap="skip", fold="both"),
        cron("*/10 * * * * *", seconds=True),
        every(hours=1),
        every(minutes=90, start_at=NOW, end_at=NOW + timedelta(days=9), spread=30),
        weekly({"mon": "09:00", "thu": ["09:00", "17:30"]}, tz="America/New_York"),
        once(NOW + timedelta(days=1), spread=5),
    ]
)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=8,
)
DURATIONS = st.integers(1_000, 366 * 86_400_000)
MISFIRES = st.builds(
    Misfire,
    kind=st.sampled_from(["run_once", "skip", "catch_up"]),
    limit=st.integers(1, 10_000),
    max_age_ms=DURATIONS,
    per_minute=st.integers(1, 60_000),
)
RETRIES = st.builds(
    RetryPolicy,
    attempts=st.integers(1, 1_000),
    backoff=st.sampled_from(["none", "fixed", "exponential"]),
    first_delay_ms=st.integers(0, 1_000),
    longest_delay_ms=st.integers(1_000, 30 * 86_400_000),
    jitter=st.booleans(),
)
POLICIES = st.builds(
    Policies,
    misfire=st.just(Misfire()) | MISFIRES,
    grace_ms=st.just(60_000) | DURATIONS,
    overlap=st.sampled_from(["skip", "allow", "buffer_one", "cancel_running"]),
    delivery=st.sampled_from(["at_least_once", "at_most_once"]),
    priority=st.integers(-1_000, 1_000),
    retry=st.just(RetryPolicy()) | RETRIES,
    timeout_ms=st.just(300_000) | DURATIONS,
    pause_after_failures=st.none() | st.integers(1, 10_000),
)
WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
DEFINITIONS = st.builds(
    Definition,
    trigger=TRIGGERS,
    action=st.sampled_from(["send", "send/all", "ünïcode"]),
    input=JSON,
    description=WORDS,
    enabled=st.booleans(),
    note=WORDS,
    hand_over=st.sampled_from(["jobs", "http", "external"]),
    policies=POLICIES,
    max_runs=st.none() | st.integers(1, 1_000_000_000),
    interval_bounds_ms=st.none()
    | st.tuples(st.integers(1_000, 60_000), DURATIONS.map(lambda ms: ms + 59_000)).filter(
        lambda pair: pair[1] <= 366 * 86_400_000
    ),
)


# The stored form.


@given(DEFINITIONS)
def test_a_definition_is_read_back_from_its_stored_form(definition: Definition) -> None:
    text = definition.to_json()
    assert Definition.parse(text) == definition
    assert Definition.parse(text.encode()) == definition
    assert Definition.parse(json.loads(text)) == definition
    assert Definition.parse(text).to_json() == text


@given(DEFINITIONS)
def test_a_bound_definition_is_read_back_bound(definition: Definition) -> None:
    bound = bind(definition, KEY, NOW_MS)
    read = Definition.parse(bound.to_json())
    assert read == bound
    assert read.trigger.is_bound


@given(POLICIES, POLICIES)
def test_equal_policies_have_equal_texts(one: Policies, other: Policies) -> None:
    again = msgspec.json.decode(msgspec.json.encode(one), type=Policies)
    assert policies_text(one) == policies_text(again)
    assert (policies_text(one) == policies_text(other)) == (one == other)
    assert msgspec.json.decode(policies_text(one), type=Policies) == one


def test_defaults_are_not_stored() -> None:
    definition = Definition(HOURLY, "send", policies=Policies(grace_ms=int("60000")))
    assert json.loads(definition.to_json()) == {"trigger": HOURLY.to_json(), "action": "send"}
    assert policies_text(Policies(misfire=Misfire())) == "{}"


def test_explicit_run_options_are_stored_even_when_they_equal_the_defaults() -> None:
    """Otherwise they could not override the options of the action."""
    explicit = Policies(retry=RetryPolicy(), timeout_ms=300_000, delivery="at_least_once")
    definition = Definition(HOURLY, "send", policies=explicit)
    assert Definition.parse(definition.to_json()).policies == explicit
    assert policies_of(policies_text(explicit)) == explicit
    assert Definition.parse(Definition(HOURLY, "send").to_json()).policies.delivery is None


def test_forms_that_people_write_are_accepted() -> None:
    parsed = Definition.parse(
        {"trigger": "0 9 * * MON", "action": "send", "policies": {"retry": {"attempts": 2}}}
    )
    assert parsed.trigger == cron("0 9 * * MON")
    assert parsed.policies.retry == RetryPolicy(attempts=2)
    assert (parsed.enabled, parsed.input, parsed.max_runs) == (True, None, None)


# Refusals.

MINIMAL = {"trigger": "0 * * * *", "action": "send"}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"enabld": False}, "enabld"),
    ({"policies": {"overlaps": "skip"}}, "overlaps"),
    ({"policies": {"retry": {"attemps": 3}}}, "attemps"),
    ({"policies": {"misfire": {"kind": "run_once", "age": 1}}}, "age"),
    ({"policies": {"overlap": "never"}}, "never"),
    ({"policies": {"misfire": {"kind": "sometimes"}}}, "sometimes"),
    ({"policies": {"grace_ms": -1}}, "grace_ms"),
    ({"policies": {"priority": 1_001}}, "priority"),
    ({"policies": {"timeout_ms": 0}}, "timeout_ms"),
    ({"policies": {"timeout_ms": 1.5}}, "timeout_ms"),
    ({"policies": {"pause_after_failures": 0}}, "pause_after_failures"),
    ({"policies": {"misfire": {"limit": 0}}}, "limit"),
    ({"policies": {"retry": {"attempts": 0}}}, "attempts"),
    ({"policies": {"retry": {"first_delay_ms": 9, "longest_delay_ms": 8}}}, "longest_delay_ms"),
    ({"hand_over": "pigeon"}, "pigeon"),
    ({"enabled": "yes"}, "enabled"),
    ({"max_runs": 0}, "max_runs"),
    ({"max_runs": True}, "max_runs"),
    ({"description": "x" * 1_001}, "description has 1001"),
    ({"note": "x" * 1_001}, "note has 1001"),
    ({"interval_bounds_ms": [999, 5_000]}, r"interval_bounds_ms\[0\]"),
    ({"interval_bounds_ms": [6_000, 5_000]}, r"interval_bounds_ms\[0\]"),
    ({"interval_bounds_ms": [6_000, 400 * 86_400_000]}, r"interval_bounds_ms\[1\]"),
    ({"v": 2}, "version 2"),
    ({"action": ""}, "action"),
    ({"action": ".."}, "action"),
    ({"action": "a\tb"}, "control"),
    ({"action": None}, "action"),
    ({"trigger": {"kind": "every", "hours": 1, "enabled": True}}, "enabled"),
    ({"trigger": {"kind": "once", "at": "2026-05-04T09:00:00"}}, "aware"),
    ({"trigger": {"kind": "once", "at_ms": 1_777_878_000}}, "not seconds"),
    ({"trigger": {"kind": "every", "hours": 1, "start_at_ms": 1_777_878_000}}, "not seconds"),
    ({"trigger": {"kind": "cron", "expression": "0 0 31 2 *"}}, "31 2"),
    ({"trigger": 5}, "trigger"),
]


@pytest.mark.parametrize(("words", "why"), REFUSED, ids=lambda each: str(each)[:40])
def test_bad_options_are_refused(words: dict[str, Any], why: str) -> None:
    for stored in (MINIMAL | words, json.dumps(MINIMAL | words)):
        with pytest.raises(InvalidInput, match=why):
            Definition.parse(stored)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", b"\xff", "[" * 100_000, '"\ud800"'])
def test_invalid_definitions_are_refused(text: str | bytes) -> None:
    with pytest.raises(InvalidInput):
        Definition.parse(text)


def test_an_unknown_trigger_is_named() -> None:
    with pytest.raises(UnknownTrigger):
        Definition.parse(MINIMAL | {"trigger": {"kind": "moon", "v": 1}})


BUILT_WRONGLY: list[tuple[Callable[..., Any], dict[str, Any]]] = [
    (Policies, {"overlap": "never"}),
    (Policies, {"delivery": "maybe"}),
    (Policies, {"grace_ms": "60000"}),
    (Policies, {"priority": True}),
    (Policies, {"misfire": {"kind": "skip"}}),
    (Policies, {"retry": 3}),
    (Misfire, {"kind": "sometimes"}),
    (Misfire, {"limit": 1.0}),
    (RetryPolicy, {"backoff": "linear"}),
    (RetryPolicy, {"attempts": "5"}),
    (RetryPolicy, {"first_delay_ms": 0.5}),
    (Definition, {"trigger": "0 * * * *"}),
    (Definition, {"hand_over": "pigeon"}),
    (Definition, {"enabled": 1}),
    (Definition, {"policies": {}}),
    (Definition, {"note": None}),
    (Definition, {"max_runs": "3"}),
]


@pytest.mark.parametrize(("make", "fields"), BUILT_WRONGLY, ids=lambda each: str(each)[:40])
def test_values_that_could_not_be_read_back_are_refused(
    make: Callable[..., Any], fields: dict[str, Any]
) -> None:
    sound = {"trigger": HOURLY, "action": "send"} if make is Definition else {}
    with pytest.raises(InvalidInput):
        make(**(sound | fields))


# What an owner may ask for.


def checked(definition: Definition, scope: Scope, limits: Limits = DEFAULT_LIMITS) -> None:
    check(bind(definition, KEY, NOW_MS), scope, limits, NOW_MS)


@pytest.mark.parametrize(
    "trigger",
    [
        every(seconds=59),
        cron("*/30 * * * * *", seconds=True),
        cron("0,59 0 0 1 1 *", seconds=True),
        cron("* * * * * *", seconds=True, start_at=NOW + timedelta(days=300)),
    ],
)
def test_only_the_system_may_fire_often(trigger: Trigger) -> None:
    definition = Definition(trigger, "send")
    checked(definition, SYSTEM)
    for scope in (user("u"), workspace("w")):
        with pytest.raises(InvalidInput, match=r"at least 1 min .*fires every \d+ s$"):
            checked(definition, scope)


@pytest.mark.parametrize("trigger", [every(minutes=1), cron("* * * * *"), once(NOW)])
def test_users_may_fire_once_a_minute(trigger: Trigger) -> None:
    checked(Definition(trigger, "send"), user("u"))


def test_the_shortest_interval_is_a_limit_of_the_scope() -> None:
    definition = Definition(every(minutes=5), "send")
    checked(definition, user("u"), Limits(shortest_interval_ms=300_000))
    with pytest.raises(InvalidInput):
        checked(definition, user("u"), Limits(shortest_interval_ms=300_001))


def test_interval_bounds_respect_the_limit_of_the_owner() -> None:
    definition = Definition(every(hours=1), "send", interval_bounds_ms=(1_000, 7_200_000))
    checked(definition, SYSTEM)
    with pytest.raises(InvalidInput, match="interval_bounds_ms"):
        checked(definition, user("u"))


def test_http_fires_at_most_once_a_minute_even_for_the_system() -> None:
    checked(Definition(every(minutes=1), "send", hand_over="http"), SYSTEM)
    with pytest.raises(InvalidInput, match="hand-over jobs"):
        checked(Definition(every(seconds=30), "send", hand_over="http"), SYSTEM)


def test_the_size_of_the_input_is_limited() -> None:
    fits = "x" * (262_144 - 2)
    checked(Definition(HOURLY, "send", input=fits), SYSTEM)
    with pytest.raises(InvalidInput, match="more than 262144 bytes"):
        checked(Definition(HOURLY, "send", input=fits + "x"), SYSTEM)


def test_an_input_that_is_not_json_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for bad in (object(), "\ud800", endless, {1, object()}):
        with pytest.raises(InvalidInput, match=r"JSON|nested"):
            checked(Definition(HOURLY, "send", input=bad), SYSTEM)


# Binding.


def test_the_key_is_flow_owner_and_name() -> None:
    schedule = Schedule(
        ScheduleId("s"), "mail", user("u"), "digest", Definition(HOURLY, "a"), "active", 1, 0, 0
    )
    assert schedule.key == KEY == "mail/u/digest"


def test_binding_sets_anchor_and_offset() -> None:
    definition = Definition(every(hours=1, spread=60), "send")
    bound = bind(definition, KEY, NOW_MS)
    assert bound.trigger.start_at == NOW
    assert 0 <= bound.trigger.offset_ms < 60_000
    assert bind(bound, "another", NOW_MS + 1) is bound
    assert bind(definition, KEY, NOW_MS) == bound


@pytest.mark.parametrize(
    "trigger", [every(hours=1), every(hours=1, spread=60), cron("H * * * *"), HOURLY, once(NOW)]
)
def test_an_edit_that_names_the_same_rule_changes_nothing(trigger: Trigger) -> None:
    definition = Definition(trigger, "send")
    earlier = bind(definition, KEY, NOW_MS)
    assert rebind(definition, KEY, earlier, NOW_MS + 60_000) == earlier
    assert rebind(earlier, KEY, earlier, NOW_MS + 60_000) == earlier


def test_an_edit_of_other_fields_keeps_the_anchor() -> None:
    earlier = bind(Definition(every(hours=1), "send"), KEY, NOW_MS)
    edited = rebind(Definition(every(hours=1), "send", note="x"), KEY, earlier, NOW_MS + 1)
    assert edited.trigger == earlier.trigger
    assert edited.note == "x"


def test_another_interval_counts_from_the_edit() -> None:
    earlier = bind(Definition(every(hours=1), "send"), KEY, NOW_MS)
    later = NOW + timedelta(minutes=7)
    edited = rebind(Definition(every(hours=2), "send"), KEY, earlier, to_ms(later))
    assert edited.trigger.start_at == later


def test_an_interval_after_a_rule_with_a_start_counts_from_the_edit() -> None:
    started = cron("0 * * * *", start_at=NOW - timedelta(days=9))
    edited = rebind(Definition(every(hours=1), "a"), KEY, Definition(started, "a"), NOW_MS)
    assert edited.trigger.start_at == NOW


def test_state_of_a_new_schedule() -> None:
    assert state_of(Definition(HOURLY, "a")) == "active"
    assert state_of(Definition(HOURLY, "a", enabled=False)) == "paused"
    for hand_over in get_args(HandOver):
        assert state_of(Definition(HOURLY, "a", hand_over=hand_over)) == "active"
        paused = Definition(HOURLY, "a", hand_over=hand_over, enabled=False)
        assert state_of(paused) == "paused"


def test_a_naive_time_is_refused() -> None:
    naive = datetime(2026, 5, 4, 9, 0)  # noqa: DTZ001 - the sample must be naive
    with pytest.raises(InvalidTrigger, match="aware"):
        once(naive)
    with pytest.raises(InvalidTrigger, match="aware"):
        every(hours=1, start_at=naive)
