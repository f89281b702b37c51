"""From a refused write to the exception that says what to do about it."""

from __future__ import annotations

from typing import assert_never

from duly.errors import Conflict, InvalidInput, NotFound
from duly.model.documents import Refused
from duly.model.index import MAX_PAGE

MAX_TRIES = 10
"""How often a change is tried again when somebody else wrote in between."""


def refusal(what: str, refused: Refused, *, expected: int | None, full: str) -> Conflict | NotFound:
    """The exception of a refused write; `full` says what the scope holds too many of."""
    match refused.reason:
        case "exists":
            return Conflict(f"{what} exists already, at version {refused.version}; update() it")
        case "stale":
            found = refused.version
            return Conflict(f"{what} is at version {found}, not {expected}; read it again, repeat")
        case "absent":
            return NotFound(f"{what} does not exist; create() it first")
        case "full":
            return Conflict(f"{what} is one too many: {full}")
        case _:
            assert_never(refused.reason)


def contended(what: str) -> Conflict:
    """Somebody else was faster every time."""
    return Conflict(f"{what} changed {MAX_TRIES} times while it was being written; try again later")


def check_page(limit: int) -> int:
    """Refuse a page that no store would give."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit is {limit!r}; allowed: 1 to {MAX_PAGE}")
    return limit
