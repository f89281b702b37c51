"""Limits on the size and nesting depth of values to be encoded as JSON.

A check raises InvalidInput as soon as the JSON form must be larger than allowed, without encoding
the value or reading the rest of it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any, NoReturn

from duly.errors import InvalidInput

MAX_JSON_DEPTH = 100
"""Levels of nested lists and objects; a limit of Duly, the same on every Python version."""

_ENVELOPE_LEVELS = 8
_TOKENS = re.compile(rb'"(?:[^"\\]|\\.)*+"?|[\[\]{}]', re.DOTALL)
"""Strings (their brackets do not count), and brackets."""
_SCALARS = frozenset({int, float, bool, type(None)})


def check_json_bounds(what: str, value: object, max_bytes: int) -> None:
    """Refuse a value whose JSON form has more than `max_bytes` bytes or is nested too deeply.

    The size is a lower bound: a value that passes may still be too large when it is encoded.
    At most about `max_bytes` items are read, however large the value is.
    """
    if type(value) in _SCALARS:
        return
    size, depth = 0, 0
    level: list[Any] = [value]
    while level:
        depth += 1
        if depth > MAX_JSON_DEPTH and any(map(_has_levels, level)):
            _refuse_depth(what)
        deeper: list[Any] = []
        for item in level:
            kind = type(item)
            if kind is str:
                size += len(item) + 2
            elif kind is dict or isinstance(item, dict):
                # At least `"":0` for each entry; a value inside another was counted as one byte.
                size += 1 + 4 * len(item)
                if size <= max_bytes:
                    size += _add(item.values(), deeper)
                    size += sum(len(key) for key in item if type(key) is str)
            elif isinstance(item, list | tuple | set | frozenset):
                size += 2 * len(item)
                if size <= max_bytes:
                    size += _add(item, deeper)
            elif isinstance(item, bytes | bytearray | memoryview):
                size += len(item)
            else:
                size += _add(_field_values(item), deeper)
            if size > max_bytes:
                raise too_large(what, max_bytes)
        level = deeper


def check_json_text(what: str, text: str | bytes) -> None:
    """Refuse JSON text that is nested too deeply, before it is decoded.

    A few levels more than MAX_JSON_DEPTH are allowed: a request wraps the value it carries.
    """
    raw = text.encode(errors="replace") if isinstance(text, str) else text
    most = MAX_JSON_DEPTH + _ENVELOPE_LEVELS
    if raw.count(b"[") + raw.count(b"{") <= most:
        return
    depth = 0
    for token in _TOKENS.finditer(raw):
        mark = token[0]
        if mark in (b"[", b"{"):
            depth += 1
            if depth > most:
                _refuse_depth(what)
        elif mark in (b"]", b"}"):
            depth -= 1


def too_large(what: str, max_bytes: int) -> InvalidInput:
    """Return the error for a value whose JSON form is too large."""
    return InvalidInput(
        f"{what} has more than {max_bytes} bytes as JSON; allowed: {max_bytes}. "
        "Store large data elsewhere and pass a reference to it"
    )


def _add(items: Iterable[Any], deeper: list[Any]) -> int:
    """Append the containers to `deeper`; return the size of the strings among the items."""
    size = 0
    for item in items:
        kind = type(item)
        if kind is str:
            size += len(item)
        elif kind not in _SCALARS:
            deeper.append(item)
    return size


def _field_values(item: object) -> Collection[Any]:
    """Return the fields of a dataclass, Struct or pydantic model; of anything else, nothing."""
    kind = type(item)
    names: Iterable[str] = getattr(kind, "__struct_fields__", ()) or getattr(
        kind, "__dataclass_fields__", ()
    )
    if not names and hasattr(kind, "model_fields"):
        # A custom serializer may write less than the fields contain.
        decorators = getattr(kind, "__pydantic_decorators__", None)
        if getattr(decorators, "field_serializers", None) or getattr(
            decorators, "model_serializers", None
        ):
            return ()
        names = [name for name, field in kind.model_fields.items() if not field.exclude]
    return [getattr(item, name, None) for name in names]


def _has_levels(item: object) -> bool:
    return isinstance(item, dict | list | tuple | set | frozenset) or bool(_field_values(item))


def _refuse_depth(what: str) -> NoReturn:
    raise InvalidInput(
        f"{what} is nested more than {MAX_JSON_DEPTH} levels deep; allowed: {MAX_JSON_DEPTH}"
    )
