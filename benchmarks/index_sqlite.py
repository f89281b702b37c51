"""SQLite as a place, with the standard library's sqlite3 as the bare driver."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Engine, create_engine, event

from benchmarks.index_apscheduler import APSCHEDULER
from benchmarks.index_places import Place, make_schema
from benchmarks.index_rows import NOW_MS, Backlog, Move
from duly.model.index_rows import TRIGGER_VERSION
from duly.stores.sql.dialects.sqlite.dialect import CACHE_KIB, CHECKPOINT_BYTES

PAGE_BYTES = 4096
SELECT = (
    "SELECT row_id, ? AS now_ms, nominal_ms, run_at_ms, runs_left, version "
    "FROM duly_schedule_index WHERE hand_over = 'jobs' AND flow = 'report' "
    "AND run_at_ms <= ? AND trigger_version <= ? "
    "ORDER BY run_at_ms, priority DESC, row_id LIMIT ?"
)
RULES = (
    "SELECT row_id, schedule_id, flow, scope, name, trigger_json FROM duly_schedule_rules "
    "WHERE row_id IN (SELECT value FROM json_each(?))"
)
UPDATE = (
    "UPDATE duly_schedule_index SET nominal_ms = ?, run_at_ms = ?, runs_left = ?, "
    "version = version + 1 WHERE row_id = ?"
)
FILL_RULES = (
    "WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers "
    "WHERE i + 1 < :count) "
    "INSERT INTO duly_schedule_rules (row_id, schedule_id, flow, scope, name, trigger_json, zone, "
    "hand_over, policies) SELECT i, printf('sch_%032x', i), 'report', 'user:' || i, 'daily', text, "
    "'UTC', 'jobs', '{}' FROM numbers JOIN kinds ON kind = i % :kinds"
)
FILL_WAITING = (
    "WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers "
    "WHERE i + 1 < :count), numbered AS MATERIALIZED (SELECT i, "
    ":now_ms + 3600000 + abs(random() % 2592000000) AS at_ms FROM numbers) "
    "INSERT INTO duly_schedule_index (row_id, flow, priority, trigger_version, nominal_ms, "
    "run_at_ms, version) SELECT i, 'report', 0, :trigger_version, at_ms, at_ms, 1 FROM numbered"
)


class SqliteDatabase:
    """Creates files in one folder."""

    name = "SQLite"
    tidy = "PRAGMA wal_checkpoint(TRUNCATE)"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, purpose: str) -> Place:
        return SqlitePlace(self._folder / f"{purpose}.db")

    def peer_engines(self) -> dict[str, Engine]:
        """Return an engine as its documentation opens a file, and one with Duly's pragmas."""
        usual = create_engine(f"sqlite:///{self._folder / 'usual.db'}")
        tuned = create_engine(f"sqlite:///{self._folder / 'tuned.db'}")
        event.listen(tuned, "connect", lambda connection, _: _make_durable(connection))
        return {APSCHEDULER: usual, f"{APSCHEDULER}, WAL": tuned}


class SqlitePlace:
    """One file."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        make_schema(self.url)
        self._connection = sqlite3.connect(path, isolation_level=None)
        _make_durable(self._connection)

    def refill(self, backlog: Backlog) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        for part in reversed(backlog.parts):
            self._connection.execute(f"DELETE FROM {part.table}")
        for part in backlog.parts:
            statement = (
                f"INSERT INTO {part.table} ({', '.join(part.columns)}) "
                f"VALUES ({', '.join('?' * len(part.columns))})"
            )
            self._connection.executemany(statement, part.rows)
        self._connection.execute("COMMIT")
        self._settle()

    def _settle(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def claim(self, now_ms: int, limit: int, moves: Mapping[int, Move]) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        asked = (now_ms, now_ms, TRIGGER_VERSION, limit)
        found = self._connection.execute(SELECT, asked).fetchall()
        numbers = [row[0] for row in found]
        self._connection.execute(RULES, (json.dumps(numbers),)).fetchall()
        moved = [moves[number] for number in numbers]
        self._connection.executemany(UPDATE, [(*move[1:], move[0]) for move in moved])
        self._connection.execute("COMMIT")
        return len(found)

    def moves(self) -> dict[int, Move]:
        statement = "SELECT row_id, nominal_ms, run_at_ms, runs_left FROM duly_schedule_index"
        return {row[0]: row for row in self._connection.execute(statement)}

    def fill_waiting(self, count: int, texts: Sequence[str]) -> None:
        self._connection.execute("CREATE TEMP TABLE kinds (kind INTEGER PRIMARY KEY, text TEXT)")
        self._connection.executemany("INSERT INTO kinds VALUES (?, ?)", enumerate(texts))
        asked = {
            "count": count,
            "kinds": len(texts),
            "now_ms": NOW_MS,
            "trigger_version": TRIGGER_VERSION,
        }
        self._connection.execute(FILL_RULES, asked)
        self._connection.execute(FILL_WAITING, asked)
        self._settle()

    def make_due(self, numbers: Sequence[int], at_ms: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "UPDATE duly_schedule_index SET nominal_ms = ?, run_at_ms = ? WHERE row_id = ?",
            [(at_ms, at_ms, each) for each in numbers],
        )
        self._connection.execute("COMMIT")

    def settings(self) -> dict[str, str]:
        def ask(pragma: str) -> str:
            return str(self._connection.execute(f"PRAGMA {pragma}").fetchone()[0])

        levels = {"1": "NORMAL", "2": "FULL"}
        return {
            "version": sqlite3.sqlite_version,
            "journal_mode": ask("journal_mode").upper(),
            "synchronous": levels[ask("synchronous")],
            "page_size": ask("page_size"),
        }

    def close(self) -> None:
        self._connection.close()


def _make_durable(connection: sqlite3.Connection) -> None:
    """Set the pragmas of Duly's own connections: cache size and checkpoint interval."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_BYTES // PAGE_BYTES}")
