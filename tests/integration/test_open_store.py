"""Opening a store: what is refused, and the error messages."""

import asyncio
import sqlite3
import sys
from pathlib import Path
from typing import cast

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from duly import cron
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.documents import Refused
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite, ScheduleWritten
from duly.model.schedules import Definition, ScheduleId
from duly.stores import open_store
from duly.stores.sql.dialects.sqlite import dialect as sqlite_dialect
from duly.stores.sql.dialects.sqlite.dialect import checkpoint, loses_wal_data
from duly.stores.sql.failures import translated
from duly.stores.sql.store import SqlStore
from tests.rows import NOON_MS, fill

KEY = ScheduleKey("app", "user:ada", "digest")
WRITE = ScheduleWrite(KEY, ScheduleId("sch_1"), Definition(cron("0 9 * * *"), "send"))


@pytest.mark.parametrize("url", ["oracle://x", "nonsense", "", "redis://localhost"])
def test_unknown_scheme_names_the_known_ones(url: str) -> None:
    with pytest.raises(InvalidInput, match=r"memory:, sqlite:///file\.db, postgresql://"):
        open_store(url)


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:"])
def test_sqlite_needs_a_file(url: str) -> None:
    with pytest.raises(InvalidInput, match="needs a file"):
        open_store(url)


def test_unknown_option_is_named() -> None:
    with pytest.raises(InvalidInput, match="unknown option 'namespcae'; known: namespace"):
        open_store("sqlite:///never-made.db", namespcae="x")


def test_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(InvalidInput, match=r"pip install 'duly\[postgres\]'"):
        open_store("postgresql://localhost/app")


def test_unreachable_server_is_retried_then_named(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BackendUnavailable, match="refused") as caught:
        open_store("postgresql://nobody@127.0.0.1:1/none", connect_attempts=2)
    assert caught.value.is_unreachable
    assert [record.getMessage()[:20] for record in caplog.records] == ["database unreachable"]


def test_file_that_is_not_a_database_is_named_at_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "notes.db"
    file.write_text("milk, bread, and something that is longer than the head of a database\n" * 9)
    with pytest.raises(BackendUnavailable, match=r"notes\.db is not a SQLite database") as caught:
        open_store(f"sqlite:///{file}")
    assert not caught.value.is_unreachable
    assert "trying again" not in caplog.text


def test_missing_folder_is_named_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(BackendUnavailable, match=r"there is no folder .*/none for x\.db"):
        open_store(f"sqlite:///{tmp_path}/none/x.db")
    assert "trying again" not in caplog.text


def test_file_without_write_permission_is_named(tmp_path: Path) -> None:
    """Raises the driver's error directly, since tests that run as root can write every file."""
    url = f"sqlite:///{tmp_path}/x.db"
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("CREATE TABLE x (y)")
    connection.close()
    engine = create_engine(f"sqlite:///file:{tmp_path}/x.db?mode=ro&uri=true")
    with pytest.raises(OperationalError) as caught, engine.begin() as reader:
        reader.execute(text("DROP TABLE x"))
    engine.dispose()
    told = translated(caught.value, sqlite_dialect.SqliteDialect(), make_url(url), races=1)
    assert "x.db cannot be opened for writing" in str(told)


