"""Error output of commands: one line that names the error, a caret, and an exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from duly.cli.output import say
from duly.errors import BackendUnavailable, DulyError, InvalidInput, InvalidTrigger

P = ParamSpec("P")
T = TypeVar("T")

REFUSED, USAGE, UNAVAILABLE = 1, 2, 3
"""Exit codes: refused or not found; invalid input; the database did not answer."""


def explain_failures(command: Callable[P, T]) -> Callable[P, T]:
    """Turn Duly's errors into a message on stderr and an exit code."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except DulyError as error:
            _fail(error)

    return guarded


def exit_code(error: DulyError) -> int:
    """Return the exit code of an error."""
    match error:
        case InvalidInput():
            return USAGE
        case BackendUnavailable():
            return UNAVAILABLE
        case _:
            return REFUSED


def _fail(error: DulyError) -> NoReturn:
    caret = error.caret() if isinstance(error, InvalidTrigger) else None
    if caret is not None:
        say("\n".join(f"  {line}" for line in caret.splitlines()), err=True)
    say(f"error: {error}", fg="red", err=True)
    raise SystemExit(exit_code(error))
