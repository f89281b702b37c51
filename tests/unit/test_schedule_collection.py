"""Schedule collections: what users, agents and programmers can do, and what is refused."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

import msgspec
import pydantic
import pytest

from duly import Explanation, cron, every, once, weekly
from duly.errors import Conflict, DulyError, InvalidInput, InvalidTrigger, NotFound
from duly.resources import NewSchedule, ScheduleCollection, ScopedSchedules
from duly.schedules import Limits, Policies, Schedule
from duly.scopes import SYSTEM, Scope, user, workspace
from duly.store import (
    DocumentWrite,
    IndexHealth,
    Refused,
    ScheduleKey,
    ScheduleWrite,
    ScheduleWritten,
)
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock
from duly.triggers.instants import to_ms

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)  # a Monday
HOUR = timedelta(hours=1)
HOURLY = cron("0 * * * *")
T = TypeVar("T")


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


@pytest.fixture
def mine(store: MemoryStore) -> ScopedSchedules:
    return ScheduleCollection(store, "mail").of(user("u_7"))


def next_times(store: MemoryStore) -> dict[str, datetime]:
    rows = run(store.list_rows(limit=1_000))
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    return {row.name: epoch + timedelta(milliseconds=row.nominal_ms) for row in rows}


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
def test_a_trigger_may_be_said_in_many_ways(
    mine: ScopedSchedules, store: MemoryStore, words: Any
) -> None:
    run(mine.create("n", words, action="send"))
    assert next_times(store) == {"n": NOW + HOUR}


@dataclass(frozen=True)
class Action:
    name: str


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


def test_an_action_may_be_the_thing_itself(mine: ScopedSchedules) -> None:
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


def test_everything_that_can_be_said(mine: ScopedSchedules) -> None:
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


def test_one_made_disabled_has_no_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    assert run(mine.create("n", HOURLY, action="send", enabled=False)).state == "paused"
    assert next_times(store) == {}


def test_one_fired_from_outside_needs_no_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    made = run(mine.create("n", HOURLY, action="send", hand_over="external"))
    seen = [next_times(store)]
    changed = run(mine.update("n", trigger="30 * * * *"))
    seen.append(next_times(store))
    assert [each.state for each in (made, changed)] == ["external"] * 2
    assert run(mine.get("n")) == changed
    assert run(store.index_health()).is_healthy
    assert run(mine.delete("n")) is True
    assert seen == [{}, {}]


def test_what_is_over_is_finished_at_once(mine: ScopedSchedules, store: MemoryStore) -> None:
    assert run(mine.create("n", once(NOW - HOUR), action="send")).state == "finished"
    assert run(mine.create("m", weekly({"mon": None}), action="send")).state == "finished"
    assert next_times(store) == {}


def test_a_plain_document_makes_no_row(store: MemoryStore) -> None:
    body = '{"trigger":"* * * * *","action":"send"}'
    run(store.put_document(DocumentWrite("notes", "user:u_7", "mail/n", "res_1", body)))
    assert next_times(store) == {}


# Refusals at create.


def refused(
    mine: ScopedSchedules, name: Any = "n", trigger: Any = HOURLY, **said: Any
) -> DulyError:
    with pytest.raises(DulyError) as caught:
        run(mine.create(name, trigger, **({"action": "send"} | said)))
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
    ("said", "why"),
    [
        ({"inputs": {}}, "no field 'inputs'; did you mean 'input'?"),
        ({"enable": True}, "did you mean 'enabled'?"),
        ({"frobnicate": True}, "allowed: description, enabled"),
        ({"enabled": "no"}, "enabled"),
        ({"enabled": None}, "enabled"),
        ({"max_runs": 0}, "max_runs"),
        ({"policies": {"overlaps": "skip"}}, "overlaps"),
        ({"policies": {"retry": {"attemps": 1}}}, "attemps"),
        ({"hand_over": "pigeon"}, "pigeon"),
        ({"input": "x" * 262_143}, "input has 262145 bytes"),
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
def test_bad_words(mine: ScopedSchedules, said: dict[str, Any], why: str) -> None:
    error = refused(mine, **said)
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


def test_ids_of_all_kinds_are_fine(store: MemoryStore) -> None:
    for owner in ("U.7@example.org", "auth0|5f7", "Ünï", "a b", "x/y"):
        made = run(
            ScheduleCollection(store, "mail").of(user(owner)).create("Ä/b c", HOURLY, action="send")
        )
        assert made.scope.id == owner


def test_users_may_not_fire_too_often_but_the_system_may(store: MemoryStore) -> None:
    schedules = ScheduleCollection(store, "mail")
    often = every(seconds=5)
    for scope in (user("u"), workspace("w")):
        error = refused(schedules.of(scope), trigger=often)
        assert isinstance(error, InvalidInput)
        assert "60000 ms" in str(error)
        assert f"in schedule 'n' of {scope} in flow 'mail'" in error.__notes__
    run(schedules.of(SYSTEM).create("n", often, action="send"))
    with pytest.raises(InvalidInput, match="hand-over jobs"):
        run(schedules.of(SYSTEM).create("m", often, action="send", hand_over="http"))


def test_a_scope_may_have_so_many(store: MemoryStore) -> None:
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


def test_a_scope_is_a_scope(store: MemoryStore) -> None:
    text: Any = "user:u"
    with pytest.raises(InvalidInput, match="scope 'user:u'"):
        ScheduleCollection(store, "mail").of(text)


# Many at once.


def test_create_many(mine: ScopedSchedules, store: MemoryStore) -> None:
    run(mine.create("b", HOURLY, action="send"))
    new = [NewSchedule(name, HOURLY, "send", input=name) for name in "abc"]
    first, second, third = run(mine.create_many(new))
    assert isinstance(first, Schedule)
    assert isinstance(third, Schedule)
    assert isinstance(second, Conflict)
    assert "'b'" in str(second)
    assert [each.name for each in run(mine.list())] == ["a", "b", "c"]
    assert run(mine.create_many([])) == []


def test_create_many_is_one_verb(clock: ManualClock) -> None:
    class Counting(MemoryStore):
        calls = 0

        async def put_schedules(
            self, writes: Sequence[ScheduleWrite]
        ) -> list[ScheduleWritten | Refused]:
            self.calls += 1
            return await super().put_schedules(writes)

    store = Counting(clock)
    mine = ScheduleCollection(store, "mail").of(user("u"))
    run(mine.create_many([NewSchedule(str(n), HOURLY, "send") for n in range(500)]))
    assert (store.calls, len(run(mine.list(limit=1_000)))) == (1, 500)


def test_one_bad_one_refuses_all(mine: ScopedSchedules) -> None:
    good = NewSchedule("a", HOURLY, "send")
    for bad in (
        replace(good, name=".."),
        replace(good, name="b", trigger="* * *"),
        replace(good, name="b", trigger=every(seconds=1)),
    ):
        with pytest.raises(InvalidInput):
            run(mine.create_many([good, bad]))
        assert run(mine.list()) == []
    with pytest.raises(InvalidInput, match="1001 schedules at once"):
        run(mine.create_many([good] * 1_001))


def test_many_stop_where_the_scope_is_full(store: MemoryStore) -> None:
    mine = ScheduleCollection(store, "mail", limits=Limits(schedules=2)).of(user("u"))
    made = run(mine.create_many([NewSchedule(name, HOURLY, "send") for name in "abc"]))
    assert [isinstance(each, Schedule) for each in made] == [True, True, False]
    assert "may have 2" in str(made[2])


class Joining(MemoryStore):
    """As if a list of writes were a transaction of the caller's."""

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        transaction.extend(writes)
        return run(self.put_schedules(writes))


