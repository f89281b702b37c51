"""Tests of resource collections: accepted and refused values for four kinds of schema."""

import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.products import (
    Product,
    ProductDict,
    ProductModel,
    ProductStruct,
    collection_of,
    each_kind,
    stored,
)
from tests.samples import run

from duly.errors import InvalidInput
from duly.flows.collections import ResourceCollection
from duly.model.scopes import SYSTEM, user
from duly.stores.memory import MemoryStore


@each_kind
def test_a_value_survives_a_round_trip(
    store: MemoryStore, kind: type[Any], place: type[Any]
) -> None:
    mine = collection_of(store, kind).of(user("u"))
    value = kind(
        title="Lamp",
        project_id="p1",
        price=7,
        places=[place(platform="x", handle="@me"), place(platform="threads")],
        options={"a": 1, "b": None},
        owner=None,
    )
    created = run(mine.create("a", value))
    assert created.value == value
    assert run(mine.get("a")) == created


@each_kind
def test_none_is_stripped_where_absent_means_none(
    store: MemoryStore, kind: type[Any], place: type[Any]
) -> None:
    mine = collection_of(store, kind).of(user("u"))
    places = [place(platform="x", handle=None)]
    value = kind(title="Lamp", project_id=None, places=places, options={"b": None}, owner=None)
    assert run(mine.create("a", value)).value.__class__ is value.__class__
    body = stored(store)
    assert body["places"] == [{"platform": "x"}]
    assert not {"project_id", "projectId"} & body.keys()
    # Here a missing field would be read as another value, or a map would lose a key.
    assert body["owner"] is None
    assert body["options"] == {"b": None}


@pytest.mark.parametrize("kind", [Product, ProductStruct, ProductModel])
def test_none_stays_where_the_default_is_another(store: MemoryStore, kind: type[Any]) -> None:
    mine = collection_of(store, kind).of(user("u"))
    assert run(mine.create("a", kind(title="Lamp", price=None))).value.price is None
    assert run(mine.create("b", kind(title="Lamp"))).value.price == 5


@each_kind
@pytest.mark.parametrize(
    "words",
    [
        {"title": "Lamp", "owner": "me", "titel": "x"},
        {"title": "Lamp", "owner": "me", "places": [{"platform": "x", "enabled": True}]},
    ],
)
def test_unknown_fields_are_refused(
    store: MemoryStore, kind: type[Any], place: type[Any], words: dict[str, Any]
) -> None:
    products = collection_of(store, kind)
    for given_words in (words, json.dumps(words), json.dumps(words).encode()):
        with pytest.raises(InvalidInput, match=r"titel|enabled"):
            products.parse(given_words)


@each_kind
@pytest.mark.parametrize(
    "words", ['{"title": 5}', "{}", "[]", "{", "", '{"title": "x", "owner": "", "price": "much"}']
)
def test_what_does_not_fit_the_schema_is_refused(
    store: MemoryStore, kind: type[Any], place: type[Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=kind.__name__):
        collection_of(store, kind).parse(words)


@each_kind
def test_plain_input_is_parsed_into_a_value(
    store: MemoryStore, kind: type[Any], place: type[Any]
) -> None:
    made = collection_of(store, kind).parse({"title": "Lamp", "owner": "me"})
    expected = kind(title="Lamp", owner="me")
    assert made == expected


@each_kind
def test_a_value_of_wrong_types_is_refused_at_the_write(
    store: MemoryStore, kind: type[Any], place: type[Any]
) -> None:
    mine = collection_of(store, kind).of(user("u"))
    value = kind(title="Lamp", owner="me")
    if isinstance(value, dict):
        value["title"] = 5
    else:
        value.title = 5
    with pytest.raises(InvalidInput):
        run(mine.create("a", value))
    assert run(mine.count()) == 0


def test_extra_keys_of_a_typed_dict_are_refused(store: MemoryStore) -> None:
    mine = collection_of(store, ProductDict).of(user("u"))
    extra: Any = {"title": "Lamp", "owner": None, "colour": "red"}
    with pytest.raises(InvalidInput, match="colour"):
        run(mine.create("a", extra))


def test_another_kind_of_value_is_refused(store: MemoryStore) -> None:
    mine = collection_of(store, Product).of(user("u"))
    other: Any = {"title": "Lamp"}
    with pytest.raises(InvalidInput, match=r"Product, not dict; parse\(\)"):
        run(mine.create("a", other))


def test_a_model_is_written_by_name_and_read_from_outside_by_alias(store: MemoryStore) -> None:
    products = collection_of(store, ProductModel, indexes=["project_id"])
    run(products.of(user("u")).create("a", products.parse({"title": "L", "projectId": "p"})))
    assert stored(store)["project_id"] == "p"
    assert "shout" not in stored(store)
    (found,) = run(products.find_by("project_id", "p"))
    assert found.value.project_id == "p"


class Cat(msgspec.Struct, tag=True):
    lives: int


class Dog(msgspec.Struct, tag=True):
    tricks: list[str]


class Zoo(msgspec.Struct):
    star: Cat | Dog | None = None
    pairs: tuple[Cat, Dog] | None = None
    by_name: dict[str, Cat] = {}


def test_unions_and_nested_collections_are_checked_too(store: MemoryStore) -> None:
    zoos = collection_of(store, Zoo)
    cat, dog = {"type": "Cat", "lives": 9}, {"type": "Dog", "tricks": []}
    good = {"star": dog, "pairs": [cat, dog], "by_name": {"tom": cat}}
    assert zoos.parse(good) == Zoo(Dog([]), (Cat(9), Dog([])), {"tom": Cat(9)})
    for bad in (
        {"star": dog | {"lives": 1}},
        {"pairs": [cat | {"x": 1}, dog]},
        {"by_name": {"tom": cat | {"x": 1}}},
    ):
        with pytest.raises(InvalidInput, match="no field"):
            zoos.parse(good | bad)


@dataclass
class Tree:
    leaves: int
    children: list["Tree"] = field(default_factory=list)


def test_a_schema_may_contain_itself(store: MemoryStore) -> None:
    mine = collection_of(store, Tree).of(SYSTEM)
    tree = Tree(1, [Tree(2), Tree(3, [Tree(4)])])
    assert run(mine.create("oak", tree)).value == tree
    inner = {"leaves": 1, "children": [{"leaves": 1, "leafs": 2}]}
    with pytest.raises(InvalidInput, match=r"children\[0\].children\[0\] has no field 'leafs'"):
        collection_of(store, Tree).parse({"leaves": 1, "children": [inner]})


@pytest.mark.parametrize("schema", [dict, int, str, 5, list[int], "Product"])
def test_invalid_schemas_are_refused(store: MemoryStore, schema: Any) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        ResourceCollection(store, "products", schema)


@dataclass
class Loose:
    anything: Any = None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "\ud800", object(), {1: object()}])
def test_values_that_json_cannot_represent_are_refused(store: MemoryStore, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="JSON"):
        run(collection_of(store, Loose).of(SYSTEM).create("a", Loose(bad)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_untyped_values_are_not_changed(value: Any) -> None:
    mine = collection_of(MemoryStore(), Loose).of(SYSTEM)
    assert run(mine.create("a", Loose(value))).value == Loose(value)