def test_errors_hide_statement_and_parameters(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    with sqlite3.connect(tmp_path / "x.db") as connection:
        connection.execute("DROP TABLE duly_resources")
    connection.close()
    with pytest.raises(BackendUnavailable) as caught:
        asyncio.run(store.put_schedules([WRITE]))
    asyncio.run(store.close())
    assert "duly_resources" in str(caught.value)
    assert "SELECT" not in str(caught.value)
    assert "user:ada" not in str(caught.value)


def test_closing_twice_is_fine(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/x.db")
    asyncio.run(store.close())
    asyncio.run(store.close())


class TestJoiningATransaction:
    def test_commits_and_rolls_back_with_the_caller(self, postgres_url: str) -> None:
        store = open_store(postgres_url)
        engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
        with engine.connect() as connection:
            transaction = connection.begin()
            (answer,) = store.put_schedules_in(connection, [WRITE])
            assert isinstance(answer, ScheduleWritten)
            transaction.rollback()
        assert asyncio.run(store.get_schedule(KEY)) is None
        with Session(engine) as session, session.begin():
            store.put_schedules_in(session, [WRITE])
        assert asyncio.run(store.get_schedule(KEY)) is not None
        assert len(asyncio.run(store.list_rows())) == 1
        engine.dispose()
        asyncio.run(store.close())

    def test_sqlite_driver_that_delays_begin_still_rolls_back(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/x.db"
        store = open_store(url, allow_foreign_sqlite_writers=True)
        engine = create_engine(url)
        with engine.connect() as connection:
            transaction = connection.begin()
            store.put_schedules_in(connection, [WRITE])
            transaction.rollback()
        assert asyncio.run(store.get_schedule(KEY)) is None
        with engine.begin() as connection:
            store.put_schedules_in(connection, [WRITE])
        assert asyncio.run(store.get_schedule(KEY)) is not None
        engine.dispose()
        asyncio.run(store.close())

    def test_losing_a_race_does_not_abort_the_caller(self, postgres_url: str) -> None:
        store = open_store(postgres_url)
        engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
        asyncio.run(store.put_schedules([WRITE]))
        absent = ScheduleWrite(KEY, ScheduleId("sch_2"), WRITE.definition, expected_version=0)
        with engine.begin() as connection:
            (answer,) = store.put_schedules_in(connection, [absent])
            assert answer == Refused("exists", 1)
            assert connection.execute(text("SELECT 1")).scalar() == 1
        engine.dispose()
        asyncio.run(store.close())

    @pytest.mark.parametrize("held", ["an engine", 42, None])
    def test_objects_without_a_transaction_are_named(self, tmp_path: Path, held: object) -> None:
        store = open_store(f"sqlite:///{tmp_path}/x.db")
        with pytest.raises(InvalidInput, match=f"a {type(held).__name__} cannot hold"):
            store.put_schedules_in(held, [WRITE])
        asyncio.run(store.close())

    def test_autocommit_is_refused_before_a_row_is_touched(self, postgres_url: str) -> None:
        store = open_store(postgres_url)
        engine = create_engine(
            make_url(postgres_url).set(drivername="postgresql+psycopg"),
            isolation_level="AUTOCOMMIT",
        )
        with engine.connect() as connection, pytest.raises(InvalidInput, match="autocommit"):
            store.put_schedules_in(connection, [WRITE])
        engine.dispose()
        assert asyncio.run(store.get_schedule(KEY)) is None
        asyncio.run(store.close())

    def test_affected_sqlite_refuses_foreign_writers(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("duly.stores.sql.foreign.loses_wal_data", lambda: True)
        url = f"sqlite:///{tmp_path}/x.db"
        store, allowing = open_store(url), open_store(url, allow_foreign_sqlite_writers=True)
        engine = create_engine(url)
        with engine.begin() as connection:
            with pytest.raises(InvalidInput, match=r"3\.51\.3"):
                store.put_schedules_in(connection, [WRITE])
            assert isinstance(allowing.put_schedules_in(connection, [WRITE])[0], ScheduleWritten)
        engine.dispose()
        assert asyncio.run(store.get_schedule(KEY)) is not None
        for each in (store, allowing):
            asyncio.run(each.close())


@pytest.mark.parametrize(
    ("version", "affected"),
    [
        ((3, 40, 1), True),
        ((3, 44, 5), True),
        ((3, 44, 6), False),
        ((3, 50, 6), True),
        ((3, 50, 7), False),
        ((3, 51, 2), True),
        ((3, 51, 3), False),
        ((3, 52, 0), False),
    ],
)
def test_affected_versions(version: tuple[int, int, int], affected: bool) -> None:
    assert loses_wal_data(version) is affected


class TestCheckpoints:
    def test_no_connection_checkpoints_by_itself(self, tmp_path: Path) -> None:
        store = open_store(f"sqlite:///{tmp_path}/x.db")
        assert isinstance(store, SqlStore)
        with store._engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar() == 0
            assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
            assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
        asyncio.run(store.close())

    def test_wal_stays_bounded(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sqlite_dialect, "CHECKPOINT_BYTES", 200_000)
        url = f"sqlite:///{tmp_path}/x.db"
        asyncio.run(fill(url, 2_000, '{"kind":"cron","expression":"* * * * *"}'))
        store = open_store(url, connections=1)
        sizes = []
        for minute in range(60):
            asyncio.run(store.claim_due(NOON_MS + minute * 60_000, limit=2_000))
            sizes.append((tmp_path / "x.db-wal").stat().st_size)
        asyncio.run(store.close())
        assert max(sizes[10:]) < 1_500_000, sizes

    def test_waits_for_the_write_lock(self, tmp_path: Path) -> None:
        """A checkpoint never runs beside a writer; while the write lock is held it does not run."""
        store = open_store(f"sqlite:///{tmp_path}/x.db", busy_timeout_ms=1)
        assert isinstance(store, SqlStore)
        writer = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(Exception, match="locked"):
            checkpoint(store._engine)
        writer.execute("ROLLBACK")
        writer.close()
        assert checkpoint(store._engine)
        asyncio.run(store.close())


def test_claim_ids_of_two_namespaces_do_not_meet(postgres_url: str) -> None:
    """One application holds the lock of a claim id; another with the same id does not wait."""
    stores = [open_store(postgres_url, namespace=name) for name in ("billing", "crm")]
    billing, crm = (cast(SqlStore, store) for store in stores)
    with billing._engine.begin() as connection:
        billing._dialect.guard_claim(connection, billing._tables, "one")
        with crm._engine.begin() as other:
            other.execute(text("SET LOCAL lock_timeout = '1s'"))
            crm._dialect.guard_claim(other, crm._tables, "one")
            taken = other.execute(
                text(
                    "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND "
                    "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            ).scalar()
    assert taken == 2
    for store in stores:
        asyncio.run(store.close())