def test_create_in_hands_over_the_callers_transaction(clock: ManualClock) -> None:
    store = Joining(clock)
    mine = ScheduleCollection(store, "mail").of(user("u"), by="agent:a")
    connection: list[ScheduleWrite] = []
    made = mine.create_in(connection, "n", "0 * * * *", action="send", note="x")
    assert [write.id for write in connection] == [made.id]
    assert made.definition.note == "x"
    with pytest.raises(Conflict, match="exists already"):
        mine.create_in(connection, "n", "0 * * * *", action="send")
    wrong: Any = {"notes": "x"}
    with pytest.raises(InvalidInput, match="did you mean 'note'"):
        mine.create_in(connection, "m", "0 * * * *", action="send", **wrong)


def test_create_in_is_refused_where_nothing_can_be_joined(mine: ScopedSchedules) -> None:
    with pytest.raises(InvalidInput, match="transaction"):
        mine.create_in(object(), "n", HOURLY, action="send")


# Changing them.


def test_only_the_named_fields_change(mine: ScopedSchedules, store: MemoryStore) -> None:
    made = run(mine.create("n", every(hours=1), action="send", input=[1], description="old"))
    changed = run(mine.update("n", description="new"))
    assert (changed.id, changed.version) == (made.id, 2)
    assert changed.definition == msgspec.structs.replace(made.definition, description="new")
    assert next_times(store) == {"n": NOW + HOUR}


