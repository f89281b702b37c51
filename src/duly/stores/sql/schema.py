"""The tables, once for all relational databases.

`migrations/` holds the statements that make them; a test compares the two. Instants are integer
milliseconds since 1970 and end in `_ms`. Narrow hot tables, wide cold ones: an index row is one
narrow row of `schedule_index`, which claims search and write, and the one of `schedule_rules` with
the same `row_id`, which they only read. The flow stands in both and never changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import BigInteger, Column, ForeignKey, Integer, MetaData, Table, Text

SCHEMA_VERSION = 1
PREFIX = "duly_"


@dataclass(frozen=True, slots=True)
class Tables:
    """Every table under its name without the prefix."""

    schema: Table
    resources: Table
    resource_index: Table
    schedule_rules: Table
    schedule_index: Table
    schedule_events: Table
    occurrences: Table

    @property
    def metadata(self) -> MetaData:
        """What the tables belong to."""
        return self.schema.metadata


def make_tables(prefix: str = PREFIX, database_schema: str | None = None) -> Tables:
    """The tables of one namespace."""
    metadata = MetaData(schema=database_schema)

    def table(name: str, *columns: Column[object]) -> Table:
        return Table(f"{prefix}{name}", metadata, *columns)

    schedule_rules = table("schedule_rules", *_rule_columns())
    return Tables(
        schema=table(
            "schema",
            _whole("version", primary_key=True),
            _whole("readable_from"),
            _ms("updated_at_ms"),
        ),
        resources=table(
            "resources",
            _text("collection", primary_key=True),
            _text("scope", primary_key=True),
            _text("name", primary_key=True),
            _text("id"),
            _ms("version"),
            _text("state", nullable=True),
            _text("error", nullable=True),
            _text("body"),
            _ms("created_at_ms"),
            _ms("updated_at_ms"),
        ),
        resource_index=table(
            "resource_index",
            _text("collection", primary_key=True),
            _text("attribute", primary_key=True),
            _text("value", primary_key=True),
            _text("scope", primary_key=True),
            _text("name", primary_key=True),
        ),
        schedule_rules=schedule_rules,
        schedule_index=table("schedule_index", *_index_columns(schedule_rules)),
        schedule_events=table(
            "schedule_events",
            Column("seq", BigInteger, primary_key=True, autoincrement=True),
            _text("schedule_id"),
            _text("kind"),
            _ms("at_ms"),
            _text("actor"),
            _text("detail"),
        ),
        occurrences=table(
            "occurrences",
            _text("schedule_id", primary_key=True),
            _ms("nominal_ms", primary_key=True),
            _text("flow"),
            _text("scope"),
            _text("name"),
            _ms("run_at_ms"),
            _text("state"),
            _whole("missed"),
            _ms("row_version"),
            _text("claim_id", nullable=True),
            _whole("position"),
            _ms("at_ms"),
        ),
    )


def _rule_columns() -> list[Column[Any]]:
    return [
        Column("row_id", BigInteger, primary_key=True, autoincrement=True),
        _text("schedule_id"),
        _text("flow"),
        _text("scope"),
        _text("name"),
        _text("trigger_json"),
        _text("zone"),
        _text("hand_over"),
        _text("policies"),
    ]


def _index_columns(rules: Table) -> list[Column[Any]]:
    return [
        Column("row_id", BigInteger, ForeignKey(rules.c.row_id), primary_key=True),
        _text("flow"),
        _whole("priority"),
        _whole("trigger_version"),
        _ms("nominal_ms"),
        _ms("run_at_ms", nullable=True),
        _whole("runs_left", nullable=True),
        _ms("version"),
        _text("error", nullable=True),
    ]


def _text(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, Text, primary_key=primary_key, nullable=nullable)


def _whole(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, Integer, primary_key=primary_key, nullable=nullable, autoincrement=False)


def _ms(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, BigInteger, primary_key=primary_key, nullable=nullable, autoincrement=False)
