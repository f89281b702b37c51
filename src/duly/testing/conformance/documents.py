"""The conformance suite for documents: versions, refusals, pages, sparse indexes."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from duly.errors import InvalidInput
from duly.model.documents import ABSENT, Document, DocumentWrite, Refused, Written
from duly.model.index import MAX_PAGE
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import MINUTE_MS, START_MS
from duly.testing.conformance.suite import StoreConformance, case

THINGS = "products"
SCOPE = "user:ada"
Entries = tuple[tuple[str, str], ...]


def a_document(name: str = "a", **fields: Any) -> DocumentWrite:
    """Return a write of a small document."""
    values: dict[str, Any] = {
        "collection": THINGS,
        "scope": SCOPE,
        "name": name,
        "id": f"doc-{name}",
        "body": '{"a":1}',
    }
    return DocumentWrite(**values | fields)


async def written(store: Store, write: DocumentWrite) -> Written:
    """Return the answer to a write that must be accepted."""
    answer = await store.put_document(write)
    assert isinstance(answer, Written), answer
    return answer


async def names_found(store: Store, attribute: str, value: str, **most: int) -> list[str]:
    """Return the names of documents found by an attribute."""
    found = await store.find_documents(THINGS, attribute, value, **most)
    return [document.name for document in found]


class DocumentConformance(StoreConformance):
    """The suite for documents."""

    @case
    async def test_absent_documents_are_none(self, store: Store) -> None:
        assert await store.get_document(THINGS, SCOPE, "a") is None
        assert await store.list_documents(THINGS, SCOPE) == []
        assert await store.count_documents(THINGS, SCOPE) == 0
        assert await store.find_documents(THINGS, "attribute", "value") == []

    @case
    async def test_documents_come_back_as_they_went(self, store: Store) -> None:
        body = json.dumps({"text": "Grüße 🕰", "deep": [1, 2.5, None, {"x": True}]})
        answer = await written(store, a_document("name/with %_ ß", body=body))
        assert answer.created
        document = answer.document
        assert json.loads(document.body) == json.loads(body)
        assert document == Document(
            THINGS,
            SCOPE,
            "name/with %_ ß",
            "doc-name/with %_ ß",
            document.body,
            1,
            START_MS,
            START_MS,
        )
        assert await store.get_document(THINGS, SCOPE, "name/with %_ ß") == document

    @case
    async def test_every_write_is_a_new_version(self, store: Store, clock: ManualClock) -> None:
        await written(store, a_document())
        clock.advance(minutes=1)
        answer = await written(store, a_document(id="ignored", body='{"a":2}'))
        assert not answer.created
        document = answer.document
        assert (document.id, document.version) == ("doc-a", 2)
        assert json.loads(document.body) == {"a": 2}
        assert (document.created_at_ms, document.updated_at_ms) == (
            START_MS,
            START_MS + MINUTE_MS,
        )
        assert await store.get_document(THINGS, SCOPE, "a") == document
        same = await written(store, a_document(body='{"a":2}'))
        assert same.document.version == 3

    @case
    async def test_new_means_new(self, store: Store) -> None:
        write = a_document(expected_version=ABSENT)
        assert (await written(store, write)).created
        assert await store.put_document(write) == Refused("exists", 1)

    @case
    async def test_compare_and_set(self, store: Store) -> None:
        assert await store.put_document(a_document(expected_version=1)) == Refused("absent", 0)
        first = await written(store, a_document())
        await written(store, a_document(expected_version=1))
        stale = a_document(body='{"a":9}', entries=(("k", "v"),), expected_version=1)
        assert await store.put_document(stale) == Refused("stale", 2)
        found = await store.get_document(THINGS, SCOPE, "a")
        assert found is not None
        assert (found.version, json.loads(found.body)) == (2, json.loads(first.document.body))
        assert await names_found(store, "k", "v") == []

    @case
    async def test_of_writers_at_once_one_wins(self, store: Store) -> None:
        create = a_document(expected_version=ABSENT)
        answers = await asyncio.gather(*(store.put_document(create) for _ in range(6)))
        assert answers.count(Refused("exists", 1)) == 5
        change = a_document(expected_version=1)
        answers = await asyncio.gather(*(store.put_document(change) for _ in range(6)))
        assert answers.count(Refused("stale", 2)) == 5

    @case
    async def test_writers_at_once_lose_nothing(self, store: Store) -> None:
        await asyncio.gather(*(store.put_document(a_document()) for _ in range(6)))
        found = await store.get_document(THINGS, SCOPE, "a")
        assert found is not None
        assert found.version == 6

    @case
    async def test_full_scopes_refuse_new_documents(self, store: Store) -> None:
        for name in "ab":
            await written(store, a_document(name, scope_limit=2))
        assert await store.put_document(a_document("c", scope_limit=2)) == Refused("full", 2)
        await written(store, a_document("a", scope_limit=2))
        await written(store, a_document("c", id="c-bob", scope="user:bob", scope_limit=2))
        await written(store, a_document("c", id="c-other", collection="notes", scope_limit=2))
        await store.delete_document(THINGS, SCOPE, "b")
        await written(store, a_document("c", scope_limit=2))

    @case
    async def test_delete_gives_what_was_removed(self, store: Store) -> None:
        answer = await written(store, a_document(entries=(("k", "v"),)))
        assert await store.delete_document(THINGS, SCOPE, "a") == answer.document
        assert await store.get_document(THINGS, SCOPE, "a") is None
        assert await names_found(store, "k", "v") == []
        assert await store.delete_document(THINGS, SCOPE, "a") == Refused("absent", 0)

    @case
    async def test_delete_compares_too(self, store: Store) -> None:
        assert await store.delete_document(THINGS, SCOPE, "a", 1) == Refused("absent", 0)
        await written(store, a_document())
        await written(store, a_document())
        assert await store.delete_document(THINGS, SCOPE, "a", 1) == Refused("stale", 2)
        assert isinstance(await store.delete_document(THINGS, SCOPE, "a", 2), Document)

    @case
    async def test_created_again_is_another(self, store: Store) -> None:
        await written(store, a_document())
        await written(store, a_document())
        await store.delete_document(THINGS, SCOPE, "a")
        answer = await written(store, a_document(id="doc-again"))
        assert (answer.created, answer.document.id, answer.document.version) == (
            True,
            "doc-again",
            1,
        )

    @case
    async def test_lists_are_pages_by_name(self, store: Store) -> None:
        names = ["B", "_", "a", "a1", "b", "ä", "あ", "🕰"]
        for name in reversed(names):
            await written(store, a_document(name))
        await written(store, a_document("c", id="other", scope="user:bob"))
        await written(store, a_document("d", id="note", collection="notes"))
        found: list[str] = []
        while page := await store.list_documents(
            THINGS, SCOPE, after=found[-1] if found else "", limit=3
        ):
            assert len(page) <= 3
            found += [document.name for document in page]
        assert found == names
        assert await store.count_documents(THINGS, SCOPE) == len(names)
        assert await store.count_documents(THINGS, "user:bob") == 1

    @case
    async def test_lists_hold_a_hundred_unless_told(self, store: Store) -> None:
        for number in range(101):
            await written(store, a_document(f"{number:03}"))
        assert len(await store.list_documents(THINGS, SCOPE)) == 100
        assert len(await store.list_documents(THINGS, SCOPE, limit=MAX_PAGE)) == 101
        for limit in (-1, 0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput):
                await store.list_documents(THINGS, SCOPE, limit=limit)
            with pytest.raises(InvalidInput):
                await store.find_documents(THINGS, "k", "v", limit=limit)

    @case
    async def test_prefixes_are_no_patterns(self, store: Store) -> None:
        for name in ("a", "a%", "a%b", "a_", "ab", "A%", "b", "a🕰"):
            await written(store, a_document(name))

        async def named(prefix: str, after: str = "") -> list[str]:
            page = await store.list_documents(THINGS, SCOPE, prefix=prefix, after=after)
            return [document.name for document in page]

        assert await named("a%") == ["a%", "a%b"]
        assert await named("a_") == ["a_"]
        assert await named("a") == ["a", "a%", "a%b", "a_", "ab", "a🕰"]
        assert await named("a", after="a_") == ["ab", "a🕰"]
        assert await named("c") == []

    @case
    async def test_attributes_find_documents_of_any_scope(self, store: Store) -> None:
        entries = (("project", "p1"),)
        await written(store, a_document("a", entries=entries))
        await written(store, a_document("b", id="bob", scope="user:bob", entries=entries))
        await written(store, a_document("c", entries=(("project", "p2"), ("domain", "d"))))
        await written(store, a_document("d", id="note", collection="notes", entries=entries))
        await written(store, a_document("e"))
        assert sorted(await names_found(store, "project", "p1")) == ["a", "b"]
        assert await names_found(store, "project", "p2") == ["c"]
        assert await names_found(store, "domain", "d") == ["c"]
        assert await names_found(store, "domain", "p1") == []
        assert await names_found(store, "project", "P1") == []

    @case
    async def test_attributes_may_have_several_values(self, store: Store) -> None:
        await written(store, a_document("a", entries=(("tag", "x"), ("tag", "y"))))
        assert await names_found(store, "tag", "x") == ["a"]
        assert await names_found(store, "tag", "y") == ["a"]

    @case
    async def test_attributes_gone_find_nothing(self, store: Store) -> None:
        await written(store, a_document(entries=(("project", "p1"),)))
        await written(store, a_document(entries=(("project", "p2"),)))
        assert await names_found(store, "project", "p1") == []
        assert await names_found(store, "project", "p2") == ["a"]
        await written(store, a_document())
        assert await names_found(store, "project", "p2") == []
        assert await store.get_document(THINGS, SCOPE, "a") is not None

    @case
    async def test_finds_are_limited(self, store: Store) -> None:
        for number in range(5):
            await written(store, a_document(f"{number}", entries=(("k", "v"),)))
        assert len(await names_found(store, "k", "v", limit=2)) == 2
        assert len(await names_found(store, "k", "v")) == 5

    @case
    async def test_schedules_are_no_plain_documents(self, store: Store) -> None:
        """Document verbs refuse the collection of schedules."""
        with pytest.raises(InvalidInput):
            await store.put_document(a_document(collection="schedules"))
        with pytest.raises(InvalidInput):
            await store.delete_document("schedules", SCOPE, "a")
