"""Tests of resource collections: sparse indexes, hooks, and documents of other releases."""

import asyncio
import enum
import json
from dataclasses import dataclass
from typing import Any

import pytest
from tests.products import (
    Product,
    ProductStruct,
    collection_of,
    each_kind,
    stored,
)
from tests.samples import run

from duly.errors import Conflict, InvalidInput
from duly.flows.collections import BeforeWrite, ResourceCollection, ScopedCollection
from duly.model.documents import DocumentWrite, Written
from duly.model.scopes import SYSTEM, user
from duly.stores.memory import MemoryStore


@pytest.fixture
def mine(store: MemoryStore) -> ScopedCollection[Product]:
    return collection_of(store, Product).of(user("u"))


# Sparse indexes.


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Indexed:
    text: str | None = None
    number: int | None = None
    flag: bool | None = None
    colour: Colour | None = None
    other: Any = None


NAMES = ["text", "number", "flag", "colour", "other"]


def found_by(things: ResourceCollection[Any], attribute: str, value: Any) -> list[str]:
    return [f"{each.scope} {each.name}" for each in run(things.find_by(attribute, value))]


def test_a_value_finds_its_owner_whoever_that_is(store: MemoryStore) -> None:
    products = collection_of(store, Product, indexes=["project_id"])
    run(products.of(user("u")).create("a", Product("x", project_id="p1")))
    run(products.of(user("v")).create("b", Product("x", project_id="p2")))
    run(products.of(user("v")).create("c", Product("x", project_id="p1")))
    run(products.of(user("v")).create("d", Product("x")))
    assert found_by(products, "project_id", "p1") == ["user:u a", "user:v c"]
    assert found_by(products, "project_id", "p9") == []
    assert len(run(products.find_by("project_id", "p1", limit=1))) == 1


def test_none_and_delete_leave_the_index(store: MemoryStore) -> None:
    products = collection_of(store, Product, indexes=["project_id"])
    mine = products.of(user("u"))
    run(mine.create("a", Product("x", project_id="p1")))
    run(mine.update("a", Product("x", project_id=None)))
    assert found_by(products, "project_id", "p1") == []
    run(mine.update("a", Product("x", project_id="p2")))
    assert found_by(products, "project_id", "p2") == ["user:u a"]
    run(mine.upsert("a", Product("x")))
    assert found_by(products, "project_id", "p2") == []
    run(mine.upsert("a", Product("x", project_id="p3")))
    run(mine.delete("a"))
    assert found_by(products, "project_id", "p3") == []


def test_types_are_distinguished(store: MemoryStore) -> None:
    things = collection_of(store, Indexed, indexes=NAMES)
    mine = things.of(SYSTEM)
    for name, other in {"text": "1", "number": 1, "flag": True, "odd": "b:true"}.items():
        run(mine.create(name, Indexed(other=other)))
    assert found_by(things, "other", "1") == ["system text"]
    assert found_by(things, "other", 1) == ["system number"]
    assert found_by(things, "other", True) == ["system flag"]  # noqa: FBT003
    assert found_by(things, "other", "b:true") == ["system odd"]


def test_what_is_text_in_json_is_indexed_as_text(store: MemoryStore) -> None:
    things = collection_of(store, Indexed, indexes=NAMES)
    run(things.of(SYSTEM).create("a", Indexed(colour=Colour.RED)))
    assert found_by(things, "colour", "red") == found_by(things, "colour", Colour.RED)
    assert found_by(things, "colour", "red") == ["system a"]


def test_defaults_are_indexed(store: MemoryStore) -> None:
    things = collection_of(store, ProductStruct, indexes=["price", "project_id"])
    run(things.of(SYSTEM).create("a", ProductStruct("x", project_id="p")))
    assert "price" not in stored(store, scope="system")
    assert found_by(things, "price", 5) == ["system a"]
    assert found_by(things, "project_id", "p") == ["system a"]


@pytest.mark.parametrize("bad", [1.5, [1], {"a": 1}, "x" * 511, "é" * 256, "a\0b"])
def test_what_cannot_be_indexed_is_refused(store: MemoryStore, bad: Any) -> None:
    things = collection_of(store, Indexed, indexes=NAMES)
    with pytest.raises(InvalidInput, match="other"):
        run(things.of(SYSTEM).create("a", Indexed(other=bad)))
    with pytest.raises(InvalidInput, match="other"):
        run(things.find_by("other", bad))
    assert run(things.of(SYSTEM).count()) == 0
    run(things.of(SYSTEM).create("a", Indexed(other="x" * 510)))


