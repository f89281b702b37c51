"""Tests of schedule collections: creation of schedules, and refusals."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pydantic
import pytest
from tests.samples import NOW, Action, next_times, run

from duly import cron, every, once, weekly
from duly.errors import Conflict, DulyError, InvalidInput, InvalidTrigger
from duly.flows.collections import ScheduleCollection, ScopedSchedules
from duly.model.documents import DocumentWrite
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Limits, Policies
from duly.model.scopes import SYSTEM, Scope, user, workspace
from duly.stores.memory import MemoryStore
from duly.testing.clock import ManualClock

HOUR = timedelta(hours=1)
HOURLY = cron("0 * * * *")


@pytest.fixture
def mine(store: MemoryStore) -> ScopedSchedules:
    return ScheduleCollection(store, "mail").of(user("u_7"))


# Making them.


def test_create_stores_a_schedule_and_its_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    weekly_digest = cron("0 9 * * MON", tz="Europe/Berlin")
    made = run(
        mine.create("weekly-digest", weekly_digest, action="send_digest", input={"to": "me"})
    )
    assert (made.flow, made.scope, made.name, made.version) == (
        "mail",
        user("u_7"),
        "weekly-digest",
        1,
    )
    assert (made.state, made.definition.enabled) == ("active", True)
    assert made.definition.input == {"to": "me"}
    assert made.id.startswith("sch_")
    assert run(mine.get("weekly-digest")) == made
    assert next_times(store) == {"weekly-digest": datetime(2026, 5, 11, 7, 0, tzinfo=UTC)}
    assert run(store.get_schedule(ScheduleKey("mail", "user:u_7", "weekly-digest"))) == made
    (row,) = run(store.list_rows())
    assert row.nominal_ms == 1_778_482_800_000  # 2026-05-11 09:00 in Berlin, by hand


@pytest.mark.parametrize(
    "words",
    [
        HOURLY,
        "0 * * * *",
        "@hourly",
        {"kind": "cron", "expression": "0 * * * *"},
        '{"kind": "cron", "expression": "0 * * * *"}',
        every(hours=1),
        {"kind": "every", "hours": 1},
        once(NOW + HOUR),
        {"kind": "once", "at": "2026-05-04T10:00:00+02:00"},
        weekly({"mon": "08:00", "tue": None}),
    ],
    ids=str,
)
def test_a_trigger_may_be_given_in_many_forms(
    mine: ScopedSchedules, store: MemoryStore, words: Any
) -> None:
    run(mine.create("n", words, action="send"))
    assert next_times(store) == {"n": NOW + HOUR}


@dataclass
class Digest:
    to: str
    since: datetime


class DigestStruct(msgspec.Struct):
    to: str
    since: datetime


class DigestModel(pydantic.BaseModel):
    to: str = pydantic.Field(alias="To")
    since: datetime


def test_an_action_may_be_the_function(mine: ScopedSchedules) -> None:
    assert run(mine.create("n", HOURLY, action=Action("send"))).definition.action == "send"


@pytest.mark.parametrize(
    ("value", "stored"),
    [
        (Digest("me", NOW), {"to": "me", "since": "2026-05-04T07:00:00Z"}),
        (DigestStruct("me", NOW), {"to": "me", "since": "2026-05-04T07:00:00Z"}),
        (DigestModel(To="me", since=NOW), {"To": "me", "since": "2026-05-04T07:00:00Z"}),
        ([DigestModel(To="me", since=NOW)], [{"To": "me", "since": "2026-05-04T07:00:00Z"}]),
        ((1, 2), [1, 2]),
        ({"a": None}, {"a": None}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_typed_input_is_stored_as_json(mine: ScopedSchedules, value: Any, stored: Any) -> None:
    assert run(mine.create("n", HOURLY, action="send", input=value)).definition.input == stored
    found = run(mine.get("n"))
    assert found is not None
    assert found.definition.input == stored
    assert run(mine.update("n", input=value)).version == 1


def test_all_options(mine: ScopedSchedules) -> None:
    policies = Policies(overlap="allow", priority=5)
    made = run(
        mine.create(
            "n",
            every(hours=1),
            action="send",
            enabled=False,
            description="hourly",
            note="not yet",
            hand_over="http",
            policies=policies,
            max_runs=3,
            interval_bounds_ms=(60_000, 3_600_000),
        )
    )
    definition = made.definition
    assert (definition.enabled, definition.description, definition.note) == (
        False,
        "hourly",
        "not yet",
    )
    assert (definition.hand_over, definition.policies, definition.max_runs) == ("http", policies, 3)
    assert definition.interval_bounds_ms == (60_000, 3_600_000)


def test_a_schedule_created_disabled_has_no_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    assert run(mine.create("n", HOURLY, action="send", enabled=False)).state == "paused"
    assert next_times(store) == {}


def test_an_external_schedule_needs_no_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    made = run(mine.create("n", HOURLY, action="send", hand_over="external"))
    seen = [next_times(store)]
    changed = run(mine.update("n", trigger="30 * * * *"))
    seen.append(next_times(store))
    assert [each.state for each in (made, changed)] == ["active"] * 2
    assert run(mine.get("n")) == changed
    assert run(store.index_health()).is_healthy
    assert run(mine.delete("n")) is True
    assert seen == [{}, {}]


def test_a_schedule_without_times_is_finished_at_once(
    mine: ScopedSchedules, store: MemoryStore
) -> None:
    assert run(mine.create("m", weekly({"mon": None}), action="send")).state == "finished"
    assert next_times(store) == {}


def test_a_plain_document_makes_no_row(store: MemoryStore) -> None:
    body = '{"trigger":"* * * * *","action":"send"}'
    run(store.put_document(DocumentWrite("notes", "user:u_7", "mail/n", "res_1", body)))
    assert next_times(store) == {}


# Refusals at create.


def test_a_once_in_the_past_names_the_schedule_and_the_remedy(mine: ScopedSchedules) -> None:
    with pytest.raises(InvalidInput, match=r"in the past.*set a later time") as caught:
        run(mine.create("n", once(NOW - HOUR), action="send"))
    assert "schedule 'n'" in caught.value.__notes__[0]


def refused(
    mine: ScopedSchedules, name: Any = "n", trigger: Any = HOURLY, **options: Any
) -> DulyError:
    with pytest.raises(DulyError) as caught:
        run(mine.create(name, trigger, **({"action": "send"} | options)))
    assert run(mine.list()) == []
    return caught.value


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        ("* * *", "5 fields"),
        ("0 0 31 2 *", "31 2"),
        ("@reboot", "reboot"),
        ({"kind": "cron", "expression": "0 9 * * *", "enabled": True}, "enabled"),
        ({"kind": "cron", "expression": "0 9 * * *", "tz": "Europe/Berln"}, "Europe/Berlin"),
        ({"kind": "weekly", "days": {"monday": "09:00"}}, "monday"),
        ({"kind": "once", "at": "2026-05-04T09:00:00"}, "aware"),
        ({"kind": "once", "at_ms": 1_777_878_000}, "not seconds"),
        ({"kind": "moon"}, "moon"),
        (None, "trigger"),
        (5, "trigger"),
    ],
    ids=str,
)
def test_bad_triggers(mine: ScopedSchedules, trigger: Any, why: str) -> None:
    error = refused(mine, trigger=trigger)
    assert isinstance(error, InvalidTrigger)
    assert why in str(error)
    assert error.__notes__ == ["in schedule 'n' of user:u_7 in flow 'mail'"]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"inputs": {}}, "no field 'inputs'; did you mean 'input'?"),
        ({"enable": True}, "did you mean 'enabled'?"),
        ({"frobnicate": True}, "allowed: delete_after_completion, description, enabled"),
        ({"enabled": "no"}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"max_runs": 0}, "max_runs"),
        ({"policies": {"overlaps": "skip"}}, "overlaps"),
        ({"policies": {"retry": {"attemps": 1}}}, "attemps"),
        ({"hand_over": "pigeon"}, "pigeon"),
        ({"input": "x" * 262_143}, "input has more than 262144 bytes"),
        ({"input": [float("inf")]}, "input cannot be written as JSON"),
        ({"input": float("nan")}, "input cannot be written as JSON"),
        ({"action": ""}, "action"),
        ({"action": 5}, "action"),
        ({"action": "a\n"}, "control"),
        ({"interval_bounds_ms": (1_000, 60_000)}, "interval_bounds_ms"),
        ({"description": "x" * 1_001}, "description"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_bad_options(mine: ScopedSchedules, options: dict[str, Any], why: str) -> None:
    error = refused(mine, **options)
    assert isinstance(error, InvalidInput)
    assert why in str(error)


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "x" * 129, "\ud800", None])
def test_names_that_could_not_be_dispatched(mine: ScopedSchedules, name: Any) -> None:
    assert "name" in str(refused(mine, name=name))
    for call in (mine.get(name), mine.delete(name), mine.update(name, note="x")):
        with pytest.raises(InvalidInput):
            run(call)


@pytest.mark.parametrize(
    ("scope", "name"),
    [
        (user("system"), "n"),
        (user("workspace:x"), "n"),
        (user("é" * 150), "é" * 60),
    ],
)
def test_owners_that_could_not_be_dispatched(store: MemoryStore, scope: Scope, name: str) -> None:
    assert isinstance(refused(ScheduleCollection(store, "mail").of(scope), name=name), InvalidInput)


def test_ids_of_all_kinds_are_accepted(store: MemoryStore) -> None:
    for owner in ("U.7@example.org", "auth0|5f7", "Ünï", "a b", "x/y"):
        made = run(
            ScheduleCollection(store, "mail").of(user(owner)).create("Ä/b c", HOURLY, action="send")
        )
        assert made.scope.id == owner


def test_the_shortest_interval_applies_to_users_only(store: MemoryStore) -> None:
    schedules = ScheduleCollection(store, "mail")
    often = every(seconds=5)
    for scope in (user("u"), workspace("w")):
        error = refused(schedules.of(scope), trigger=often)
        assert isinstance(error, InvalidInput)
        assert "interval must be at least 1 min" in str(error)
        assert f"in schedule 'n' of {scope} in flow 'mail'" in error.__notes__
    run(schedules.of(SYSTEM).create("n", often, action="send"))
    with pytest.raises(InvalidInput, match="hand-over jobs"):
        run(schedules.of(SYSTEM).create("m", often, action="send", hand_over="http"))


def test_schedules_per_scope_are_limited(store: MemoryStore) -> None:
    limits = Limits(schedules=2)
    mail = ScheduleCollection(store, "mail", limits=limits)
    chat = ScheduleCollection(store, "chat", limits=limits)
    run(mail.of(user("u")).create("a", HOURLY, action="send"))
    run(chat.of(user("u")).create("b", HOURLY, action="send"))
    with pytest.raises(Conflict, match="user:u has 2 schedules and may have 2; delete one first"):
        run(mail.of(user("u")).create("c", HOURLY, action="send"))
    run(mail.of(user("v")).create("c", HOURLY, action="send"))
    for name in ("a", "b", "c"):
        run(mail.of(SYSTEM).create(name, HOURLY, action="send"))


def test_schedules_per_scope_and_flow_are_limited(store: MemoryStore, clock: ManualClock) -> None:
    limits = Limits(schedules=10, schedules_per_flow=1)
    mail = ScheduleCollection(store, "mail", limits=limits).of(user("u"))
    chat = ScheduleCollection(store, "chat", limits=limits).of(user("u"))
    at = clock.now() + timedelta(hours=1)
    run(mail.create("a", once(at), action="send"))
    run(chat.create("a", HOURLY, action="send"))
    full = "user:u has 1 schedules in flow 'mail' and may have 1; delete one first, or raise "
    with pytest.raises(Conflict, match=f"{full}Limits.schedules_per_flow"):
        run(mail.create("b", HOURLY, action="send"))
    clock.advance(hours=1)
    run(store.claim_due())
    run(mail.create("b", HOURLY, action="send"))
    # The first one has finished, and may not run again while there is another.
    later = once(at + timedelta(hours=5))
    with pytest.raises(Conflict, match=full):
        run(mail.update("a", trigger=later))
    with pytest.raises(Conflict, match=full):
        run(mail.ensure("a", later, action="send"))
    run(mail.update("a", description="the first"))


def test_a_name_is_taken_once(mine: ScopedSchedules, store: MemoryStore) -> None:
    run(mine.create("n", HOURLY, action="send"))
    with pytest.raises(Conflict, match="schedule 'n' of user:u_7 in flow 'mail' exists already"):
        run(mine.create("n", "30 * * * *", action="send"))
    assert next_times(store) == {"n": NOW + HOUR}


def test_actions_are_checked_where_they_are_known(store: MemoryStore) -> None:
    mine = ScheduleCollection(store, "mail", actions=["send_digest", "clean"]).of(user("u"))
    run(mine.create("n", HOURLY, action="clean"))
    with pytest.raises(InvalidInput, match="no action 'send_digst'; did you mean 'send_digest'"):
        run(mine.create("m", HOURLY, action="send_digst"))
    with pytest.raises(InvalidInput, match="no action 'x'; allowed: clean, send_digest"):
        run(mine.update("n", action="x"))


def test_zones_can_be_refused(store: MemoryStore) -> None:
    mine = ScheduleCollection(store, "mail", zones="utc").of(user("u"))
    berlin = cron("0 9 * * *", tz="Europe/Berlin")
    for words in (berlin, berlin.to_json()):
        with pytest.raises(InvalidTrigger, match="UTC only"):
            run(mine.create("n", words, action="send"))
    run(mine.create("n", "0 9 * * *", action="send"))


@pytest.mark.parametrize("flow", ["", "Mail", "a/b", "x" * 65])
def test_names_of_flows(store: MemoryStore, flow: str) -> None:
    with pytest.raises(InvalidInput, match="flow"):
        ScheduleCollection(store, flow)


def test_scopes_are_checked(store: MemoryStore) -> None:
    text: Any = "user:u"
    with pytest.raises(InvalidInput, match="scope 'user:u'"):
        ScheduleCollection(store, "mail").of(text)
