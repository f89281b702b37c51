"""Reads of documents and their sparse index."""

from __future__ import annotations

from sqlalchemy import and_, func, select

from duly.model.documents import Document
from duly.rules.checks import (
    check_limit,
)
from duly.stores.sql.db import Db
from duly.stores.sql.items.documents import document_of


def get_document(db: Db, collection: str, scope: str, name: str) -> Document | None:
    """Return one document, or None."""
    table = db.tables.resources
    statement = select(table).where(
        table.c.collection == collection, table.c.scope == scope, table.c.name == name
    )
    found = db.connection.execute(statement).first()
    return None if found is None else document_of(found)


def list_documents(
    db: Db, collection: str, scope: str, *, prefix: str = "", after: str = "", limit: int = 100
) -> list[Document]:
    """Return one page of a scope's documents by name."""
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
    return [document_of(row) for row in db.connection.execute(statement)]


def count_documents(db: Db, collection: str, scope: str) -> int:
    """Return the number of documents in a scope."""
    table = db.tables.resources
    statement = select(func.count()).where(table.c.collection == collection, table.c.scope == scope)
    return int(db.connection.execute(statement).scalar_one())


def find_documents(
    db: Db, collection: str, attribute: str, value: str, limit: int = 100
) -> list[Document]:
    """Return documents of any scope by an indexed attribute."""
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
    return [document_of(row) for row in db.connection.execute(statement)]


def _after_prefix(prefix: str) -> str:
    """Return a text that sorts after everything with the prefix."""
    return prefix + "\U0010ffff"
