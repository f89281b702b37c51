"""Tests of driver errors: by code, they mean to retry, to change the call, or to report a bug."""

import sqlite3
from typing import Any

import psycopg
import pytest
from sqlalchemy import create_engine, literal, select, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import DBAPIError, PendingRollbackError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from duly.errors import BackendUnavailable, Conflict, DulyError, InternalError, InvalidInput
from duly.stores.sql.db import LostRace
from duly.stores.sql.dialects.postgresql.dialect import PostgresqlDialect, sqlstate_of
from duly.stores.sql.dialects.sqlite.dialect import SqliteDialect
from duly.stores.sql.failures import translated

URLS = (make_url("postgresql://h/d"), make_url("sqlite:///x.db"))
VALUE = "hunter22"


def of_postgresql(orig: Exception, url: URL = URLS[0]) -> DulyError:
    error = DBAPIError.instance("SELECT 1", None, orig, psycopg.Error)
    assert isinstance(error, DBAPIError)
    return translated(error, PostgresqlDialect(), url, 5)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("08006", BackendUnavailable),
        ("25006", BackendUnavailable),
        ("40001", BackendUnavailable),
        ("42501", BackendUnavailable),
        ("42P01", BackendUnavailable),
        ("42703", BackendUnavailable),
        ("53100", BackendUnavailable),
        ("53300", BackendUnavailable),
        ("55P03", BackendUnavailable),
        ("57014", BackendUnavailable),
        ("57P01", BackendUnavailable),
        ("57P03", BackendUnavailable),
        ("58030", BackendUnavailable),
        ("XX000", BackendUnavailable),
        ("22003", InvalidInput),
        ("22021", InvalidInput),
        ("22P05", InvalidInput),
        ("54000", InvalidInput),
        ("23505", Conflict),
        ("23502", InternalError),
        ("42601", InternalError),
        ("42804", InternalError),
    ],
)
def test_sqlstates(state: str, expected: type[DulyError]) -> None:
    error = of_postgresql(psycopg.errors.lookup(state)(f"said {VALUE}"))
    assert type(error) is expected
    if expected is InvalidInput:  # the message of the server contains the value
        assert VALUE not in str(error)


@pytest.mark.parametrize(
    ("orig", "expected"),
    [
        (psycopg.OperationalError("connection refused"), BackendUnavailable),
        (psycopg.InterfaceError("the connection is closed"), BackendUnavailable),
        (psycopg.DataError("cannot contain NUL"), InvalidInput),
        (psycopg.ProgrammingError("cannot adapt type"), InternalError),
    ],
)
def test_errors_of_the_driver_itself(orig: Exception, expected: type[DulyError]) -> None:
    assert type(of_postgresql(orig)) is expected


def test_every_drivers_sqlstate_is_found() -> None:
    class Psycopg2Error(Exception):
        pgcode = "23505"

    class AsyncpgError(Exception):
        sqlstate = "40001"

    def state(orig: Exception) -> str:
        return sqlstate_of(DBAPIError("SELECT 1", None, orig))

    assert state(Psycopg2Error()) == "23505"
    assert state(AsyncpgError()) == "40001"
    assert state(Exception({"C": "57P01", "M": "shutting down"})) == "57P01"
    assert state(Exception("network error")) == ""


def of_sqlite(statement: Any) -> DulyError:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        connection.execute(text("CREATE TABLE t (id integer PRIMARY KEY, name text NOT NULL)"))
        connection.execute(text("INSERT INTO t VALUES (1, 'a')"))
        with pytest.raises(DBAPIError) as caught:
            connection.execute(statement)
    engine.dispose()
    return translated(caught.value, SqliteDialect(), URLS[1], 5)


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        (text("INSERT INTO t VALUES (1, 'b')"), Conflict),
        (text("INSERT INTO t VALUES (2, NULL)"), InternalError),
        (text("SELEKT"), InternalError),
        (text("SELECT * FROM other"), BackendUnavailable),
        (text("SELECT other FROM t"), BackendUnavailable),
        (select(literal(object())), InternalError),
        (text("SELECT zeroblob(2000000000)"), InvalidInput),
    ],
    ids=["taken", "null", "syntax", "table", "column", "type", "too-big"],
)
def test_sqlite_codes(statement: Any, expected: type[DulyError]) -> None:
    assert type(of_sqlite(statement)) is expected


@pytest.mark.parametrize(
    "name", ["BUSY", "LOCKED", "FULL", "IOERR", "CANTOPEN", "READONLY", "CORRUPT", "PROTOCOL"]
)
def test_sqlite_files_that_cannot_be_used_now(name: str) -> None:
    orig = sqlite3.OperationalError("said")
    orig.sqlite_errorcode = getattr(sqlite3, f"SQLITE_{name}")
    error = DBAPIError.instance("SELECT 1", None, orig, sqlite3.Error)
    assert isinstance(error, DBAPIError)
    assert type(translated(error, SqliteDialect(), URLS[1], 5)) is BackendUnavailable


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (LostRace("somebody was first"), BackendUnavailable),
        (PoolTimeout("QueuePool limit"), BackendUnavailable),
        (OverflowError("too large"), InvalidInput),
        (UnicodeEncodeError("utf-8", "x", 0, 1, "half"), InvalidInput),
        (StatementError("said", "SELECT 1", None, TypeError("no")), InternalError),
        (StatementError("said", "SELECT 1", None, OverflowError("no")), InvalidInput),
        (PendingRollbackError("rolled back"), InternalError),
    ],
    ids=["race", "pool", "number", "text", "statement", "value", "state"],
)
def test_errors_without_a_code(error: Any, expected: type[DulyError]) -> None:
    assert type(translated(error, SqliteDialect(), URLS[1], 5)) is expected
