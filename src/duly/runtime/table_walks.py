"""Walks through a whole table: a few steps per round, resumed where the last round stopped."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar


class Step(Protocol):
    """The result of one step."""

    @property
    def cursor(self) -> str | None:
        """The position to continue from; None: the walk has ended."""


S = TypeVar("S", bound=Step)


class Walk(Generic[S]):
    """A repeated walk; the next one begins a period after the last has ended."""

    def __init__(
        self, step: Callable[[str | None], Awaitable[S]], period_s: float, most: int
    ) -> None:
        self._step = step
        self._period_s = period_s
        self._most = most
        self._cursor: str | None = None
        self._next = 0.0

    async def go_on(self, now: float) -> list[S]:
        """Take the steps of one round and return them; a step that raises is repeated next time."""
        made: list[S] = []
        if self._cursor is None and now < self._next:
            return made
        while len(made) < self._most:
            made.append(await self._step(self._cursor))
            self._cursor = made[-1].cursor
            if self._cursor is None:
                self._next = now + self._period_s
                break
        return made