def test_a_new_trigger_moves_the_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    run(mine.create("n", HOURLY, action="send"))
    run(mine.update("n", trigger="30 * * * *"))
    assert next_times(store) == {"n": NOW + HOUR / 2}


def test_an_edit_of_words_keeps_the_pending_time(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    run(mine.create("n", HOURLY, action="send"))
    clock.advance(hours=1, seconds=1)
    run(mine.update("n", note="still due", policies=Policies(priority=9)))
    assert next_times(store) == {"n": NOW + HOUR}
    (claimed,) = run(store.claim_due())
    assert claimed.nominal_ms == to_ms(NOW + HOUR)


def test_naming_the_same_interval_again_does_not_move_it(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    run(mine.create("n", every(hours=1), action="send"))
    clock.advance(minutes=50)
    assert run(mine.update("n", trigger=every(hours=1))).version == 1
    assert next_times(store) == {"n": NOW + HOUR}


def test_nothing_to_change_changes_nothing(mine: ScopedSchedules) -> None:
    made = run(mine.create("n", HOURLY, action="send"))
    assert run(mine.update("n")) == made
    assert run(mine.update("n", enabled=True, action=Action("send"))) == made


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"trigers": "* * * * *"}, "did you mean 'trigger'?"),
        ({"flow": "chat"}, "no field 'flow'"),
        ({"actoin": "x"}, "did you mean 'action'?"),
        ({"trigger": "* * *"}, "5 fields"),
        ({"trigger": {"kind": "every", "seconds": 5}}, "60000 ms"),
        ({"max_runs": -1}, "max_runs"),
        ({"input": "x" * 262_143}, "262145 bytes"),
    ],
    ids=lambda each: str(each)[:40],
)
def test_bad_changes_change_nothing(
    mine: ScopedSchedules, changes: dict[str, Any], why: str
) -> None:
    made = run(mine.create("n", HOURLY, action="send"))
    with pytest.raises(InvalidInput, match=why.replace("?", r"\?")):
        run(mine.update("n", **changes))
    assert run(mine.get("n")) == made


def test_versions(mine: ScopedSchedules) -> None:
    run(mine.create("n", HOURLY, action="send"))
    assert run(mine.update("n", version=1, note="a")).version == 2
    with pytest.raises(Conflict, match="is at version 2, not 1"):
        run(mine.update("n", version=1, note="b"))
    with pytest.raises(Conflict, match="is at version 2, not 1"):
        run(mine.delete("n", version=1))
    assert run(mine.delete("n", version=2)) is True


class Busy(MemoryStore):
    """Somebody else edits just before each of the next few edits."""

    rivals = 0

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        for write in writes if self.rivals else ():
            definition = msgspec.structs.replace(write.definition, description=str(self.rivals))
            await super().put_schedules([replace(write, definition=definition)])
            self.rivals -= 1
        return await super().put_schedules(writes)


def test_a_change_is_tried_again_and_not_for_ever(clock: ManualClock) -> None:
    store = Busy(clock)
    mine = ScheduleCollection(store, "mail").of(user("u"))
    run(mine.create("n", HOURLY, action="send"))
    store.rivals = 3
    changed = run(mine.update("n", note="mine"))
    assert (changed.definition.note, changed.definition.description) == ("mine", "1")
    store.rivals = 10
    with pytest.raises(Conflict, match="10 times"):
        run(mine.update("n", note="again"))


def test_pause_and_resume(mine: ScopedSchedules, store: MemoryStore, clock: ManualClock) -> None:
    run(mine.create("n", HOURLY, action="send"))
    paused = run(mine.pause("n", "card expired"))
    assert (paused.state, paused.definition.note) == ("paused", "card expired")
    assert next_times(store) == {}
    assert run(mine.get("n")) == paused
    clock.advance(hours=3)
    resumed = run(mine.resume("n"))
    assert (resumed.state, resumed.definition.note) == ("active", "")
    assert next_times(store) == {"n": NOW + 4 * HOUR}
    assert [event.kind for event in run(mine.events("n"))] == ["created", "paused", "resumed"]


def test_delete_removes_the_row(mine: ScopedSchedules, store: MemoryStore) -> None:
    first = run(mine.create("n", HOURLY, action="send"))
    assert run(mine.delete("n")) is True
    assert run(mine.delete("n")) is False
    assert (run(mine.get("n")), next_times(store)) == (None, {})
    assert run(mine.create("n", HOURLY, action="send")).id != first.id


