"""The conformance suite for schedules written in a caller's transaction."""

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
    """An exception of the caller that rolls the transaction back."""


class TransactionConformance(StoreConformance):
    """The suite for put_schedules_in()."""

    @pytest.fixture
    def begin(self, store: Store) -> Begin:
        """Return a context manager for a caller's transaction on the test's database; override it.

        The end of the block commits; an exception rolls back.
        """
        if store.capabilities.joins_transaction:
            raise NotImplementedError("the suite's subclass must define a `begin` fixture")
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
