"""Documents in memory: scoped JSON, compare-and-set on the version, sparse index entries."""

from __future__ import annotations

from dataclasses import replace

from duly.store import ABSENT, Document, DocumentWrite, Refused, Written
from duly.stores.checks import (
    check_limit,
    delete_refusal,
    id_taken,
    refuse_schedules,
    write_refusal,
)
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
    refused = write_refusal(write.expected_version, version_of(earlier))
    if refused is None and earlier is None and write.scope_limit is not None:
        held = count(tables, write.collection, write.scope)
        refused = Refused("full", held) if held >= write.scope_limit else None
    if refused is not None:
        return refused
    if earlier is None:
        if has_id(tables, write.id):
            raise id_taken(write.id, f"document {write.collection}/{write.scope}/{write.name}")
        document = Document(*key, write.id, write.body, 1, now_ms, now_ms)
    else:
        document = revised(earlier.document, write.body, now_ms)
    tables.documents[key] = Stored(document, write.entries)
    return Written(document, created=earlier is None)


def revised(document: Document, body: str, now_ms: int) -> Document:
    """The next version of a document."""
    return replace(document, body=body, version=document.version + 1, updated_at_ms=now_ms)


def version_of(stored: Stored | None) -> int:
    """Return the version of a document; ABSENT where there is none."""
    return ABSENT if stored is None else stored.document.version


def has_id(tables: Tables, document_id: str) -> bool:
    """Return whether a document or a schedule has this id."""
    return any(stored.document.id == document_id for stored in tables.documents.values())


def delete(tables: Tables, key: DocumentKey, expected_version: int | None) -> Document | Refused:
    """Remove one document and its entries."""
    refuse_schedules(key[0])
    earlier = tables.documents.get(key)
    refused = delete_refusal(expected_version, version_of(earlier))
    if refused is not None or earlier is None:
        return refused or Refused("absent", ABSENT)
    del tables.documents[key]
    return earlier.document


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
