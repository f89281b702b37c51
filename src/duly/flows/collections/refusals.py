"""Exceptions for refused writes, with their remedies."""

from __future__ import annotations

from typing import assert_never

from duly.errors import Conflict, InvalidInput, NotFound
from duly.model.documents import Refused
from duly.model.index import MAX_PAGE

MAX_TRIES = 10
"""Attempts of a change before Conflict when other writers keep changing the same object."""


def refusal(what: str, refused: Refused, *, expected: int | None, full: str) -> Conflict | NotFound:
    """Return the exception for a refused write; `full` is the text for a scope at its limit."""
    match refused.reason:
        case "exists":
            return Conflict(f"{what} exists already, at version {refused.version}; update() it")
        case "stale":
            found = refused.version
            return Conflict(
                f"{what} is at version {found}, not {expected}; read it again and retry"
            )
        case "absent":
            return NotFound(f"{what} does not exist; create() it first")
        case "full":
            return Conflict(f"{what} is over the limit: {full}")
        case _:
            assert_never(refused.reason)


def contended(what: str) -> Conflict:
    """Return the exception for a change that lost every race."""
    return Conflict(f"{what} changed {MAX_TRIES} times while it was being written; try again later")


def check_page(limit: int) -> int:
    """Return the page size; refuse one that is out of range."""
    if type(limit) is not int or not 1 <= limit <= MAX_PAGE:
        raise InvalidInput(f"limit is {limit!r}; allowed: 1 to {MAX_PAGE}")
    return limit
