"""SQLite as a place to measure, with the standard library's sqlite3 as the bare driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from sqlalchemy import Engine, create_engine, event

from benchmarks.index_apscheduler import APSCHEDULER
from benchmarks.index_places import Place, make_schema
from benchmarks.index_rows import NOW_MS, Backlog, Move
from duly.occurrences import TRIGGER_VERSION
from duly.stores.sql.sqlite import CACHE_KIB, CHECKPOINT_BYTES

PAGE_BYTES = 4096
SELECT = (
    "SELECT schedule_id, flow, scope, name, trigger_json, nominal_ms, run_at_ms, runs_left, "
    "version, ? AS now_ms FROM duly_schedule_index WHERE run_at_ms <= ? AND trigger_version <= ? "
    "ORDER BY run_at_ms, priority DESC, schedule_id LIMIT ?"
)
UPDATE = (
    "UPDATE duly_schedule_index SET nominal_ms = ?, run_at_ms = ?, runs_left = ?, "
    "version = version + 1 WHERE schedule_id = ?"
)
FILL_WAITING = (
    "WITH RECURSIVE numbers (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM numbers "
    "WHERE i + 1 < :count), numbered AS MATERIALIZED (SELECT i, "
    ":now_ms + 3600000 + abs(random() % 2592000000) AS at_ms FROM numbers) "
    "INSERT INTO duly_schedule_index (schedule_id, flow, scope, name, trigger_json, "
    "trigger_version, zone, nominal_ms, run_at_ms, hand_over, priority, policies, version) "
    "SELECT printf('sch_%032x', i), 'report', 'user:' || i, 'daily', text, :trigger_version, "
    "'UTC', at_ms, at_ms, 'jobs', 0, '{}', 1 FROM numbered JOIN kinds ON kind = i % :kinds"
)


class SqliteDatabase:
    """Files in one folder."""

    name = "SQLite"
    tidy = "PRAGMA wal_checkpoint(TRUNCATE)"

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def place(self, purpose: str) -> Place:
        return SqlitePlace(self._folder / f"{purpose}.db")

    def peer_engines(self) -> dict[str, Engine]:
        """As its own documentation opens a file, and with what Duly sets: faster, as durable."""
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
        statement = (
            f"INSERT INTO duly_schedule_index ({', '.join(backlog.columns)}) "  # noqa: S608
            f"VALUES ({', '.join('?' * len(backlog.columns))})"
        )
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.execute("DELETE FROM duly_schedule_index")
        self._connection.executemany(statement, backlog.rows)
        self._connection.execute("COMMIT")
        self._settle()

    def _settle(self) -> None:
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def claim(self, now_ms: int, limit: int, moves: Mapping[str, Move]) -> int:
        self._connection.execute("BEGIN IMMEDIATE")
        asked = (now_ms, now_ms, TRIGGER_VERSION, limit)
        found = self._connection.execute(SELECT, asked).fetchall()
        moved = [moves[row[0]] for row in found]
        self._connection.executemany(UPDATE, [(*move[1:], move[0]) for move in moved])
        self._connection.execute("COMMIT")
        return len(found)

    def moves(self) -> dict[str, Move]:
        statement = "SELECT schedule_id, nominal_ms, run_at_ms, runs_left FROM duly_schedule_index"
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
        self._connection.execute(FILL_WAITING, asked)
        self._settle()

    def make_due(self, ids: Sequence[str], at_ms: int) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self._connection.executemany(
            "UPDATE duly_schedule_index SET nominal_ms = ?, run_at_ms = ? WHERE schedule_id = ?",
            [(at_ms, at_ms, each) for each in ids],
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
    """As Duly's own connections are: as much cache, a checkpoint after as much WAL."""
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint={CHECKPOINT_BYTES // PAGE_BYTES}")
