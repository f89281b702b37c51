"""The tables of all relational databases.

`migrations/` holds the statements that create them; a test compares the two. Instants are integer
milliseconds since 1970 and end in `_ms`. Hot tables are narrow, cold ones wide: an index row is one
narrow row of `schedule_index`, which claims search and write, and the row of `schedule_rules` with
the same `row_id`, which they only read. Flow and hand-over are in both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from sqlalchemy import BigInteger, Column, FetchedValue, ForeignKey, Integer, MetaData, Table, Text

SCHEMA_VERSION = 20
PREFIX = "duly_"


@dataclass(frozen=True, slots=True)
class Tables:
    """All tables, each under its name without the prefix."""

    schema: Table
    resources: Table
    resource_index: Table
    schedule_rules: Table
    schedule_index: Table
    schedule_events: Table
    occurrences: Table
    ledger_counts: Table
    running: Table
    jobs: Table
    job_events: Table
    job_line: Table
    job_marks: Table
    idempotency: Table
    queues: Table
    queue_tokens: Table
    workers: Table
    locks: Table
    audit: Table

    @property
    def metadata(self) -> MetaData:
        """Return the metadata of the tables."""
        return self.schema.metadata


@lru_cache(maxsize=64)
def make_tables(prefix: str = PREFIX, database_schema: str | None = None) -> Tables:
    """Return the tables of one namespace; cached, because statements are cached per table."""
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
            _text("tz_version", nullable=True),
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
            _text("hand_over", nullable=True),
            _whole("runs_had", nullable=True),
            _ms("finished_at_ms", nullable=True),
            _whole("temporary", nullable=True),
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
        occurrences=table("occurrences", *_ledger_columns()),
        ledger_counts=table(
            "ledger_counts",
            Column("seq", BigInteger, primary_key=True, autoincrement=True),
            _text("flow"),
            _text("outcome"),
            _ms("times"),
        ),
        running=table(
            "running",
            _text("schedule_id", primary_key=True),
            _text("job_id"),
            _ms("since_ms"),
        ),
        **_job_tables(table),
        **_queue_tables(table),
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
        Column("not_found", Integer, nullable=False, server_default="0"),
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
        _text("hand_over"),
        _entered(),
    ]


def _ledger_columns() -> list[Column[Any]]:
    return [
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
        _ms("until_ms", nullable=True),
        _whole("times"),
        _text("job_id", nullable=True),
        _text("reason", nullable=True),
        _ms("fired_at_ms", nullable=True),
        _ms("ended_at_ms", nullable=True),
        _ms("lease_until_ms", nullable=True),
        _whole("tries", nullable=True),
        _text("delivery", nullable=True),
    ]


def _job_tables(table: Callable[..., Table]) -> dict[str, Table]:
    return {
        "jobs": table("jobs", *_job_columns()),
        "job_events": table(
            "job_events",
            _text("job_id", primary_key=True),
            _whole("seq", primary_key=True),
            _ms("at_ms"),
            _text("state"),
            _whole("attempt"),
            _text("actor", nullable=True),
            _text("reason", nullable=True),
            _text("ended_as", nullable=True),
            _ms("took_ms", nullable=True),
        ),
        "job_line": table(
            "job_line",
            _text("queue", primary_key=True),
            _ms("place", primary_key=True),
            _text("id", primary_key=True),
            _text("workspace"),
            _text("action"),
            _ms("run_at_ms"),
            _entered(),
        ),
        "job_marks": table(
            "job_marks",
            Column("seq", BigInteger, primary_key=True, autoincrement=True),
            _text("state"),
            _ms("at_ms"),
            _whole("jobs"),
            _text("ids"),
            _entered(),
        ),
    }


def _job_columns() -> list[Column[object]]:
    return [
        _text("id", primary_key=True),
        _text("action"),
        _text("queue"),
        _text("workspace"),
        _text("scope"),
        _text("state"),
        _whole("priority"),
        _ms("place"),
        _ms("run_at_ms"),
        _ms("created_at_ms"),
        _ms("finished_at_ms", nullable=True),
        _whole("attempts"),
        _whole("max_attempts"),
        _whole("careful"),
        _whole("fence"),
        _whole("events"),
        _text("retry"),
        _ms("timeout_ms"),
        _text("worker", nullable=True),
        _ms("lease_until_ms", nullable=True),
        _whole("cancel_asked"),
        _text("idempotency_key", nullable=True),
        _text("schedule_id", nullable=True),
        _ms("nominal_ms", nullable=True),
        _text("correlation_id", nullable=True),
        _text("metadata", nullable=True),
        _text("input"),
        _text("result", nullable=True),
        _text("error", nullable=True),
        _text("progress", nullable=True),
        _text("policies", nullable=True),
        _text("turn", nullable=True),
        _whole("in_line"),
        _ms("claimed_at_ms", nullable=True),
        _whole("waits"),
        _ms("took_ms", nullable=True),
        _whole("unstarted", nullable=True),
        _entered(),
    ]


def _queue_tables(table: Callable[..., Table]) -> dict[str, Table]:
    """Return the tables around jobs: keys, queues and their tokens, workers, locks, audit."""
    return {
        "idempotency": table(
            "idempotency",
            _text("workspace", primary_key=True),
            _text("action", primary_key=True),
            _text("idempotency_key", primary_key=True),
            _text("job_id"),
            _text("input_digest"),
            _ms("expires_at_ms"),
        ),
        "queues": table(
            "queues",
            _text("queue", primary_key=True),
            _whole("paused"),
            _text("note", nullable=True),
            _whole("job_limit", nullable=True),
            _whole("workspace_limit"),
        ),
        "queue_tokens": table(
            "queue_tokens",
            _text("queue", primary_key=True),
            _text("workspace", primary_key=True),
            _whole("number", primary_key=True),
            _text("owner"),
            _ms("fence"),
            _ms("leased_until_ms"),
            _ms("served_at_ms"),
        ),
        "workers": table(
            "workers",
            _text("id", primary_key=True),
            _text("host"),
            _ms("pid"),
            _text("queues"),
            _whole("slots"),
            _whole("running"),
            _whole("stopping"),
            _ms("started_at_ms"),
            _ms("beat_at_ms"),
            _text("actions", nullable=True),
        ),
        "locks": table(
            "locks",
            _text("name", primary_key=True),
            _text("owner", nullable=True),
            _ms("fence"),
            _ms("locked_until_ms"),
            _ms("updated_at_ms"),
        ),
        "audit": table(
            "audit",
            Column("seq", BigInteger, primary_key=True, autoincrement=True),
            _ms("at_ms"),
            _text("actor"),
            _text("action"),
            _text("target"),
            _text("outcome"),
            _text("detail"),
        ),
    }


def _entered() -> Column[object]:
    """Return the column that the database fills with the row's transaction, if it uses it."""
    return Column("entered", BigInteger, nullable=False, server_default=FetchedValue())


def _text(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, Text, primary_key=primary_key, nullable=nullable)


def _whole(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, Integer, primary_key=primary_key, nullable=nullable, autoincrement=False)


def _ms(name: str, *, primary_key: bool = False, nullable: bool = False) -> Column[object]:
    return Column(name, BigInteger, primary_key=primary_key, nullable=nullable, autoincrement=False)
