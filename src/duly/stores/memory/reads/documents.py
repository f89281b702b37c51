"""Reads of documents in the memory store."""

from __future__ import annotations

from duly.model.documents import Document
from duly.rules.checks import (
    check_limit,
)
from duly.stores.memory.tables import DocumentKey, Tables


def get(tables: Tables, key: DocumentKey) -> Document | None:
    """Return one document."""
    stored = tables.documents.get(key)
    return None if stored is None else stored.document


def page(
    tables: Tables, collection: str, scope: str, prefix: str, after: str, limit: int
) -> list[Document]:
    """Return one page of a scope's documents by name, after a name."""
    check_limit(limit)
    keys = sorted(
        key
        for key in tables.documents
        if key[:2] == (collection, scope) and key[2].startswith(prefix) and key[2] > after
    )
    return [tables.documents[key].document for key in keys[:limit]]


def count(tables: Tables, collection: str, scope: str) -> int:
    """Return the number of documents of a scope."""
    return sum(1 for key in tables.documents if key[:2] == (collection, scope))


def find(tables: Tables, collection: str, attribute: str, value: str, limit: int) -> list[Document]:
    """Return the documents that have an index entry, by scope and name."""
    check_limit(limit)
    keys = sorted(
        key
        for key, stored in tables.documents.items()
        if key[0] == collection and (attribute, value) in stored.entries
    )
    return [tables.documents[key].document for key in keys[:limit]]
