"""Translate driver errors into Duly's own: retry later, fix the call, or report a bug.

The error code of the database decides (SQLSTATE, or SQLite's result code). Messages leave out the
SQL and its parameters, which may hold secrets.
"""

from __future__ import annotations

from enum import Enum

from sqlalchemy.engine import URL
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from duly.errors import BackendUnavailable, Conflict, DulyError, InternalError, InvalidInput
from duly.stores.sql.db import LostRace
from duly.stores.sql.dialects.dialect import Dialect

VALUE_ERRORS = (OverflowError, UnicodeError)
"""Errors that a driver raises for a value that it cannot send."""


class Failure(Enum):
    """The kind of error that a database reported."""

    UNAVAILABLE = "unavailable"
    """Cannot serve now: connection, shutdown, lock, timeout, disk, missing schema or rights."""
    BAD_VALUE = "bad value"
    """A value that no column accepts."""
    TAKEN = "taken"
    """A unique index already has the key."""
    BUG = "bug"
    """A statement that can never work."""


def translated(
    error: SQLAlchemyError | LostRace | OverflowError | UnicodeError,
    dialect: Dialect,
    url: URL,
    races: int,
) -> DulyError:
    """Return Duly's error for an error of a transaction."""
    if isinstance(error, LostRace):
        return BackendUnavailable(f"{error}; gave up after {races} attempts; retry later")
    if isinstance(error, VALUE_ERRORS):
        return InvalidInput(f"a value cannot be stored: {type(error).__name__}")
    if isinstance(error, PoolTimeout):
        return BackendUnavailable("all connections are in use; retry later or raise `connections`")
    if not isinstance(error, DBAPIError):
        return _statement_failed(error)
    fault = dialect.fault_of(error, url)
    if fault is not None:
        return BackendUnavailable(fault)
    said = _first_line(error.orig)
    lost = error.connection_invalidated or not error.statement
    match Failure.UNAVAILABLE if lost else dialect.failure_of(error):
        case Failure.BAD_VALUE:
            # The driver's message is left out: it may contain the value.
            return InvalidInput(f"the database rejected a value: {type(error.orig).__name__}")
        case Failure.TAKEN:
            return Conflict(f"an id or key is taken: {said}")
        case Failure.BUG:
            return InternalError(f"the database rejected a statement of Duly; report this: {said}")
        case _:
            return BackendUnavailable(f"the database reported: {said}", is_unreachable=lost)


def _statement_failed(error: SQLAlchemyError) -> DulyError:
    cause = getattr(error, "orig", None)
    if isinstance(cause, VALUE_ERRORS):
        return InvalidInput(f"a value cannot be stored: {type(cause).__name__}")
    return InternalError(f"a statement of Duly failed; report this: {_first_line(cause or error)}")


def _first_line(error: BaseException | None) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
