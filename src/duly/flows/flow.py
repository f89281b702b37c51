"""Flows and actions: the application's code under the names that jobs refer to.

A flow is a named group of actions; an action is a function with a typed input. Both are checked
once, at import, so that mistakes are refused there and not at run time.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar, Unpack, get_args, get_type_hints, overload

import msgspec

from duly.errors import InvalidInput, shown
from duly.flows.collections.requests import TriggerWords
from duly.flows.collections.schedules import Zones
from duly.flows.collections.schema import plain, schema_of
from duly.flows.context import Context
from duly.flows.resolved import ScheduleConfig
from duly.flows.static_schedules import StaticOptions, StaticSchedule, declare
from duly.flows.webhook_routes import DeliveryId, Route, Routed, Verify, Webhook
from duly.model.jobs import DEFAULT_QUEUE, DEFAULT_RETRY, MAX_TIMEOUT_MS, Delivery, check_queue
from duly.model.retries import RetryPolicy
from duly.model.run_options import RunOptions
from duly.model.schedules import DEFAULT_LIMITS, Limits
from duly.model.scopes import SYSTEM, check_flow, dispatch_id
from duly.triggers.durations import duration_text

Resolve = Callable[..., ScheduleConfig | Awaitable[ScheduleConfig | None] | None]
ResolveT = TypeVar("ResolveT", bound=Resolve)
ChoiceT = TypeVar("ChoiceT", bound=str)


_PLAIN = (str, int, float, bool, list, dict)
"""Input annotations that are JSON types: the input is checked and passed unchanged."""


def _check_choice(what: str, given: ChoiceT, allowed: Sequence[str]) -> ChoiceT:
    if given not in allowed:
        raise InvalidInput(f"{what} is {shown(given)}; allowed: {' or '.join(allowed)}")
    return given


@dataclass(frozen=True, slots=True)
class ActionOptions:
    """The defaults for an action's jobs, which a caller may override."""

    queue: str = DEFAULT_QUEUE
    """The queue of its jobs."""
    retry: RetryPolicy = DEFAULT_RETRY
    """The number of attempts, and the delays between them."""
    timeout_ms: int = 300_000
    """Milliseconds that one attempt may take."""
    delivery: Delivery = "at_least_once"
    """`at_least_once` or `at_most_once`: a job that may have started is never run again."""
    redact: frozenset[str] = frozenset()
    """Names of input fields that are hidden from operators."""

    @property
    def run(self) -> RunOptions:
        """The declared run options of the action's jobs."""
        return RunOptions(self.queue, self.retry, self.timeout_ms, self.delivery)

    def __post_init__(self) -> None:
        check_queue(self.queue)
        _check_choice("delivery", self.delivery, get_args(Delivery))
        if not isinstance(self.retry, RetryPolicy):
            raise InvalidInput(f"retry is {shown(self.retry)}; pass RetryPolicy(attempts=...)")
        if not 1 <= self.timeout_ms <= MAX_TIMEOUT_MS:
            raise InvalidInput(
                f"timeout_s is {self.timeout_ms / 1000:g} s; allowed: 1 ms to "
                f"{duration_text(MAX_TIMEOUT_MS)}"
            )


class Action:
    """A named function that jobs call."""

    def __init__(self, name: str, function: Callable[..., Any], options: ActionOptions) -> None:
        self.name = name
        self.function = function
        self.options = options
        self.is_async = inspect.iscoroutinefunction(function)
        self._input_name, self._context_name, kind = _parameters(name, function)
        self.usual_input = _usual_input(function, self._input_name)
        """The default of the input parameter; None: it has none."""
        self._schema = None if kind is None else schema_of(kind)
        hint = get_type_hints(function).get(self._input_name or "")
        self._plain = hint if hint in _PLAIN else None

    def __repr__(self) -> str:
        return f"<action {self.name}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function directly, for tests and other code."""
        return self.function(*args, **kwargs)

    @property
    def takes_context(self) -> bool:
        """Return whether its function takes a Context."""
        return self._context_name is not None

    @property
    def queue(self) -> str:
        """The queue of its jobs."""
        return self.options.queue

    @property
    def retry(self) -> RetryPolicy:
        """The number of attempts, and the delays between them."""
        return self.options.retry

    @property
    def timeout_ms(self) -> int:
        """Milliseconds that one attempt may take."""
        return self.options.timeout_ms

    @property
    def delivery(self) -> Delivery:
        """The delivery guarantee, which decides whether a lost attempt is retried."""
        return self.options.delivery

    @property
    def redact(self) -> frozenset[str]:
        """Names of input fields that are hidden from operators."""
        return self.options.redact

    def encode(self, value: object) -> str:
        """Return an input as JSON text; refuse one that does not fit the schema.

        None means no input: the default of the input parameter is used.
        """
        if self._input_name is None:
            if value is not None:
                raise InvalidInput(f"action {self.name} takes no input")
            return "null"
        value = self.usual_input if value is None else value
        schema = self._schema
        if schema is None:
            text = msgspec.json.encode(plain(f"input of {self.name}", value)).decode()
            self._check_plain(text)
            return text
        if not schema.holds(value):  # from outside: unknown fields are refused
            value = schema.parse(msgspec.json.encode(plain(f"input of {self.name}", value)))
        text = msgspec.json.encode(schema.plain(value)).decode()
        schema.read(text)
        return text

    def _check_plain(self, text: str) -> None:
        if self._plain is not None:
            try:
                msgspec.json.decode(text, type=self._plain)
            except msgspec.ValidationError as error:
                raise InvalidInput(f"input of {self.name}: {error}") from None

    def decode(self, text: str) -> object:
        """Return the input from its JSON text."""
        if self._schema is None:
            return msgspec.json.decode(text)
        return self._schema.read(text)

    def arguments(self, text: str, context: Context) -> dict[str, object]:
        """Return the arguments that the function is called with."""
        given: dict[str, object] = {}
        if self._input_name is not None:
            given[self._input_name] = self.decode(text)
        if self._context_name is not None:
            given[self._context_name] = context
        return given