def test_what_does_not_exist(mine: ScopedSchedules) -> None:
    assert run(mine.get("ghost")) is None
    for call in (
        mine.update("ghost", note="x"),
        mine.pause("ghost"),
        mine.resume("ghost"),
        mine.preview("ghost"),
        mine.events("ghost"),
    ):
        with pytest.raises(NotFound, match="schedule 'ghost' of user:u_7 in flow 'mail'"):
            run(call)


# Looking at them.


def test_preview_tells_the_next_times(mine: ScopedSchedules, clock: ManualClock) -> None:
    run(mine.create("n", cron("0 9 * * MON", tz="Europe/Berlin"), action="send", enabled=False))
    clock.advance(days=1)
    shown = run(mine.preview("n", 2))
    assert isinstance(shown, Explanation)
    assert shown.words == "At 09:00 on Monday"
    assert [each.at for each in shown.times] == [NOW + timedelta(days=7), NOW + timedelta(days=14)]


def test_events_say_who_did_what(store: MemoryStore) -> None:
    schedules = ScheduleCollection(store, "mail")
    own, agent = schedules.of(user("u")), schedules.of(user("u"), by="agent:planner")
    run(agent.create("n", HOURLY, action="send"))
    run(own.update("n", trigger="30 * * * *"))
    run(own.pause("n", "holiday"))
    events = run(own.events("n"))
    assert [(event.kind, event.by) for event in events] == [
        ("created", "agent:planner"),
        ("changed", "user:u"),
        ("paused", "user:u"),
    ]
    assert events[1].detail == {"trigger": HOURLY.to_json()}
    assert events[2].detail == {"note": "holiday"}
    for by in ("", "a\n", "x" * 1_025):
        with pytest.raises(InvalidInput, match="by"):
            schedules.of(user("u"), by=by)


def test_pages(mine: ScopedSchedules, store: MemoryStore) -> None:
    run(mine.create_many([NewSchedule(name, HOURLY, "send") for name in "dbca"]))
    run(ScheduleCollection(store, "chat").of(user("u_7")).create("x", HOURLY, action="send"))
    run(ScheduleCollection(store, "mail").of(user("v")).create("y", HOURLY, action="send"))
    assert [each.name for each in run(mine.list())] == ["a", "b", "c", "d"]
    assert [each.name for each in run(mine.list(after="b", limit=1))] == ["c"]
    with pytest.raises(InvalidInput, match="limit"):
        run(mine.list(limit=0))


def test_only_a_scope_can_be_asked_for_its_schedules(store: MemoryStore) -> None:
    schedules = ScheduleCollection(store, "mail")
    for owner in ("u", "v"):
        run(schedules.of(user(owner)).create(f"of-{owner}", HOURLY, action="send"))
    assert [each.name for each in run(schedules.of(user("u")).list())] == ["of-u"]
    public = {name for name in dir(ScheduleCollection) if not name.startswith("_")}
    assert public == {"of", "definition"}, "a new call: does it give schedules of all scopes?"


def test_products_of_one_user_fire_by_themselves(store: MemoryStore, clock: ManualClock) -> None:
    mine = ScheduleCollection(store, "posts").of(user("u"))
    run(mine.create("lamp/x", weekly({"tue": "09:00", "thu": "09:00"}), action="post"))
    run(mine.create("lamp/threads", weekly({"mon": "09:00"}), action="post"))
    run(mine.create("desk/x", weekly({"tue": "09:00", "wed": None}), action="post"))
    fired: list[tuple[str, str]] = []

    async def ask_every_minute_for_a_week() -> None:
        for _ in range(7 * 24 * 60):
            clock.advance(minutes=1)
            now = f"{clock.now():%a %H:%M}"
            fired.extend((each.name, now) for each in await store.claim_due())

    run(ask_every_minute_for_a_week())
    assert sorted(fired) == [
        ("desk/x", "Tue 09:00"),
        ("lamp/threads", "Mon 09:00"),
        ("lamp/x", "Thu 09:00"),
        ("lamp/x", "Tue 09:00"),
    ]


def test_the_index_holds_what_is_active_and_nothing_else(
    store: MemoryStore, mine: ScopedSchedules
) -> None:
    names = [f"p{number:02}" for number in range(40)]
    run(mine.create_many([NewSchedule(name, HOURLY, "send", enabled=False) for name in names]))
    for step in range(200):
        name = names[step * 7 % 40]
        run(mine.resume(name) if step % 3 else mine.pause(name))
    active = {each.name for each in run(mine.list()) if each.state == "active"}
    assert next_times(store).keys() == active
    health: IndexHealth = run(store.index_health())
    assert (health.active, health.rows, health.is_healthy) == (len(active), len(active), True)
