"""Resource collections: four kinds of schema, versions, hooks, and sparse indexes."""

import asyncio
import enum
import json
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, NotRequired, TypedDict, TypeVar

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duly.errors import Conflict, InvalidInput, NotFound
from duly.resources import (
    BeforeWrite,
    CollectionLimits,
    Resource,
    ResourceCollection,
    ScopedCollection,
)
from duly.scopes import SYSTEM, user, workspace
from duly.store import DocumentWrite, Refused, Written
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock

NOW = datetime(2026, 5, 4, 7, 0, tzinfo=UTC)
T = TypeVar("T")


def run(asked: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(asked)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW)


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock)


# The same product in four kinds.


@dataclass
class Place:
    platform: str
    handle: str | None = None


@dataclass
class Product:
    title: str
    project_id: str | None = None
    price: int | None = 5
    places: list[Place] = field(default_factory=list)
    options: dict[str, int | None] = field(default_factory=dict)
    owner: str | None = field(default_factory=lambda: "nobody")


class PlaceStruct(msgspec.Struct):
    platform: str
    handle: str | None = None


class ProductStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    title: str
    project_id: str | None = None
    price: int | None = 5
    places: list[PlaceStruct] = []
    options: dict[str, int | None] = {}
    owner: str | None = msgspec.field(default_factory=lambda: "nobody")


class PlaceDict(TypedDict):
    platform: str
    handle: NotRequired[str | None]


class ProductDict(TypedDict):
    title: str
    project_id: NotRequired[str | None]
    price: NotRequired[int | None]
    places: NotRequired[list[PlaceDict]]
    options: NotRequired[dict[str, int | None]]
    owner: str | None


class PlaceModel(pydantic.BaseModel):
    platform: str
    handle: str | None = None


