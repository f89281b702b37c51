"""PostgreSQL as a place to measure, with psycopg as the bare driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import psycopg
from psycopg import sql
from sqlalchemy import Engine, create_engine
from tests.servers import PostgresServer

from benchmarks.index_apscheduler import APSCHEDULER
from benchmarks.index_places import Place, make_schema
from benchmarks.index_rows import NOW_MS, Backlog, Move
from duly.occurrences import TRIGGER_VERSION

SELECT = (
    "SELECT schedule_id, flow, scope, name, trigger_json, nominal_ms, run_at_ms, runs_left, "
    "version, %(now_ms)s::bigint AS now_ms FROM duly_schedule_index "
    "WHERE run_at_ms <= %(now_ms)s AND trigger_version <= %(trigger_version)s "
    "ORDER BY run_at_ms, priority DESC, schedule_id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
)
UPDATE = (
    "UPDATE duly_schedule_index AS i SET nominal_ms = v.nominal_ms, run_at_ms = v.run_at_ms, "
    "runs_left = v.runs_left, version = i.version + 1 "
    "FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::integer[]) "
    "AS v (schedule_id, nominal_ms, run_at_ms, runs_left) WHERE i.schedule_id = v.schedule_id"
)
FILL_WAITING = (
    "INSERT INTO duly_schedule_index (schedule_id, flow, scope, name, trigger_json, "
    "trigger_version, zone, nominal_ms, run_at_ms, hand_over, priority, policies, version) "
    "SELECT 'sch_' || lpad(to_hex(i), 32, '0'), 'report', 'user:' || i, 'daily', "
    "(%(texts)s::text[])[1 + i %% %(kinds)s], %(trigger_version)s, 'UTC', at_ms, at_ms, 'jobs', "
    "0, '{}', 1 FROM (SELECT i, %(now_ms)s + 3600000 + (random() * 2592000000)::bigint AS at_ms "
    "FROM generate_series(0, %(count)s - 1) AS i) AS numbered"
)
MAKE_DUE = (
    "UPDATE duly_schedule_index SET nominal_ms = %(at_ms)s, run_at_ms = %(at_ms)s "
    "WHERE schedule_id = ANY(%(ids)s)"
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
        columns = sql.SQL(", ").join(map(sql.Identifier, backlog.columns))
        statement = sql.SQL("COPY duly_schedule_index ({}) FROM STDIN").format(columns)
        self._upkeep.execute("TRUNCATE duly_schedule_index")
        with self._upkeep.cursor().copy(statement) as copy:
            for row in backlog.rows:
                copy.write_row(row)
        self._settle()

    def _settle(self) -> None:
        self._upkeep.execute("VACUUM ANALYZE duly_schedule_index")
        # Whoever comes next writes the whole of each page it touches first: the same for all.
        self._upkeep.execute("CHECKPOINT")

    def claim(self, now_ms: int, limit: int, moves: Mapping[str, Move]) -> int:
        asked = {"now_ms": now_ms, "limit": limit, "trigger_version": TRIGGER_VERSION}
        found = self._connection.execute(SELECT, asked).fetchall()
        if found:
            moved = [moves[row[0]] for row in found]
            self._connection.execute(UPDATE, [list(column) for column in zip(*moved, strict=True)])
        self._connection.commit()
        return len(found)

    def moves(self) -> dict[str, Move]:
        statement = "SELECT schedule_id, nominal_ms, run_at_ms, runs_left FROM duly_schedule_index"
        return {row[0]: row for row in self._upkeep.execute(statement).fetchall()}

    def fill_waiting(self, count: int, texts: Sequence[str]) -> None:
        asked = {
            "count": count,
            "texts": list(texts),
            "kinds": len(texts),
            "now_ms": NOW_MS,
            "trigger_version": TRIGGER_VERSION,
        }
        self._upkeep.execute(FILL_WAITING, asked)
        self._settle()

    def make_due(self, ids: Sequence[str], at_ms: int) -> None:
        self._upkeep.execute(MAKE_DUE, {"ids": list(ids), "at_ms": at_ms})

    def settings(self) -> dict[str, str]:
        found = {"version": str(self._upkeep.info.server_version // 10_000)}
        for name in SETTINGS:
            statement = sql.SQL("SHOW {}").format(sql.Identifier(name))
            found[name] = str(self._upkeep.execute(statement).fetchall()[0][0])
        return found

    def close(self) -> None:
        self._connection.close()
        self._upkeep.close()
