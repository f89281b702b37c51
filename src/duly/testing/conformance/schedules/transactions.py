"""The suite of joined transactions: schedules that come and go with the caller's own writes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest

from duly.errors import InvalidInput
from duly.model.documents import ABSENT, Refused
from duly.model.schedule_writes import ScheduleWritten
from duly.stores.port import Store
from duly.testing.conformance.samples import a_definition, a_key, a_write, put
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import every

Begin = Callable[[], AbstractContextManager[Any]]


class ChangedMind(Exception):
    """The caller's reason to roll back."""


class TransactionConformance(StoreConformance):
    """put_schedules_in()."""

    @pytest.fixture
    def begin(self, store: Store) -> Begin:
        """To be given by the subclass: begins a caller's transaction on the test's database.

        The block's end commits it; an exception in the block rolls it back.
        """
        if store.capabilities.joins_transaction:
            raise NotImplementedError("the subclass gives a `begin` fixture")
        pytest.skip("capability joins_transaction is missing: there is nothing to join")

    @case
    async def test_commits_with_the_caller(self, store: Store, begin: Begin) -> None:
        with begin() as transaction:
            (answer,) = store.put_schedules_in(transaction, [a_write()])
            assert isinstance(answer, ScheduleWritten)
        assert await store.get_schedule(a_key()) == answer.schedule
        assert await store.list_rows() == [answer.row]
        assert len(await store.schedule_events(answer.schedule.id)) == 1

    @case
    async def test_rolls_back_with_the_caller(self, store: Store, begin: Begin) -> None:
        async def change_mind() -> None:
            with begin() as transaction:
                store.put_schedules_in(transaction, [a_write()])
                raise ChangedMind

        with pytest.raises(ChangedMind):
            await change_mind()
        assert await store.get_schedule(a_key()) is None
        assert await store.list_rows() == []

    @case
    async def test_refusal_aborts_nothing(self, store: Store, begin: Begin) -> None:
        await put(store, a_write("a"))
        with begin() as transaction:
            writes = [a_write("a", id="id-x", expected_version=ABSENT)]
            assert store.put_schedules_in(transaction, writes) == [Refused("exists", 1)]
            store.put_schedules_in(transaction, [a_write("b")])
        assert await store.get_schedule(a_key("b")) is not None

    @case
    async def test_invalid_input_aborts_nothing(self, store: Store, begin: Begin) -> None:
        bad = a_write("bad", a_definition(every(seconds=1)))
        with begin() as transaction:
            with pytest.raises(InvalidInput):
                store.put_schedules_in(transaction, [a_write("a"), bad])
            store.put_schedules_in(transaction, [a_write("b")])
        assert await store.get_schedule(a_key("a")) is None
        assert await store.get_schedule(a_key("b")) is not None
