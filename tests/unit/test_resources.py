"""Tests of resource collections: the calls, versions, races, names and limits."""

from dataclasses import replace
from typing import Any

import pytest
from tests.products import Product, collection_of
from tests.samples import NOW, run

from duly.errors import Conflict, InvalidInput, NotFound
from duly.flows.collections import CollectionLimits, Resource, ResourceCollection, ScopedCollection
from duly.model.documents import DocumentWrite, Refused, Written
from duly.model.scopes import SYSTEM, user, workspace
from duly.stores.memory import MemoryStore
from duly.testing import ManualClock


@pytest.fixture
def mine(store: MemoryStore) -> ScopedCollection[Product]:
    return collection_of(store, Product).of(user("u"))


def test_a_resource_has_its_scope_name_and_version(
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


def test_missing_resources(mine: ScopedCollection[Product]) -> None:
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


def test_a_change_function_gets_the_current_value(mine: ScopedCollection[Product]) -> None:
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


def test_a_resource_created_again_has_another_id(mine: ScopedCollection[Product]) -> None:
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
    """A store in which another write happens just before each of the next few writes."""

    rivals = 0

    async def put_document(self, write: DocumentWrite, *more: Any) -> Written | Refused:
        if self.rivals:
            self.rivals -= 1
            rival = DocumentWrite(write.collection, write.scope, write.name, "r", '{"title":"r"}')
            await super().put_document(rival)
        return await super().put_document(write, *more)


def test_a_change_is_retried_a_limited_number_of_times() -> None:
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


def test_get_or_create_returns_what_another_caller_created() -> None:
    store = Busy(ManualClock(NOW))
    store.rivals = 1
    assert run(collection_of(store, Product).of(SYSTEM).get_or_create("a", Product("x"))).value == (
        Product("r")
    )


# Names and limits.


@pytest.mark.parametrize("name", ["", ".", "..", "a\nb", "x" * 129, "\ud800", None])
def test_names_that_are_invalid_in_a_url_are_refused(
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


def test_the_limit_of_a_scope(store: MemoryStore) -> None:
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


def test_the_size_of_a_body_is_limited(store: MemoryStore) -> None:
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


def test_scopes_are_checked(store: MemoryStore) -> None:
    text: Any = "user:u"
    with pytest.raises(InvalidInput, match="scope 'user:u'"):
        collection_of(store, Product).of(text)
