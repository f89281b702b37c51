"""Tests of the reference resolver, which dispatches a stored schedule of one scope only."""

import asyncio
from typing import Any

import pytest

from duly.dispatch.ids import DispatchId
from duly.dispatch.resolver import config_of, find_stored
from duly.flows.collections import ScheduleCollection
from duly.model.principals import Principal
from duly.model.schedule_writes import ScheduleKey
from duly.model.scopes import user
from duly.stores import MemoryStore
from duly.triggers import cron

TARGET = DispatchId("u_1/k", "u_1", "k")


class Reads(MemoryStore):
    """A store that records which schedules were read."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: list[ScheduleKey] = []

    async def get_schedule(self, key: ScheduleKey) -> Any:
        self.keys.append(key)
        return await super().get_schedule(key)


def test_a_stored_schedule_is_dispatched_as_it_is_stored() -> None:
    store = MemoryStore()
    mine = ScheduleCollection(store, "mail").of(user("u_1"), workspace="acme")
    rule = cron("0 9 * * MON", tz="Europe/Berlin")
    asyncio.run(mine.create("k", rule, action="send", input={"a": 1}))
    found = asyncio.run(find_stored(store, "mail", TARGET, None, None))
    assert found is not None
    config = config_of(found)
    assert (config.trigger, config.action, config.input) == (rule, "send", {"a": 1})
    assert config.principal == Principal("u_1", "acme")
    assert config.enabled


@pytest.mark.parametrize("owner", ["u_evil", "system", "workspace:acme"])
def test_only_the_scope_that_the_id_names_is_read(owner: str) -> None:
    store = Reads()
    asyncio.run(ScheduleCollection(store, "mail").of(user("u_1")).create("k", rule(), action="s"))
    target = DispatchId(f"{owner}/k", owner, "k")
    assert asyncio.run(find_stored(store, "mail", target, None, None)) is None
    assert "user:u_1" not in {key.scope for key in store.keys}


def test_a_gateway_with_a_principal_does_not_read_another_scope() -> None:
    store = Reads()
    asyncio.run(ScheduleCollection(store, "mail").of(user("u_1")).create("k", rule(), action="s"))
    store.keys.clear()
    assert asyncio.run(find_stored(store, "mail", TARGET, None, Principal("u_2"))) is None
    assert store.keys == []
    assert asyncio.run(find_stored(store, "mail", TARGET, None, Principal("u_1"))) is not None


def rule() -> str:
    return "0 9 * * *"
