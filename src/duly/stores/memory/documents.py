"""Documents in memory: scoped JSON, compare-and-set on the version, sparse index entries."""

from __future__ import annotations

from dataclasses import replace

from duly.store import ABSENT, Document, DocumentWrite, Refused, Written
from duly.stores.checks import check_limit, refuse_schedules
from duly.stores.memory.tables import DocumentKey, Stored, Tables


def get(tables: Tables, key: DocumentKey) -> Document | None:
    """Read one document."""
    stored = tables.documents.get(key)
    return None if stored is None else stored.document


def put(tables: Tables, now_ms: int, write: DocumentWrite) -> Written | Refused:
    """Store one document and its entries."""
    refuse_schedules(write.collection)
    key = (write.collection, write.scope, write.name)
    earlier = tables.documents.get(key)
    refused = refusal(earlier, write.expected_version)
    if refused is None and earlier is None and write.scope_limit is not None:
        held = count(tables, write.collection, write.scope)
        refused = Refused("full", held) if held >= write.scope_limit else None
    if refused is not None:
        return refused
    if earlier is None:
        document = Document(*key, write.id, write.body, 1, now_ms, now_ms)
    else:
        document = revised(earlier.document, write.body, now_ms)
    tables.documents[key] = Stored(document, write.entries)
    return Written(document, created=earlier is None)


def revised(document: Document, body: str, now_ms: int) -> Document:
    """The next version of a document."""
    return replace(document, body=body, version=document.version + 1, updated_at_ms=now_ms)


def refusal(earlier: Stored | None, expected_version: int | None) -> Refused | None:
    """What compare-and-set says to a write; None lets it pass."""
    found = ABSENT if earlier is None else earlier.document.version
    if expected_version is None or expected_version == found:
        return None
    if expected_version == ABSENT:
        return Refused("exists", found)
    return Refused("absent", ABSENT) if earlier is None else Refused("stale", found)


def delete(tables: Tables, key: DocumentKey, expected_version: int | None) -> Document | Refused:
    """Remove one document and its entries."""
    refuse_schedules(key[0])
    earlier = tables.documents.get(key)
    if earlier is None:
        return Refused("absent", ABSENT)
    refused = refusal(earlier, expected_version)
    if refused is None:
        del tables.documents[key]
    return refused or earlier.document


def page(
    tables: Tables, collection: str, scope: str, prefix: str, after: str, limit: int
) -> list[Document]:
    """A scope's documents by name."""
    check_limit(limit)
    keys = sorted(
        key
        for key in tables.documents
        if key[:2] == (collection, scope) and key[2].startswith(prefix) and key[2] > after
    )
    return [tables.documents[key].document for key in keys[:limit]]


def count(tables: Tables, collection: str, scope: str) -> int:
    """How many documents a scope holds."""
    return sum(1 for key in tables.documents if key[:2] == (collection, scope))


def find(tables: Tables, collection: str, attribute: str, value: str, limit: int) -> list[Document]:
    """Documents that have an entry, by scope and name."""
    check_limit(limit)
    keys = sorted(
        key
        for key, stored in tables.documents.items()
        if key[0] == collection and (attribute, value) in stored.entries
    )
    return [tables.documents[key].document for key in keys[:limit]]
