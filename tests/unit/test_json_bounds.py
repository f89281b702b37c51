"""Tests of JSON limits: a value that is too large is refused before all of it is read."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, field_serializer

from duly.errors import InvalidInput
from duly.flows.client import Client
from duly.flows.collections import ResourceCollection, ScheduleCollection
from duly.flows.flow import Flow
from duly.model.json_bounds import MAX_JSON_DEPTH, check_json_bounds, check_json_text
from duly.model.schedules import Limits
from duly.model.scopes import user
from duly.stores import MemoryStore
from duly.triggers import cron

flow = Flow("mail")


@flow.action
def send(input: dict[str, Any]) -> None:  # noqa: A002
    pass


@flow.action
def anything(input: Any) -> None:  # noqa: A002
    pass


@dataclass
class Note:
    text: str
    tags: Any = None


class Counting(dict[str, Any]):
    """A dict that counts how many of its entries were read."""

    reads = 0

    def items(self) -> Any:
        return ((key, self.count(value)) for key, value in super().items())

    def values(self) -> Any:
        return (self.count(value) for value in super().values())

    def __iter__(self) -> Iterator[str]:
        return (self.count(key) for key in super().__iter__())

    def count(self, value: Any) -> Any:
        self.reads += 1
        return value


def nested(depth: int) -> object:
    value: object = 1
    for number in range(depth):
        value = [value] if number % 2 else {"a": value}
    return value


def many(entries: int = 100_000) -> Counting:
    return Counting({f"key-{number}": number for number in range(entries)})


def test_too_many_entries_are_not_read() -> None:
    large = many()
    with pytest.raises(InvalidInput, match="more than 262144 bytes as JSON; allowed: 262144"):
        check_json_bounds("input", large, 262_144)
    assert large.reads == 0


def test_reading_stops_at_the_limit() -> None:
    tables = [many(1_000) for _ in range(100)]
    with pytest.raises(InvalidInput):
        check_json_bounds("input", tables, 20_000)
    assert sum(each.reads for each in tables) < 10_000
    assert tables[-1].reads == 0


def entry_points() -> dict[str, Any]:
    store = MemoryStore()
    client = Client(store, actions={each.name: each for each in flow.actions.values()})
    limits = Limits(input_bytes=5_000)
    schedules = ScheduleCollection(store, "mail", limits=limits).of(user("ada"))
    fitted = ScheduleCollection(store, "mail", fit=flow.fit).of(user("ada"))
    notes = ResourceCollection(store, "notes", Note)

    async def batch(value: object) -> None:
        await client.enqueue_many("other.action", [1, value])

    async def parse(value: Any) -> None:
        notes.parse(value)

    return {
        "enqueue": lambda value: client.enqueue("other.action", value),
        "enqueue with a type": lambda value: client.enqueue(send, value),
        "enqueue of anything": lambda value: client.enqueue(anything, value),
        "enqueue_many": batch,
        "metadata": lambda value: client.enqueue("other.action", metadata=value),
        "create": lambda value: schedules.create(
            "a", cron("0 9 * * *"), action="send", input=value
        ),
        "create by an action": lambda value: fitted.create(
            "a", cron("0 9 * * *"), action="send", input=value
        ),
        "document": lambda value: notes.of(user("ada")).create("a", Note("x", value)),
        "parse": parse,
    }


@pytest.mark.parametrize("entry", entry_points())
def test_every_entry_point_stops_at_the_limit(entry: str) -> None:
    large = many()
    with pytest.raises(InvalidInput, match="allowed:"):
        asyncio.run(entry_points()[entry](large))
    assert large.reads == 0


@pytest.mark.parametrize("entry", entry_points())
def test_every_entry_point_has_the_same_depth_limit(entry: str) -> None:
    deep: Any = nested(MAX_JSON_DEPTH + 1)
    with pytest.raises(InvalidInput, match=f"nested more than {MAX_JSON_DEPTH} levels deep"):
        asyncio.run(entry_points()[entry](deep if isinstance(deep, dict) else {"a": deep}))


def test_the_deepest_value_is_stored_and_read() -> None:
    async def round_trip() -> None:
        store = MemoryStore()
        client = Client(store, actions={anything.name: anything})
        value = nested(MAX_JSON_DEPTH)
        for action in ("other.action", anything):
            job = await store.get_job((await client.enqueue(action, value)).job_id)
            assert job is not None
            assert msgspec.json.decode(job.input) == value

    asyncio.run(round_trip())


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(InvalidInput, match="nested"):
        check_json_bounds("input", loop, 262_144)


def test_text_is_refused_before_it_is_decoded() -> None:
    check_json_text("body", "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH)
    check_json_text("body", '"' + "[" * 10_000 + '"')
    check_json_text("body", '["\\"' + "[" * 10_000 + '"]')
    check_json_text("body", "[" + "[]," * 1_000 + "[]]")
    for text in ("[" * 200, b'{"a":' * 200, '["\\\\",' * 200, "[" * 1_000_000):
        with pytest.raises(InvalidInput, match="nested"):
            check_json_text("body", text)


class Model(BaseModel):
    text: str
    hidden: str = Field(default="", exclude=True)


class Shortened(BaseModel):
    text: str

    @field_serializer("text")
    def shorten(self, text: str) -> str:
        return text[:1]


def test_fields_that_a_model_does_not_write_do_not_count() -> None:
    with pytest.raises(InvalidInput):
        check_json_bounds("input", Model(text="x" * 1_000), 500)
    check_json_bounds("input", Model(text="", hidden="x" * 1_000), 500)
    check_json_bounds("input", Shortened(text="x" * 1_000), 500)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
)


@given(JSON)
def test_the_bound_is_never_above_the_size(value: object) -> None:
    check_json_bounds("input", value, len(msgspec.json.encode(value)))
