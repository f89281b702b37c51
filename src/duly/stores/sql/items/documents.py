"""Documents and their entries in the sparse index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Row, tuple_

from duly.engine.kinds import DOCUMENT, StoredDocument
from duly.engine.transaction import Change, Key
from duly.model.documents import Document
from duly.stores.sql.bulk import chunks, delete_keys, insert_all
from duly.stores.sql.db import Db
from duly.stores.sql.items.mapped import Mapped, Values


def document_of(row: Row[Any]) -> Document:
    """Return the document stored in a row."""
    return Document(
        row.collection,
        row.scope,
        row.name,
        row.id,
        row.body,
        row.version,
        row.created_at_ms,
        row.updated_at_ms,
    )


def _stored(row: Row[Any]) -> StoredDocument:
    return StoredDocument(document_of(row))


def _values(item: StoredDocument) -> Values:
    return {name: getattr(item.document, name) for name in Document.__slots__}


class DocumentTable(Mapped[StoredDocument]):
    """The table of documents; every write replaces their index entries."""

    def write(self, db: Db, changes: Mapping[Key, Change]) -> None:
        """Write documents, then their index entries."""
        super().write(db, changes)
        table = db.tables.resource_index
        columns = tuple_(table.c.collection, table.c.scope, table.c.name)
        # A new document has no entries to remove.
        for chunk in chunks(sorted(key for key, each in changes.items() if each.before)):
            delete_keys(db, table, self.key, chunk, columns.in_(list(chunk)))
        entries = [
            {
                "collection": collection,
                "attribute": attribute,
                "value": value,
                "scope": scope,
                "name": name,
            }
            for (collection, scope, name), change in sorted(changes.items())
            if change.after is not None
            for attribute, value in dict.fromkeys(change.after.entries)
        ]
        insert_all(db, table, entries)


DOCUMENTS = DocumentTable(
    DOCUMENT,
    "resources",
    ("collection", "scope", "name"),
    _stored,
    _values,
    index="resources_names",
)