class Flow:
    """A named group of actions, with the schedules and webhooks that the code declares."""

    def __init__(self, name: str, *, limits: Limits = DEFAULT_LIMITS, zones: Zones = "any") -> None:
        self.name = check_flow(name)
        self.limits = limits
        """Limits of what an owner may create in this flow."""
        self.zones: Zones = _check_choice("zones", zones, get_args(Zones))
        self.actions: dict[str, Action] = {}
        self.statics: dict[str, StaticSchedule] = {}
        """Schedules declared by the code, by name; all in the system's scope."""
        self.resolver: Resolve | None = None
        self.webhooks: dict[str, Webhook] = {}

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
        """Decorate a function as an action, with or without options."""
        if type(timeout_s) not in (int, float) or not math.isfinite(timeout_s):
            raise InvalidInput(f"timeout_s is {shown(timeout_s)}; pass seconds")
        if isinstance(redact, str):
            raise InvalidInput(f"redact is {redact!r}, one text; pass a list: [{redact!r}]")
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

    def schedule(
        self,
        trigger: TriggerWords,
        *,
        name: str | None = None,
        queue: str | None = None,
        **options: Unpack[StaticOptions],
    ) -> Callable[[Callable[..., Any]], Action]:
        """Declare a schedule in the system's scope; its function becomes an action as well.

        On an action of this flow, that action is scheduled. Invalid declarations are refused here;
        the application writes the declared schedules to the store when it starts.
        """

        def add(function: Callable[..., Any]) -> Action:
            action = function
            if not isinstance(action, Action):
                action = self.action(queue=queue or DEFAULT_QUEUE)(function)
            elif queue is not None:
                raise InvalidInput(f"queue {queue!r}: set it on {action.name}, which is an action")
            elif action not in self.actions.values():
                raise InvalidInput(f"action {action.name} does not belong to flow {self.name!r}")
            short = action.name.removeprefix(f"{self.name}.")
            declared = declare(name or short, trigger, action, options)
            dispatch_id(SYSTEM, declared.name)
            if declared.name in self.statics:
                raise InvalidInput(f"flow {self.name} has a schedule {declared.name!r} already")
            self.statics[declared.name] = declared
            return action

        return add

    def resolve(self, function: ResolveT) -> ResolveT:
        """Decorate the function that resolves schedules which the store does not have.

        It is called with the schedule's id and a context, may be async, and returns a
        ScheduleConfig or None. A flow has at most one.
        """
        if self.resolver is not None:
            raise InvalidInput(f"flow {self.name} has a resolver already")
        self.resolver = function
        return function

    def fit(self, action: str, given: object) -> object:
        """Return an input as the action stores it; InvalidInput if it does not fit."""
        found = self.actions.get(action)
        return given if found is None else msgspec.json.decode(found.encode(given))

    def webhook(
        self,
        name: str,
        *,
        verify: Verify,
        route: Route,
        delivery_id: DeliveryId = None,
        fan_out: bool = False,
        input: Callable[[Routed], object] | None = None,  # noqa: A002
    ) -> Callable[[Callable[..., Any] | Action], Action]:
        """Decorate the action of a webhook; it runs as the owner of the document that is found.

        `delivery_id` identifies a delivery: None (the digest of the signed bytes, or the
        `webhook-id` that Standard Webhooks sign), `body_path(...)`, or `unsigned_header(...)`.
        `input` makes the action's input from the delivery and the document; without it, the input
        is the body.
        """
        check_flow(name)
        if name in self.webhooks:
            raise InvalidInput(f"flow {self.name} has a webhook {name} already")

        def add(function: Callable[..., Any] | Action) -> Action:
            action = function if isinstance(function, Action) else self.action(function)
            short = action.name.partition(".")[2]
            named = delivery_id.lower() if isinstance(delivery_id, str) else delivery_id
            self.webhooks[name] = Webhook(name, short, verify, route, named, fan_out, input)
            return action

        return add


def queues_of(actions: Mapping[str, Action]) -> tuple[str, ...]:
    """Return `default` and every queue that one of the actions declares."""
    declared = {action.queue for action in actions.values()} - {DEFAULT_QUEUE}
    return (DEFAULT_QUEUE, *sorted(declared))


def actions_of(flows: Collection[Flow]) -> dict[str, Action]:
    """Return every action of the flows by its full name; refuse two of one name."""
    found: dict[str, Action] = {}
    named: dict[str, Flow] = {}
    for flow in flows:
        if named.setdefault(flow.name, flow) is not flow:
            raise InvalidInput(
                f"two flows are named {flow.name!r}: each would remove the schedules that the "
                "other declares; make it in one module and import it from there"
            )
        for action in flow.actions.values():
            if found.setdefault(action.name, action) is not action:
                raise InvalidInput(f"two actions are named {action.name}")
    return found


def _parameters(
    name: str, function: Callable[..., Any]
) -> tuple[str | None, str | None, type[Any] | None]:
    """Return the names of the input and context parameters, and the input's schema type."""
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


def _usual_input(function: Callable[..., Any], name: str | None) -> object:
    if name is None:
        return None
    default = inspect.signature(function).parameters[name].default
    return None if default is inspect.Parameter.empty else default


def _has_schema(kind: type[Any]) -> bool:
    # Any is a class too.
    return kind not in (*_PLAIN, object, Any, bytes, datetime)
