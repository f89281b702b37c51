"""Resource collections: scoped, typed documents with a version and sparse indexes.

A write is a compare-and-set on the version unless its docstring states otherwise; hooks run before
it and may refuse it.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from duly.engine.ids import new_id
from duly.errors import DulyError, InvalidInput, shown
from duly.flows.collections.refusals import MAX_TRIES, check_page, contended, refusal
from duly.flows.collections.resource import (
    DEFAULT_COLLECTION_LIMITS,
    BeforeWrite,
    CollectionLimits,
    Hook,
    Packed,
    Resource,
    indexed_text,
)
from duly.flows.collections.schema import Schema, nearest, plain, schema_of
from duly.model.documents import ABSENT, Document, DocumentWrite, Refused, Written
from duly.model.json_bounds import too_large
from duly.model.scopes import Scope, check_name, check_new_owner
from duly.stores.port import Store
from duly.triggers.instants import from_ms

T = TypeVar("T")
COLLECTION_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
RESERVED = frozenset({"schedules"})
"""Names that no resource collection may have."""


class ResourceCollection(Generic[T]):
    """The documents of one kind, each owned by a scope; of() returns those of a scope."""

    def __init__(
        self,
        store: Store,
        name: str,
        schema: type[T],
        *,
        indexes: Sequence[str] = (),
        limits: CollectionLimits = DEFAULT_COLLECTION_LIMITS,
        hooks: Sequence[Hook[T]] = (),
    ) -> None:
        if not COLLECTION_NAME.fullmatch(name) or name in RESERVED:
            raise InvalidInput(
                f"collection {name!r}; allowed: a-z, 0-9, - and _, at most 64, but not "
                f"{', '.join(sorted(RESERVED))}"
            )
        self.store = store
        self.name = name
        self.schema: Schema[T] = schema_of(schema)
        self.indexes = tuple(indexes)
        self.limits = limits
        self.hooks = tuple(hooks)
        for attribute in self.indexes:
            if attribute not in self.schema.attributes:
                known = nearest(attribute, self.schema.attributes)
                raise InvalidInput(f"index {attribute!r} of {name}: no such field; {known}")

    def of(self, scope: Scope) -> ScopedCollection[T]:
        """Return the documents of one scope."""
        if not isinstance(scope, Scope):
            raise InvalidInput(f"scope {scope!r}; pass SYSTEM, user(id) or workspace(id)")
        return ScopedCollection(self, scope)

    def parse(self, words: str | bytes | Mapping[str, Any]) -> T:
        """Parse a value from outside; refuse unknown fields, wrong types and too many bytes."""
        most = self.limits.body_bytes
        if not isinstance(words, str | bytes):
            text: str | bytes = msgspec.json.encode(plain(self.schema.title, words, most))
        elif len(words) > most:
            raise too_large(self.schema.title, most)
        else:
            text = words
        return self.schema.parse(text)

    async def find_by(
        self, attribute: str, value: str | int | bool, *, limit: int = 100
    ) -> list[Resource[T]]:
        """Return documents of any scope by an indexed attribute: one query, never a scan."""
        if attribute not in self.indexes:
            known = nearest(attribute, self.indexes)
            raise InvalidInput(f"{self.name} has no index {shown(attribute)!r}; {known}")
        text = indexed_text(attribute, value)
        if text is None:
            raise InvalidInput(f"{attribute} is None: a document without it is not in the index")
        found = await self.store.find_documents(self.name, attribute, text, check_page(limit))
        return [self.resource(document) for document in found]

    def resource(self, document: Document) -> Resource[T]:
        """Return a stored document as a resource; refuse one that does not fit the schema."""
        try:
            value = self.schema.read(document.body)
        except InvalidInput as error:
            where = f"{document.collection}/{document.name} of {document.scope}, as stored"
            raise InvalidInput(f"{where}: {error}") from None
        return Resource(
            value=value,
            scope=Scope.parse(document.scope),
            name=document.name,
            id=document.id,
            version=document.version,
            created_at=from_ms(document.created_at_ms),
            updated_at=from_ms(document.updated_at_ms),
        )

    def check(self, name: str) -> str:
        """Return the name; refuse one that this collection does not allow."""
        check_name(f"{self.name} name", name)
        pattern = self.limits.name_pattern
        if pattern is not None and not re.fullmatch(pattern, name):
            raise InvalidInput(f"{self.name} name {name!r} does not match {pattern}")
        return name

    def packed(self, value: T, kept: Mapping[str, Any]) -> Packed[T]:
        """Check and serialise a value; `kept` are fields that only another release knows."""
        schema = self.schema
        if not schema.holds(value):
            raise InvalidInput(
                f"{self.name} holds {schema.title}, not {type(value).__name__}; parse() reads JSON"
            )
        fields = schema.plain(value, self.limits.body_bytes)
        stored = schema.read_own(msgspec.json.encode(fields).decode())
        body = msgspec.json.encode({**kept, **fields}, order="deterministic")
        if len(body) > self.limits.body_bytes:
            raise InvalidInput(
                f"{schema.title} has {len(body)} bytes as JSON; allowed: {self.limits.body_bytes}"
            )
        found = (
            (each, indexed_text(each, schema.attribute(stored, each))) for each in self.indexes
        )
        entries = tuple((name, text) for name, text in found if text is not None)
        return Packed(stored, body.decode(), entries)


class ScopedCollection(Generic[T]):
    """The documents of one scope. Create one with ResourceCollection.of()."""

    def __init__(self, collection: ResourceCollection[T], scope: Scope) -> None:
        self.collection = collection
        self.scope = scope
        self._owner = str(scope)

    async def get(self, name: str) -> Resource[T] | None:
        """Return one document; None: there is none."""
        found = await self._read(name)
        return None if found is None else self.collection.resource(found)

    async def create(self, name: str, value: T) -> Resource[T]:
        """Create a document; Conflict if the name is taken or the scope is full."""
        written = await self._put(name, None, value)
        if isinstance(written, Refused):
            raise self._refusal(name, written, ABSENT)
        return self.collection.resource(written.document)

    async def get_or_create(self, name: str, value: T | Callable[[], T]) -> Resource[T]:
        """Return the document; create it from the value, or what the call returns, if missing."""
        for _ in range(MAX_TRIES):
            found = await self._read(name)
            if found is not None:
                return self.collection.resource(found)
            is_call = callable(value) and not self.collection.schema.holds(value)
            new = cast(Callable[[], T], value)() if is_call else cast(T, value)
            written = await self._put(name, None, new)
            if isinstance(written, Written):
                return self.collection.resource(written.document)
            if written.reason != "exists":
                raise self._refusal(name, written, ABSENT)
        raise contended(self._what(name))

    async def update(
        self, name: str, change: T | Callable[[T], T], *, version: int | None = None
    ) -> Resource[T]:
        """Replace a document by a value, or by what a call makes of the present value.

        With a version, only that version is replaced; without, the call may run several times.
        """
        for _ in range(MAX_TRIES):
            found = await self._read(name)
            if found is None:
                raise self._refusal(name, Refused("absent", 0), version)
            if version is not None and found.version != version:
                raise self._refusal(name, Refused("stale", found.version), version)
            new = self._changed(name, found, change)
            written = await self._put(name, found, new, kept=self._unknown(found))
            if isinstance(written, Written):
                return self.collection.resource(written.document)
        raise contended(self._what(name))

    async def upsert(self, name: str, value: T) -> Resource[T]:
        """Create or replace a document: the last write wins."""
        for _ in range(MAX_TRIES):
            # Hooks need the true old value; without hooks it is not used.
            found = await self._read(name) if self.collection.hooks else None
            written = await self._put(name, found, value, is_blind=not self.collection.hooks)
            if isinstance(written, Written):
                return self.collection.resource(written.document)
            if written.reason == "full":
                raise self._refusal(name, written, None)
        raise contended(self._what(name))

    async def delete(self, name: str, *, version: int | None = None) -> bool:
        """Remove a document; False: there was none."""
        key = (self.collection.name, self._owner, self.collection.check(name))
        for _ in range(MAX_TRIES):
            expected = version
            if self.collection.hooks:
                found = await self._read(name)
                if found is None:
                    return False
                await self._ask("delete", name, found, None)
                expected = found.version if version is None else version
            removed = await self.collection.store.delete_document(*key, expected)
            if isinstance(removed, Document) or removed.reason == "absent":
                return isinstance(removed, Document)
            if version is not None:
                raise self._refusal(name, removed, version)
        raise contended(self._what(name))

    async def count(self) -> int:
        """Return how many documents the scope has."""
        return await self.collection.store.count_documents(self.collection.name, self._owner)

    async def list(
        self, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> Sequence[Resource[T]]:
        """Return a page in order of name; pass its last name as `after` for the next page."""
        found = await self.collection.store.list_documents(
            self.collection.name, self._owner, prefix=prefix, after=after, limit=check_page(limit)
        )
        return [self.collection.resource(document) for document in found]

    async def _read(self, name: str) -> Document | None:
        name = self.collection.check(name)
        return await self.collection.store.get_document(self.collection.name, self._owner, name)

    async def _put(
        self,
        name: str,
        old: Document | None,
        value: T,
        *,
        kept: Mapping[str, Any] = MappingProxyType({}),
        is_blind: bool = False,
    ) -> Written | Refused:
        collection = self.collection
        if old is None:
            check_new_owner(self.scope)
        packed = collection.packed(value, kept)
        await self._ask("create" if old is None else "update", name, old, packed.value)
        expected = None if is_blind else ABSENT if old is None else old.version
        return await collection.store.put_document(
            DocumentWrite(
                collection=collection.name,
                scope=self._owner,
                name=collection.check(name),
                id=new_id("res_"),
                body=packed.body,
                entries=packed.entries,
                expected_version=expected,
                scope_limit=collection.limits.per_scope,
            )
        )

    def _changed(self, name: str, old: Document, change: T | Callable[[T], T]) -> T:
        if self.collection.schema.holds(change) or not callable(change):
            return cast(T, change)
        value = change(self.collection.resource(old).value)
        if value is None:
            raise InvalidInput(f"the change of {self._what(name)} must return the new value")
        return value

    def _unknown(self, old: Document) -> dict[str, Any]:
        """Return the fields that this release does not know, which a write must keep."""
        known = self.collection.schema.stored_names
        fields: dict[str, Any] = msgspec.json.decode(old.body)
        return {name: value for name, value in fields.items() if name not in known}

    async def _ask(
        self,
        kind: Literal["create", "update", "delete"],
        name: str,
        old: Document | None,
        new: T | None,
    ) -> None:
        if not self.collection.hooks:
            return
        value = None if old is None else self.collection.resource(old).value
        for hook in self.collection.hooks:
            answer = hook(BeforeWrite(kind, self.scope, name, value, new))
            if inspect.isawaitable(answer):
                await answer

    def _what(self, name: str) -> str:
        return f"{self.collection.name}/{name} of {self._owner}"

    def _refusal(self, name: str, refused: Refused, expected: int | None) -> DulyError:
        most = self.collection.limits.per_scope
        full = f"{self._owner} may have {most} {self.collection.name}; delete one first"
        return refusal(self._what(name), refused, expected=expected, full=full)