class ProductModel(pydantic.BaseModel):
    title: str
    project_id: str | None = pydantic.Field(default=None, alias="projectId")
    price: int | None = 5
    places: list[PlaceModel] = []
    options: dict[str, int | None] = {}
    owner: str | None = pydantic.Field(default_factory=lambda: "nobody")

    model_config = pydantic.ConfigDict(validate_by_name=True, serialize_by_alias=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.title.upper()


KINDS: list[tuple[type[Any], type[Any]]] = [
    (Product, Place),
    (ProductStruct, PlaceStruct),
    (ProductDict, PlaceDict),
    (ProductModel, PlaceModel),
]
each_kind = pytest.mark.parametrize(("kind", "place"), KINDS, ids=lambda kind: kind.__name__)


def collection_of(store: MemoryStore, kind: type[T], **options: Any) -> ResourceCollection[T]:
    return ResourceCollection(store, "products", kind, **options)


def stored(store: MemoryStore, name: str = "a", scope: str = "user:u") -> dict[str, Any]:
    document = run(store.get_document("products", scope, name))
    assert document is not None
    body: dict[str, Any] = json.loads(document.body)
    return body


@each_kind
def test_a_value_comes_back_as_it_went(
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
    # Here an absent field would read as something else, or a map would lose a key.
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
def test_words_from_outside_become_a_value(
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
def test_what_is_no_schema_is_refused(store: MemoryStore, schema: Any) -> None:
    with pytest.raises(InvalidInput, match="schema"):
        ResourceCollection(store, "products", schema)


@dataclass
class Loose:
    anything: Any = None


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "\ud800", object(), {1: object()}])
def test_what_json_cannot_hold_is_refused(store: MemoryStore, bad: Any) -> None:
    with pytest.raises(InvalidInput, match="JSON"):
        run(collection_of(store, Loose).of(SYSTEM).create("a", Loose(bad)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab"), inner, max_size=3),
    max_leaves=6,
)


@given(JSON)
def test_what_is_not_typed_is_not_touched(value: Any) -> None:
    mine = collection_of(MemoryStore(), Loose).of(SYSTEM)
    assert run(mine.create("a", Loose(value))).value == Loose(value)


# The calls.


@pytest.fixture
def mine(store: MemoryStore) -> ScopedCollection[Product]:
    return collection_of(store, Product).of(user("u"))


def test_a_resource_knows_where_it_stands(
    mine: ScopedCollection[Product], clock: ManualClock
) -> None:
    made = run(mine.create("a", Product("Lamp")))
    assert isinstance(made, Resource)
    assert (made.scope, made.name, made.version) == (user("u"), "a", 1)
    assert made.id.startswith("res_")
    assert made.created_at == made.updated_at == NOW
    clock.advance(minutes=5)
    changed = run(mine.update("a", replace(made.value, title="Desk")))
    assert (changed.id, changed.version, changed.value.title) == (made.id, 2, "Desk")
    assert (changed.created_at, changed.updated_at) == (NOW, clock.now())


def test_absent_things(mine: ScopedCollection[Product]) -> None:
    assert run(mine.get("ghost")) is None
    assert run(mine.delete("ghost")) is False
    with pytest.raises(NotFound, match="products/ghost of user:u does not exist"):
        run(mine.update("ghost", Product("x")))
    with pytest.raises(NotFound):
        run(mine.update("ghost", Product("x"), version=3))


def test_create_does_not_replace(mine: ScopedCollection[Product]) -> None:
    run(mine.create("a", Product("Lamp")))
    with pytest.raises(Conflict, match="exists already, at version 1"):
        run(mine.create("a", Product("Desk")))
    found = run(mine.get("a"))
    assert found is not None
    assert found.value.title == "Lamp"


def test_get_or_create(mine: ScopedCollection[Product]) -> None:
    first = run(mine.get_or_create("a", Product("Lamp")))
    assert run(mine.get_or_create("a", Product("Desk"))) == first
    assert run(mine.get_or_create("b", lambda: Product("Chair"))).value.title == "Chair"
    wrong: Any = {"title": "x"}
    with pytest.raises(InvalidInput, match="not dict"):
        run(mine.get_or_create("c", wrong))


def test_upsert_lets_the_last_write_win(mine: ScopedCollection[Product]) -> None:
    assert run(mine.upsert("a", Product("Lamp"))).version == 1
    assert run(mine.upsert("a", Product("Desk"))).version == 2
    assert run(mine.count()) == 1


def test_a_change_is_made_of_what_is_there(mine: ScopedCollection[Product]) -> None:
    run(mine.create("a", Product("Lamp", price=1)))
    changed = run(mine.update("a", lambda old: replace(old, price=(old.price or 0) + 1)))
    assert (changed.value.title, changed.value.price) == ("Lamp", 2)


def test_a_change_must_return_the_value(mine: ScopedCollection[Product]) -> None:
    run(mine.create("a", Product("Lamp")))

    def forgets(old: Product) -> Any:
        old.title = "Desk"

    with pytest.raises(InvalidInput, match="must return"):
        run(mine.update("a", forgets))


def test_a_stale_version_is_a_conflict(mine: ScopedCollection[Product]) -> None:
    run(mine.create("a", Product("Lamp")))
    run(mine.update("a", Product("Desk"), version=1))
    with pytest.raises(Conflict, match="is at version 2, not 1"):
        run(mine.update("a", Product("Chair"), version=1))
    with pytest.raises(Conflict, match="is at version 2, not 1"):
        run(mine.delete("a", version=1))
    assert run(mine.delete("a", version=2)) is True


def test_a_thing_made_again_has_another_id(mine: ScopedCollection[Product]) -> None:
    first = run(mine.create("a", Product("Lamp")))
    assert run(mine.delete("a"))
    again = run(mine.create("a", Product("Lamp")))
    assert again.version == 1
    assert again.id != first.id


def test_pages(mine: ScopedCollection[Product]) -> None:
    for name in ("b2", "a", "b1", "c"):
        run(mine.create(name, Product(name)))
    assert [each.name for each in run(mine.list())] == ["a", "b1", "b2", "c"]
    assert [each.name for each in run(mine.list(limit=2))] == ["a", "b1"]
    assert [each.name for each in run(mine.list(after="b1", limit=2))] == ["b2", "c"]
    assert [each.name for each in run(mine.list(prefix="b"))] == ["b1", "b2"]
    assert run(mine.count()) == 4
    for limit in (0, 1_001, -1):
        with pytest.raises(InvalidInput, match="limit"):
            run(mine.list(limit=limit))


def test_scopes_do_not_see_each_other(store: MemoryStore) -> None:
    products = collection_of(store, Product)
    scopes = [user("u"), user("v"), workspace("u"), SYSTEM]
    for scope in scopes:
        run(products.of(scope).create("a", Product(str(scope))))
    for scope in scopes:
        found = run(products.of(scope).get("a"))
        assert found is not None
        assert found.value.title == str(scope)
        assert run(products.of(scope).count()) == 1
    assert not hasattr(products, "list")


def test_two_collections_do_not_see_each_other(store: MemoryStore) -> None:
    run(ResourceCollection(store, "one", Product).of(SYSTEM).create("a", Product("x")))
    assert run(ResourceCollection(store, "two", Product).of(SYSTEM).get("a")) is None


# Races.


class Busy(MemoryStore):
    """Somebody else writes just before each of the next few writes."""

    rivals = 0

    async def put_document(self, write: DocumentWrite, *more: Any) -> Written | Refused:
        if self.rivals:
            self.rivals -= 1
            rival = DocumentWrite(write.collection, write.scope, write.name, "r", '{"title":"r"}')
            await super().put_document(rival)
        return await super().put_document(write, *more)


def test_a_change_is_tried_again_and_not_for_ever() -> None:
    store = Busy(ManualClock(NOW))
    mine = collection_of(store, Product).of(SYSTEM)
    run(mine.create("a", Product("Lamp")))
    store.rivals = 9
    changed = run(mine.update("a", lambda old: replace(old, title=old.title + "!")))
    assert changed.value.title == "r!"
    store.rivals = 10
    with pytest.raises(Conflict, match="10 times"):
        run(mine.update("a", Product("Desk")))
    store.rivals = 1
    with pytest.raises(Conflict, match="not"):
        run(mine.update("a", Product("Desk"), version=changed.version + 10))


def test_get_or_create_takes_what_a_rival_made() -> None:
    store = Busy(ManualClock(NOW))
    store.rivals = 1
    assert run(collection_of(store, Product).of(SYSTEM).get_or_create("a", Product("x"))).value == (
        Product("r")
    )


# Names and limits.


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "x" * 129, "\ud800", None])
def test_names_that_could_not_stand_in_a_url_are_refused(
    mine: ScopedCollection[Product], name: Any
) -> None:
    for call in (
        mine.get(name),
        mine.create(name, Product("x")),
        mine.upsert(name, Product("x")),
        mine.update(name, Product("x")),
        mine.get_or_create(name, Product("x")),
        mine.delete(name),
    ):
        with pytest.raises(InvalidInput, match="products name"):
            run(call)


