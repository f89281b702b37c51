"""How commands fail: one line that names the mistake, a caret under it, and an exit code."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

import click

from duly.errors import DulyError, InvalidInput, InvalidTrigger

P = ParamSpec("P")
T = TypeVar("T")


def explain_failures(command: Callable[P, T]) -> Callable[P, T]:
    """Turn Duly's errors into a message on stderr and exit code 2 (bad input) or 1."""

    @functools.wraps(command)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except DulyError as error:
            _fail(error)

    return guarded


def _fail(error: DulyError) -> NoReturn:
    caret = error.caret() if isinstance(error, InvalidTrigger) else None
    if caret is not None:
        click.echo("\n".join(f"  {line}" for line in caret.splitlines()), err=True)
    click.secho(f"error: {error}", fg="red", err=True)
    raise SystemExit(2 if isinstance(error, InvalidInput) else 1)
