"""PostgreSQL as a place, with psycopg as the bare driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql
from sqlalchemy import Engine, create_engine
from tests.servers import PostgresServer

from benchmarks.index_apscheduler import APSCHEDULER
from benchmarks.index_places import Place, make_schema
from benchmarks.index_rows import NOW_MS, Backlog, Move
from duly.model.index_rows import TRIGGER_VERSION

SELECT = (
    "SELECT row_id, %(now_ms)s::bigint AS now_ms, nominal_ms, run_at_ms, runs_left, version "
    "FROM duly_schedule_index "
    "WHERE hand_over = 'jobs' AND flow = 'report' "
    "AND run_at_ms <= %(now_ms)s::bigint AND trigger_version <= %(trigger_version)s "
    "ORDER BY run_at_ms, priority DESC, row_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
)
RULES = (
    "SELECT row_id, schedule_id, flow, scope, name, trigger_json FROM duly_schedule_rules "
    "WHERE row_id = ANY((SELECT %s::text)::bigint[])"
)
UPDATE = (
    "UPDATE duly_schedule_index AS i SET nominal_ms = v.nominal_ms, run_at_ms = v.run_at_ms, "
    "runs_left = v.runs_left, version = i.version + 1 "
    "FROM unnest((SELECT %s::bigint[]), (SELECT %s::bigint[]), (SELECT %s::bigint[]), "
    "(SELECT %s::integer[])) "
    "AS v (row_id, nominal_ms, run_at_ms, runs_left) WHERE i.row_id = v.row_id"
)
FILL_RULES = (
    "INSERT INTO duly_schedule_rules (row_id, schedule_id, flow, scope, name, trigger_json, zone, "
    "hand_over, policies) SELECT i, 'sch_' || lpad(to_hex(i), 32, '0'), 'report', 'user:' || i, "
    "'daily', (%(texts)s::text[])[1 + i %% %(kinds)s], 'UTC', 'jobs', '{}' "
    "FROM generate_series(0, %(count)s - 1) AS i"
)
FILL_WAITING = (
    "INSERT INTO duly_schedule_index (row_id, flow, priority, trigger_version, nominal_ms, "
    "run_at_ms, version) SELECT i, 'report', 0, %(trigger_version)s, at_ms, at_ms, 1 "
    "FROM (SELECT i, %(now_ms)s + 3600000 + (random() * 2592000000)::bigint AS at_ms "
    "FROM generate_series(0, %(count)s - 1) AS i) AS numbered"
)
MAKE_DUE = (
    "UPDATE duly_schedule_index SET nominal_ms = %(at_ms)s, run_at_ms = %(at_ms)s "
    "WHERE row_id = ANY(%(numbers)s)"
)
SETTINGS = (
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_sync_method",
    "shared_buffers",
    "autovacuum",
)


class PostgresDatabase:
    """One cluster."""

    name = "PostgreSQL"
    tidy = "VACUUM ANALYZE apscheduler_jobs"

    def __init__(self, server: PostgresServer) -> None:
        self._server = server

    def place(self, purpose: str) -> Place:  # noqa: ARG002
        return PostgresPlace(self._server.create())

    def peer_engines(self) -> dict[str, Engine]:
        url = self._server.create().replace("postgresql:", "postgresql+psycopg:")
        return {APSCHEDULER: create_engine(url)}


class PostgresPlace:
    """One database of a cluster."""

    def __init__(self, url: str) -> None:
        self.url = url
        make_schema(url)
        self._connection = psycopg.connect(url)
        self._upkeep = psycopg.connect(url, autocommit=True)

    def refill(self, backlog: Backlog) -> None:
        self._upkeep.execute("TRUNCATE duly_schedule_index, duly_schedule_rules")
        for part in backlog.parts:
            columns = sql.SQL(", ").join(map(sql.Identifier, part.columns))
            table = sql.Identifier(part.table)
            statement = sql.SQL("COPY {} ({}) FROM STDIN").format(table, columns)
            with self._upkeep.cursor().copy(statement) as copy:
                for row in part.rows:
                    copy.write_row(row)
        self._settle()

    def _settle(self) -> None:
        self._upkeep.execute("VACUUM ANALYZE duly_schedule_index, duly_schedule_rules")
        # After a checkpoint the first write to each page is a full-page write, for all alike.
        self._upkeep.execute("CHECKPOINT")

    def claim(self, now_ms: int, limit: int, moves: Mapping[int, Move]) -> int:
        asked = {"now_ms": now_ms, "limit": limit, "trigger_version": TRIGGER_VERSION}
        found = self._connection.execute(SELECT, asked).fetchall()
        if found:
            numbers = [row[0] for row in found]
            self._connection.execute(RULES, [_array(numbers)]).fetchall()
            moved = [moves[number] for number in numbers]
            self._connection.execute(UPDATE, [_array(each) for each in zip(*moved, strict=True)])
        self._connection.commit()
        return len(found)

    def moves(self) -> dict[int, Move]:
        statement = "SELECT row_id, nominal_ms, run_at_ms, runs_left FROM duly_schedule_index"
        return {row[0]: row for row in self._upkeep.execute(statement).fetchall()}

    def fill_waiting(self, count: int, texts: Sequence[str]) -> None:
        asked = {
            "count": count,
            "texts": list(texts),
            "kinds": len(texts),
            "now_ms": NOW_MS,
            "trigger_version": TRIGGER_VERSION,
        }
        self._upkeep.execute(FILL_RULES, asked)
        self._upkeep.execute(FILL_WAITING, asked)
        self._settle()

    def make_due(self, numbers: Sequence[int], at_ms: int) -> None:
        self._upkeep.execute(MAKE_DUE, {"numbers": list(numbers), "at_ms": at_ms})

    def settings(self) -> dict[str, str]:
        found = {"version": str(self._upkeep.info.server_version // 10_000)}
        for name in SETTINGS:
            statement = sql.SQL("SHOW {}").format(sql.Identifier(name))
            found[name] = str(self._upkeep.execute(statement).fetchall()[0][0])
        return found

    def close(self) -> None:
        self._connection.close()
        self._upkeep.close()


def _array(numbers: Sequence[int | None]) -> str:
    """Return an array literal, as Duly sends it: faster than a list, which the driver inspects."""
    return "{" + ",".join(["NULL" if each is None else str(each) for each in numbers]) + "}"