def test_a_collection_may_have_a_pattern_of_names(store: MemoryStore) -> None:
    limits = CollectionLimits(name_pattern="[a-z]+")
    mine = collection_of(store, Product, limits=limits).of(SYSTEM)
    run(mine.create("lamp", Product("x")))
    for name in ("Lamp", "lamp1", "lamp\n", "lamp lamp"):
        with pytest.raises(InvalidInput):
            run(mine.create(name, Product("x")))


def test_a_scope_may_be_full(store: MemoryStore) -> None:
    products = collection_of(store, Product, limits=CollectionLimits(per_scope=2))
    mine = products.of(user("u"))
    run(mine.create("a", Product("x")))
    run(mine.create("b", Product("x")))
    for call in (
        mine.create("c", Product("x")),
        mine.upsert("c", Product("x")),
        mine.get_or_create("c", Product("x")),
    ):
        with pytest.raises(Conflict, match="user:u may have 2 products; delete one first"):
            run(call)
    run(mine.upsert("a", Product("y")))
    run(products.of(user("v")).create("c", Product("x")))
    run(mine.delete("a"))
    run(mine.create("c", Product("x")))


def test_a_body_has_a_size(store: MemoryStore) -> None:
    products = collection_of(store, Product)
    with pytest.raises(InvalidInput, match="bytes as JSON; allowed: 262144"):
        run(products.of(SYSTEM).create("a", Product("x" * 262_144)))


@pytest.mark.parametrize(
    "bad",
    [{"name_pattern": "("}, {"per_scope": 0}, {"body_bytes": 0}, {"body_bytes": 262_145}],
)
def test_limits_are_checked(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        CollectionLimits(**bad)


@pytest.mark.parametrize("name", ["schedules", "", "A", "a/b", "a" * 65])
def test_names_of_collections(store: MemoryStore, name: str) -> None:
    with pytest.raises(InvalidInput, match="collection"):
        ResourceCollection(store, name, Product)


def test_a_scope_is_a_scope(store: MemoryStore) -> None:
    text: Any = "user:u"
    with pytest.raises(InvalidInput, match="scope 'user:u'"):
        collection_of(store, Product).of(text)


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


def test_types_are_told_apart(store: MemoryStore) -> None:
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
