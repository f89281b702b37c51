"""Tests of schedule collections: bulk creation, changes, and reads."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from tests.samples import NOW, Action, next_times, run

from duly import Explanation, Trigger, cron, every, once, weekly
from duly.errors import Conflict, InvalidInput, NotFound
from duly.flows.collections import NewSchedule, ScheduleCollection, ScopedSchedules
from duly.flows.collections.requests import TriggerWords
from duly.model.documents import Refused
from duly.model.index import IndexHealth
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.model.schedules import Limits, Schedule
from duly.model.scopes import user
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock
from duly.triggers.instants import to_ms

HOUR = timedelta(hours=1)
HOURLY = cron("0 * * * *")


@pytest.fixture
def mine(store: MemoryStore) -> ScopedSchedules:
    return ScheduleCollection(store, "mail").of(user("u_7"))


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


def test_one_bad_schedule_refuses_all(mine: ScopedSchedules) -> None:
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


def test_create_many_stops_when_the_scope_is_full(store: MemoryStore) -> None:
    mine = ScheduleCollection(store, "mail", limits=Limits(schedules=2)).of(user("u"))
    made = run(mine.create_many([NewSchedule(name, HOURLY, "send") for name in "abc"]))
    assert [isinstance(each, Schedule) for each in made] == [True, True, False]
    assert "may have 2" in str(made[2])


class Joining(MemoryStore):
    """A store that treats a list as a transaction of the caller."""

    def put_schedules_in(
        self, transaction: Any, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        transaction.extend(writes)
        return run(self.put_schedules(writes))


def test_create_in_uses_the_transaction_of_the_caller(clock: ManualClock) -> None:
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


def test_create_in_needs_a_store_with_transactions(mine: ScopedSchedules) -> None:
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


def test_an_edit_of_texts_keeps_the_pending_time(
    mine: ScopedSchedules, store: MemoryStore, clock: ManualClock
) -> None:
    run(mine.create("n", HOURLY, action="send"))
    clock.advance(hours=1, seconds=1)
    run(mine.update("n", note="still due", description="hourly"))
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
        ({"trigger": {"kind": "every", "seconds": 5}}, "at least 1 min"),
        ({"max_runs": -1}, "max_runs"),
        ({"input": "x" * 262_143}, "more than 262144 bytes"),
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
    """A store in which another edit happens just before each of the next few edits."""

    rivals = 0

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        for write in writes if self.rivals else ():
            definition = msgspec.structs.replace(write.definition, description=str(self.rivals))
            await super().put_schedules([replace(write, definition=definition)])
            self.rivals -= 1
        return await super().put_schedules(writes)


def test_a_change_is_retried_a_limited_number_of_times(clock: ManualClock) -> None:
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


def test_unknown_schedules_are_not_found(mine: ScopedSchedules) -> None:
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


# Reading them.


def test_preview_returns_the_next_times(mine: ScopedSchedules, clock: ManualClock) -> None:
    run(mine.create("n", cron("0 9 * * MON", tz="Europe/Berlin"), action="send", enabled=False))
    clock.advance(days=1)
    shown = run(mine.preview("n", 2))
    assert isinstance(shown, Explanation)
    assert shown.words == "At 09:00 on Monday"
    assert [each.at for each in shown.times] == [NOW + timedelta(days=7), NOW + timedelta(days=14)]


def test_events_name_the_actor(store: MemoryStore) -> None:
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
    assert public == {"of", "definition", "reindex"}, (
        "a new call: does it give schedules of all scopes?"
    )


def test_schedules_of_one_user_fire_independently(store: MemoryStore, clock: ManualClock) -> None:
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


def test_the_index_holds_exactly_the_active_schedules(
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


# The zone of a rule that names none.

BERLIN = "Europe/Berlin"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("30 8 * * *", cron("30 8 * * *", tz=BERLIN, fold="second")),
        (
            '{"kind": "cron", "expression": "30 8 * * *"}',
            cron("30 8 * * *", tz=BERLIN, fold="second"),
        ),
        (
            {"kind": "weekly", "days": {"mon": "09:00"}, "gap": "skip"},
            weekly({"mon": "09:00"}, tz=BERLIN, gap="skip", fold="second"),
        ),
        (
            {"kind": "once", "at": "2030-11-19T09:00"},
            once("2030-11-19T09:00", tz=BERLIN, fold="second"),
        ),
        ({"kind": "once", "at": "2030-11-19T09:00Z"}, once("2030-11-19T09:00Z")),
        ({"kind": "cron", "expression": "30 8 * * *", "tz": "UTC"}, cron("30 8 * * *")),
        (cron("30 8 * * *", tz="Asia/Tokyo"), cron("30 8 * * *", tz="Asia/Tokyo")),
        (cron("30 8 * * *"), cron("30 8 * * *")),
    ],
)
def test_a_rule_without_a_zone_keeps_the_zone(
    mine: ScopedSchedules, words: TriggerWords, expected: Trigger
) -> None:
    run(mine.create("n", cron("0 9 * * *", tz=BERLIN, fold="second"), action="send"))
    assert run(mine.update("n", trigger=words)).definition.trigger == expected


def test_a_single_time_does_not_inherit_fold_both(mine: ScopedSchedules) -> None:
    run(mine.create("n", cron("0 9 * * *", tz=BERLIN, fold="both"), action="send"))
    changed = run(mine.update("n", trigger={"kind": "once", "at": "2030-11-19T09:00"}))
    assert changed.definition.trigger == once("2030-11-19T09:00", tz=BERLIN)


def test_ensure_declares_the_zone_too(mine: ScopedSchedules) -> None:
    run(mine.create("n", cron("0 9 * * *", tz=BERLIN), action="send"))
    ensured = run(mine.ensure("n", "0 9 * * *", action="send"))
    assert ensured.schedule.definition.trigger == cron("0 9 * * *")