def test_only_declared_indexes_can_be_asked(store: MemoryStore) -> None:
    things = collection_of(store, Indexed, indexes=["text"])
    with pytest.raises(InvalidInput, match="no index 'number'"):
        run(things.find_by("number", 1))
    with pytest.raises(InvalidInput, match="did you mean 'text'"):
        run(things.find_by("texts", "1"))
    nothing: Any = None
    with pytest.raises(InvalidInput, match="not in the index"):
        run(things.find_by("text", nothing))
    with pytest.raises(InvalidInput, match="did you mean 'number'"):
        collection_of(store, Indexed, indexes=["nunber"])


# Hooks.


def test_hooks_see_the_write_and_may_refuse_it(store: MemoryStore) -> None:
    seen: list[tuple[str, str, Product | None, Product | None]] = []

    def remember(write: BeforeWrite[Product]) -> None:
        seen.append((write.kind, f"{write.scope} {write.name}", write.old, write.new))

    async def refuse_rude_titles(write: BeforeWrite[Product]) -> None:
        await asyncio.sleep(0)
        if write.new is not None and write.new.title == "rude":
            raise InvalidInput("mind your words")

    mine = collection_of(store, Product, hooks=[remember, refuse_rude_titles]).of(user("u"))
    lamp, desk = Product("Lamp"), Product("Desk")
    run(mine.create("a", lamp))
    run(mine.update("a", desk))
    run(mine.upsert("a", lamp))
    run(mine.upsert("b", desk))
    assert run(mine.delete("a"))
    assert not run(mine.delete("a"))
    assert seen == [
        ("create", "user:u a", None, lamp),
        ("update", "user:u a", lamp, desk),
        ("update", "user:u a", desk, lamp),
        ("create", "user:u b", None, desk),
        ("delete", "user:u a", lamp, None),
    ]
    for call in (
        mine.create("c", Product("rude")),
        mine.update("b", Product("rude")),
        mine.upsert("b", Product("rude")),
        mine.get_or_create("c", Product("rude")),
    ):
        with pytest.raises(InvalidInput, match="mind your words"):
            run(call)
    found = run(mine.get("b"))
    assert found is not None
    assert (found.value, found.version, run(mine.count())) == (desk, 1, 1)


def test_a_hook_may_refuse_a_delete(store: MemoryStore) -> None:
    def keep(write: BeforeWrite[Product]) -> None:
        if write.kind == "delete":
            raise Conflict(f"{write.name} is in use")

    mine = collection_of(store, Product, hooks=[keep]).of(SYSTEM)
    run(mine.create("a", Product("x")))
    with pytest.raises(Conflict, match="in use"):
        run(mine.delete("a"))
    assert run(mine.count()) == 1


def test_a_hook_cannot_change_what_is_written(store: MemoryStore) -> None:
    def meddle(write: BeforeWrite[Product]) -> None:
        assert write.new is not None
        write.new.title = "meddled"

    mine = collection_of(store, Product, hooks=[meddle]).of(SYSTEM)
    assert run(mine.create("a", Product("Lamp"))).value.title == "Lamp"


def test_a_hook_is_not_asked_about_nonsense(store: MemoryStore) -> None:
    def fail(write: BeforeWrite[Product]) -> None:
        pytest.fail("asked")

    wrong: Any = Product(5)  # type: ignore[arg-type]
    with pytest.raises(InvalidInput, match="str"):
        run(collection_of(store, Product, hooks=[fail]).of(SYSTEM).create("a", wrong))


# Documents of other releases.


def put_raw(store: MemoryStore, **fields: Any) -> None:
    write = DocumentWrite("products", "system", "a", "res_1", json.dumps(fields))
    assert isinstance(run(store.put_document(write)), Written)


@each_kind
def test_a_field_of_a_newer_release_is_read_over_and_kept(
    store: MemoryStore, kind: type[Any], place: type[Any]
) -> None:
    put_raw(store, title="Lamp", owner="me", colour={"r": 1})
    mine = collection_of(store, kind).of(SYSTEM)
    found = run(mine.get("a"))
    assert found is not None
    assert found.value == kind(title="Lamp", owner="me")
    run(mine.update("a", kind(title="Desk", owner="me")))
    assert stored(store, scope="system")["colour"] == {"r": 1}
    run(mine.upsert("a", kind(title="Desk", owner="me")))
    assert "colour" not in stored(store, scope="system")


def test_a_document_that_does_not_fit_any_more_is_named(store: MemoryStore) -> None:
    put_raw(store, name="Lamp")
    with pytest.raises(InvalidInput, match="products/a of system, as stored: not a Product"):
        run(collection_of(store, Product).of(SYSTEM).get("a"))
