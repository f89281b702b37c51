"""Flows and actions: the application's code, under names that jobs carry.

A flow is a named group of actions; an action is a function with a typed input. Both are read once,
at import: what cannot work is refused there, not at run time.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol, get_type_hints, overload

import msgspec

from duly.errors import InvalidInput
from duly.jobs import DEFAULT_QUEUE, DEFAULT_RETRY, Delivery, JobId, check_text
from duly.resources.schema import plain, schema_of
from duly.retries import RetryPolicy
from duly.scopes import check_flow


class Context(Protocol):
    """What a handler may know and say about the job it runs."""

    @property
    def job_id(self) -> JobId:
        """Of the job."""

    @property
    def queue(self) -> str:
        """Where it was waiting."""

    @property
    def workspace(self) -> str:
        """Whose work it is, for fairness."""

    @property
    def scope(self) -> str:
        """Who it runs as."""

    @property
    def attempt(self) -> int:
        """1 for the first try."""

    @property
    def deadline(self) -> datetime:
        """When the time for this attempt is up."""

    @property
    def cancelled(self) -> bool:
        """Whether to stop: somebody asked, the time is up, or the job is no longer ours."""

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the ids."""

    def progress(self, percent: float, message: str = "") -> None:
        """Keep how far it is beside the job; cheap, stored by and by."""


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """How an action's jobs are run, unless the caller says otherwise."""

    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = DEFAULT_RETRY
    timeout_ms: int = 300_000
    delivery: Delivery = "at_least_once"
    redact: frozenset[str] = frozenset()
    """Names of the input that no operator may see."""


class Action:
    """A function under a name."""

    def __init__(self, name: str, function: Callable[..., Any], options: ActionOptions) -> None:
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self._input_name, self._context_name, kind = _parameters(name, function)
        self._schema = None if kind is None else schema_of(kind)

    def __repr__(self) -> str:
        return f"<action {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The function itself, for tests and for calls from other code."""
        return self.function(*args, **kwargs)

    @property
    def queue(self) -> str:
        """Where its jobs wait."""
        return self.options.queue

    @property
    def retry(self) -> RetryPolicy:
        """How often and how soon a failed attempt is tried again."""
        return self.options.retry

    @property
    def timeout_ms(self) -> int:
        """How long an attempt may take."""
        return self.options.timeout_ms

    @property
    def delivery(self) -> Delivery:
        """Whether a lost attempt is tried again."""
        return self.options.delivery

    @property
    def redact(self) -> frozenset[str]:
        """Names of the input that no operator may see."""
        return self.options.redact

    def encode(self, value: object) -> str:
        """An input as JSON text; one that does not fit is refused, here and not when it runs."""
        if self._input_name is None:
            if value is not None:
                raise InvalidInput(f"action {self.name} takes no input")
            return "null"
        schema = self._schema
        if schema is None:
            return msgspec.json.encode(plain(f"input of {self.name}", value)).decode()
        if not schema.holds(value):  # words from outside: unknown ones are refused
            value = schema.parse(msgspec.json.encode(plain(f"input of {self.name}", value)))
        text = msgspec.json.encode(schema.plain(value)).decode()
        schema.read(text)
        return text

    def decode(self, text: str) -> object:
        """The input of its JSON text."""
        if self._schema is None:
            return msgspec.json.decode(text)
        return self._schema.read(text)

    def arguments(self, text: str, context: Context) -> dict[str, object]:
        """What the function is called with."""
        given: dict[str, object] = {}
        if self._input_name is not None:
            given[self._input_name] = self.decode(text)
        if self._context_name is not None:
            given[self._context_name] = context
        return given


class Flow:
    """A named group of actions."""

    def __init__(self, name: str) -> None:
        self.name = check_flow(name)
        self.actions: dict[str, Action] = {}

    @overload
    def action(self, function: Callable[..., Any], /) -> Action: ...

    @overload
    def action(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout_s: float = 300,
        delivery: Delivery = "at_least_once",
        redact: Collection[str] = (),
    ) -> Callable[[Callable[..., Any]], Action]: ...

    def action(
        self,
        function: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        queue: str = DEFAULT_QUEUE,
        retry: RetryPolicy = DEFAULT_RETRY,
        timeout_s: float = 300,
        delivery: Delivery = "at_least_once",
        redact: Collection[str] = (),
    ) -> Action | Callable[[Callable[..., Any]], Action]:
        """Make a function an action; bare, or with options."""
        check_text("queue", queue)
        options = ActionOptions(
            queue, retry, int(timeout_s * 1000), delivery, frozenset(map(str.lower, redact))
        )

        def add(function: Callable[..., Any]) -> Action:
            short = check_flow(name or str(getattr(function, "__name__", "")))
            if short in self.actions:
                raise InvalidInput(f"flow {self.name} has an action {short} already")
            self.actions[short] = Action(f"{self.name}.{short}", function, options)
            return self.actions[short]

        return add if function is None else add(function)


def actions_of(flows: Collection[Flow]) -> dict[str, Action]:
    """Every action of the flows by its full name."""
    found: dict[str, Action] = {}
    for flow in flows:
        for action in flow.actions.values():
            if found.setdefault(action.name, action) is not action:
                raise InvalidInput(f"two actions are named {action.name}")
    return found


def _parameters(
    name: str, function: Callable[..., Any]
) -> tuple[str | None, str | None, type[Any] | None]:
    """Names of the input and the context parameter, and the type of the input."""
    hints = get_type_hints(function)
    input_name = context_name = None
    for parameter in inspect.signature(function).parameters.values():
        hint = hints.get(parameter.name)
        is_context = hint is Context if hint is not None else parameter.name in ("ctx", "context")
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidInput(f"action {name} may not take *{parameter.name}")
        if is_context and context_name is None:
            context_name = parameter.name
        elif input_name is None and not is_context:
            input_name = parameter.name
        else:
            raise InvalidInput(f"action {name} takes more than an input and a Context")
    kind = None if input_name is None else hints.get(input_name)
    return input_name, context_name, kind if isinstance(kind, type) and _has_schema(kind) else None


def _has_schema(kind: type[Any]) -> bool:
    return kind not in (object, str, int, float, bool, dict, list, bytes, datetime)
