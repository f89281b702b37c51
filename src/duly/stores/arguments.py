"""Argument checks for every verb of the port, in one place for all stores.

The rules are the annotations of `duly.stores.port.Store`: a verb with unsuitable arguments raises
InvalidInput before it does anything, with the same text on every backend. Texts must be storable
everywhere (no NUL, no lone surrogate), and numbers must fit their columns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Sequence
from dataclasses import is_dataclass
from enum import Enum
from functools import wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from duly.errors import InvalidInput, shown
from duly.model.dispatches import Fire
from duly.model.documents import DocumentWrite
from duly.model.events import AttemptStatus
from duly.model.index_rows import IndexRow
from duly.model.jobs import JobState, NewJob, is_storable
from duly.model.queues import WorkerInfo
from duly.model.schedule_writes import ScheduleKey, ScheduleWrite
from duly.model.schedules import Definition
from duly.rules.outcomes import Finish
from duly.stores.port import Store

Check = Callable[[str, Any], None]
"""Called with the name of a value and the value; raises InvalidInput."""
StoreT = TypeVar("StoreT", bound=type)

MAX_NUMBER = 2**53
"""Limit of instants and durations in milliseconds, and of audit entry numbers."""
MAX_SMALL_NUMBER = 2**31 - 1
"""Limit of numbers that are stored in 32 bits."""
MAX_NAME_BYTES = 1_100
"""Limit of a text that a database index holds."""

_SMALL = frozenset(
    {
        *("fence", "number", "leases", "pid", "slots", "running", "job_limit", "workspace_limit"),
        *("charge", "priority", "runs_left", "trigger_version", "version"),
    }
)
"""Names of numbers that are stored in 32 bits."""
_NAMES = frozenset(
    {
        *("id", "job_id", "job_ids", "schedule_id", "schedule_ids", "claim_id", "request_id"),
        *("correlation_id", "flow", "flows", "scope", "name", "key", "collection", "attribute"),
        *("queue", "queues", "workspace", "worker", "owner", "action", "actions", "host", "zone"),
        *("by", "target", "before", "prefix"),
    }
)
"""Names of texts that are in a database index, or compared with one."""
_WRITTEN = (DocumentWrite, ScheduleWrite, ScheduleKey, IndexRow, Fire, WorkerInfo)
"""Types whose names and ids must not be empty."""


def checked(store: StoreT) -> StoreT:
    """Wrap every verb of a store class so that it checks its arguments first; return the class."""
    for name, verb in inspect.getmembers(Store, inspect.isfunction):
        method = getattr(store, name, None)
        if not name.startswith("_") and inspect.isfunction(method):
            setattr(store, name, _guarded(method, _checks_of(verb)))
    return store


def _guarded(method: Callable[..., Any], checks: dict[str, Check]) -> Callable[..., Any]:
    in_order = list(checks.items())

    def check(args: tuple[Any, ...], given: dict[str, Any]) -> None:
        for (name, accepts), value in zip(in_order, args, strict=False):
            accepts(name, value)
        for name, value in given.items():
            if name in checks:
                checks[name](name, value)

    if inspect.iscoroutinefunction(method):

        @wraps(method)
        async def run(self: Any, *args: Any, **given: Any) -> Any:
            check(args, given)
            return await method(self, *args, **given)

        return run

    @wraps(method)
    def run_plainly(self: Any, *args: Any, **given: Any) -> Any:
        check(args, given)
        return method(self, *args, **given)

    return run_plainly


def _checks_of(verb: Callable[..., Any]) -> dict[str, Check]:
    hints = get_type_hints(verb)
    names = [name for name in inspect.signature(verb).parameters if name != "self"]
    return {name: _check_of(hints[name], name) for name in names}


def _check_of(hint: Any, name: str) -> Check:
    """Return the check of an annotation; `name` is the argument's or the field's own."""
    hint = getattr(hint, "__supertype__", hint)
    origin, inside = get_origin(hint), get_args(hint)
    if hint is Any:
        return _anything
    if hint in (str, int, bool):
        return _check_scalar(hint, name)
    if origin in (Union, UnionType):
        return _check_union([each for each in inside if each is not type(None)], name, inside)
    if origin is Literal:
        return _check_choice(inside)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _check_choice(tuple(each.value for each in hint))
    if origin is tuple and Ellipsis not in inside:
        return _check_pair([_check_of(each, name) for each in inside])
    if inside == (Finish,):
        return _check_finishes
    if isinstance(origin, type) and issubclass(origin, Collection):
        kind = Collection if origin is Collection else Sequence
        return _check_many(kind, _check_of(inside[0], name))
    if hint is NewJob:  # it cannot change since it was checked when it was made
        return _check_kind(NewJob)
    if hint is Definition:
        return _check_definition
    if isinstance(hint, type):
        return _check_fields(hint)
    return _check_callable


def _anything(_what: str, _value: object) -> None:
    pass


def _check_scalar(hint: type, name: str) -> Check:
    if hint is str:
        return _check_name if name in _NAMES else _check_text
    if hint is bool:
        return _check_flag
    return _check_small if name in _SMALL else _check_number


def _check_text(what: str, value: object) -> None:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} is {shown(value)}; it must be text")
    if not is_storable(value):
        raise InvalidInput(
            f"{what} is {shown(value)!a}; NUL characters and lone surrogates cannot be stored; "
            "remove or escape them"
        )


def _check_name(what: str, value: object) -> None:
    _check_text(what, value)
    assert isinstance(value, str)
    if len(value) * 4 > MAX_NAME_BYTES and (size := len(value.encode())) > MAX_NAME_BYTES:
        raise InvalidInput(f"{what} has {size} bytes; allowed: {MAX_NAME_BYTES}")


def _check_flag(what: str, value: object) -> None:
    if type(value) is not bool:
        raise InvalidInput(f"{what} is {shown(value)}; it must be True or False")


def _check_number(what: str, value: object, most: int = MAX_NUMBER) -> None:
    if type(value) is not int:
        raise InvalidInput(f"{what} is {shown(value)}; it must be a whole number")
    if not -most <= value <= most:
        raise InvalidInput(f"{what} is {shown(value)}; allowed: {-most} to {most}")


def _check_small(what: str, value: object) -> None:
    _check_number(what, value, MAX_SMALL_NUMBER)


def _check_choice(allowed: tuple[Any, ...]) -> Check:
    def check(what: str, value: object) -> None:
        if not isinstance(value, str) or value not in allowed:
            words = ", ".join(map(str, allowed))
            raise InvalidInput(f"{what} is {shown(value)}; allowed: {words}")

    return check


def _check_union(members: list[Any], name: str, inside: tuple[Any, ...]) -> Check:
    """Return the check of `X | None`; no verb takes any other union."""
    assert len(members) == 1, f"{name} is one of {members}"
    accepts = _check_of(members[0], name)
    if type(None) not in inside:
        return accepts

    def check(what: str, value: object) -> None:
        if value is not None:
            accepts(what, value)

    return check


def _check_pair(parts: list[Check]) -> Check:
    def check(what: str, value: object) -> None:
        if not isinstance(value, tuple) or len(value) != len(parts):
            raise InvalidInput(f"{what} is {shown(value)}; it must be a tuple of {len(parts)}")
        for accepts, part in zip(parts, value, strict=True):
            accepts(what, part)

    return check


def _check_list(what: str, value: object, kind: Any = Sequence) -> None:
    if not isinstance(value, kind) or isinstance(value, str | bytes):
        raise InvalidInput(f"{what} is {shown(value)}; it must be a list")


def _check_many(kind: Any, accepts: Check) -> Check:
    def check(what: str, value: Any) -> None:
        _check_list(what, value, kind)
        for each in value:
            accepts(what, each)

    return check


def _check_kind(kind: type) -> Check:
    def check(what: str, value: object) -> None:
        if not isinstance(value, kind):
            raise InvalidInput(f"{what} is {shown(value)}; it must be a {kind.__name__}")

    return check


def _check_present(what: str, value: object) -> None:
    _check_name(what, value)
    if not value:
        raise InvalidInput(f"{what} is empty; it must be text")


def _check_fields(kind: type) -> Check:
    """Return the check of a dataclass or named tuple: its type, then each field."""
    assert is_dataclass(kind) or hasattr(kind, "_fields"), kind
    is_kind = _check_kind(kind)
    fields = [(name, _check_of(hint, name)) for name, hint in get_type_hints(kind).items()]
    if kind in _WRITTEN:
        fields = [
            (name, _check_present if accepts is _check_name else accepts)
            for name, accepts in fields
        ]

    rules: Callable[[Any], None] | None = None
    if kind in _WRITTEN:
        rules = getattr(kind, "__post_init__", None)

    def check(what: str, value: object) -> None:
        is_kind(what, value)
        for name, accepts in fields:
            accepts(name, getattr(value, name))
        if rules is not None:
            rules(value)

    return check


_is_definition = _check_kind(Definition)


def _check_definition(what: str, value: object) -> None:
    """Check the texts of a definition, which itself accepts NULs to keep stored ones readable."""
    _is_definition(what, value)
    assert isinstance(value, Definition)
    _check_text("description", value.description)
    _check_text("note", value.note)


def _check_callable(what: str, value: object) -> None:
    if not callable(value):
        raise InvalidInput(f"{what} is {shown(value)}; it must be a function")


_check_finish = _check_fields(Finish)
_FINISH_STATUSES = frozenset(get_args(AttemptStatus))


def _check_finishes(what: str, value: Any) -> None:
    """Check completions by column, since a worker sends thousands per second.

    A batch with anything unusual is checked item by item, which finds the field to refuse.
    """
    _check_list(what, value)
    if not _are_usual(value):
        for each in value:
            _check_finish(what, each)


_USUAL: tuple[set[type], ...] = (
    {str},  # job_id
    {int},  # fence
    {JobState},
    {str},  # status
    {int},  # charge
    {JobState, NoneType},  # via
    {int, NoneType},  # delay_ms
    {str, NoneType},  # result
    {str, NoneType},  # error
    {str, NoneType},  # schedule_id
    {int, NoneType},  # took_ms
    {str, NoneType},  # progress
    {bool},  # isolate
)
"""Types of each column of completions, in the field order of Finish."""


def _are_usual(finishes: Sequence[Any]) -> bool:
    if set(map(type, finishes)) != {Finish}:
        return not finishes
    columns = list(zip(*finishes, strict=True))
    kinds = [set(map(type, column)) for column in columns]
    if not all(map(set.issubset, kinds, _USUAL)) or not _FINISH_STATUSES.issuperset(columns[3]):
        return False
    for column, has in zip(columns, kinds, strict=True):
        given = column if NoneType not in has else [each for each in column if each is not None]
        if int in has and not -MAX_SMALL_NUMBER <= min(given) <= max(given) <= MAX_SMALL_NUMBER:
            return False
        if str in has and not is_storable("".join(given)):
            return False
    names = [*columns[0], *filter(None, columns[9])]
    return max(map(len, names)) * 4 <= MAX_NAME_BYTES
