"""A store whose answers are reported to observers: counters and log lines, for example.

Loops and clients call the wrapper as they would call the store, so none of them can forget to
report, and the store does not know that it is observed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Any, cast

from duly.stores.port import Store


@dataclass(frozen=True, slots=True)
class Observer:
    """Functions that are called after a verb of the store."""

    answered: Callable[..., None]
    """Called with the answer and the positional arguments of the call."""
    failed: Callable[[Exception], None] | None = None
    """Called with the error, which is raised again."""


Observers = Mapping[str, Observer]
"""By the name of the verb."""


class ObservedStore:
    """Passes every call on to a store, and reports the verbs that are observed."""

    def __init__(self, store: Store, *observers: Observers) -> None:
        self._store = store
        self._verbs: dict[str, Callable[..., Any]] = {}
        for own in observers:
            for name, observer in own.items():
                verb = self._verbs.get(name) or getattr(store, name)
                self._verbs[name] = _reporting(verb, observer)

    def __getattr__(self, name: str) -> Any:
        return self._verbs.get(name) or getattr(self._store, name)


def observed(store: Store, *observers: Observers) -> Store:
    """Return a store that reports to observers."""
    return cast(Store, ObservedStore(store, *observers))


def _reporting(verb: Callable[..., Any], observer: Observer) -> Callable[..., Any]:
    def fail(error: Exception) -> None:
        if observer.failed is not None:
            observer.failed(error)

    if inspect.iscoroutinefunction(verb):

        @wraps(verb)
        async def run(*asked: Any, **named: Any) -> Any:
            try:
                answer = await verb(*asked, **named)
            except Exception as error:
                fail(error)
                raise
            observer.answered(answer, *asked)
            return answer

        return run

    @wraps(verb)
    def run_plainly(*asked: Any, **named: Any) -> Any:
        try:
            answer = verb(*asked, **named)
        except Exception as error:
            fail(error)
            raise
        observer.answered(answer, *asked)
        return answer

    return run_plainly
