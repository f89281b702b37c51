"""Resources: documents and their sparse index."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Row, and_, delete, func, insert, select, update
from sqlalchemy.sql.elements import ColumnElement

from duly.store import ABSENT, Document, DocumentWrite, Refused, Written
from duly.stores.checks import (
    check_limit,
    delete_refusal,
    id_taken,
    refuse_schedules,
    write_refusal,
)
from duly.stores.sql.bulk import chunks
from duly.stores.sql.db import Db


def get_document(db: Db, collection: str, scope: str, name: str) -> Document | None:
    """Read one document."""
    table = db.tables.resources
    found = db.connection.execute(select(table).where(_is(db, collection, scope, name))).first()
    return None if found is None else _document(found)


def put_document(db: Db, write: DocumentWrite) -> Written | Refused:
    """Store one document and its index entries, by compare-and-set on its version."""
    refuse_schedules(write.collection)
    table = db.tables.resources
    here = _is(db, write.collection, write.scope, write.name)
    found = db.connection.execute(select(table).where(here).with_for_update()).first()
    refusal = write_refusal(write.expected_version, ABSENT if found is None else found.version)
    if refusal is not None:
        return refusal
    now_ms = db.now_ms()
    if found is None:
        held = count_documents(db, write.collection, write.scope)
        if write.scope_limit is not None and held >= write.scope_limit:
            return Refused("full", held)
        if db.is_retry:
            whose = f"document {write.collection}/{write.scope}/{write.name}"
            refuse_taken_ids(db, {write.id: whose})
        document = Document(
            write.collection, write.scope, write.name, write.id, write.body, 1, now_ms, now_ms
        )
        db.connection.execute(insert(table).values(_values(document)))
    else:
        document = Document(
            write.collection,
            write.scope,
            write.name,
            found.id,
            write.body,
            found.version + 1,
            found.created_at_ms,
            now_ms,
        )
        db.connection.execute(update(table).where(here).values(_values(document)))
    _replace_entries(db, write)
    return Written(document, created=found is None)


def delete_document(
    db: Db, collection: str, scope: str, name: str, expected_version: int | None = None
) -> Document | Refused:
    """Remove one document and its index entries."""
    refuse_schedules(collection)
    table = db.tables.resources
    here = _is(db, collection, scope, name)
    found = db.connection.execute(select(table).where(here).with_for_update()).first()
    refusal = delete_refusal(expected_version, ABSENT if found is None else found.version)
    if refusal is not None or found is None:
        return refusal or Refused("absent", ABSENT)
    db.connection.execute(delete(table).where(here))
    db.connection.execute(
        delete(db.tables.resource_index).where(_entries_of(db, collection, scope, name))
    )
    return _document(found)


def list_documents(
    db: Db, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
) -> list[Document]:
    """One page by name."""
    check_limit(limit)
    table = db.tables.resources
    statement = (
        select(table)
        .where(table.c.collection == collection, table.c.scope == scope, table.c.name > after)
        .order_by(table.c.name)
        .limit(limit)
    )
    if prefix:
        statement = statement.where(table.c.name >= prefix, table.c.name < _after_prefix(prefix))
    return [_document(row) for row in db.connection.execute(statement)]


def count_documents(db: Db, collection: str, scope: str) -> int:
    """How many documents a scope holds."""
    table = db.tables.resources
    statement = select(func.count()).where(table.c.collection == collection, table.c.scope == scope)
    return int(db.connection.execute(statement).scalar_one())


def find_documents(
    db: Db, collection: str, attribute: str, value: str, limit: int = 100
) -> list[Document]:
    """Documents of any scope by an indexed attribute."""
    check_limit(limit)
    table, entries = db.tables.resources, db.tables.resource_index
    statement = (
        select(table)
        .join(
            entries,
            and_(
                entries.c.collection == table.c.collection,
                entries.c.scope == table.c.scope,
                entries.c.name == table.c.name,
            ),
        )
        .where(
            entries.c.collection == collection,
            entries.c.attribute == attribute,
            entries.c.value == value,
        )
        .order_by(entries.c.scope, entries.c.name)
        .limit(limit)
    )
    return [_document(row) for row in db.connection.execute(statement)]


def refuse_taken_ids(db: Db, names: Mapping[str, str]) -> None:
    """Raise Conflict if a document or a schedule has one of these ids; the values name whose.

    Only for a transaction that runs again after a unique index refused it: a new id is free.
    """
    table = db.tables.resources
    for chunk in chunks(list(names)):
        taken = set(
            db.connection.execute(select(table.c.id).where(table.c.id.in_(chunk))).scalars()
        )
        for stored_id in chunk:
            if stored_id in taken:
                raise id_taken(stored_id, names[stored_id])


def _replace_entries(db: Db, write: DocumentWrite) -> None:
    entries = db.tables.resource_index
    db.connection.execute(
        delete(entries).where(_entries_of(db, write.collection, write.scope, write.name))
    )
    if write.entries:
        db.connection.execute(
            insert(entries),
            [
                {
                    "collection": write.collection,
                    "attribute": attribute,
                    "value": value,
                    "scope": write.scope,
                    "name": write.name,
                }
                for attribute, value in dict.fromkeys(write.entries)
            ],
        )


def _is(db: Db, collection: str, scope: str, name: str) -> ColumnElement[bool]:
    table = db.tables.resources
    return and_(table.c.collection == collection, table.c.scope == scope, table.c.name == name)


def _entries_of(db: Db, collection: str, scope: str, name: str) -> ColumnElement[bool]:
    table = db.tables.resource_index
    return and_(table.c.collection == collection, table.c.scope == scope, table.c.name == name)


def _after_prefix(prefix: str) -> str:
    """The smallest text that sorts after everything with the prefix."""
    return prefix + "\U0010ffff"


def _values(document: Document) -> dict[str, object]:
    return {name: getattr(document, name) for name in Document.__slots__}


def _document(row: Row[tuple[object, ...]]) -> Document:
    values = row._mapping  # noqa: SLF001 - SQLAlchemy's public name for it
    return Document(**{name: values[name] for name in Document.__slots__})
