"""The values of resource collections: documents, their limits, hooks and indexed attributes."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Literal, TypeVar

import msgspec

from duly.errors import InvalidInput
from duly.model.scopes import Scope

T = TypeVar("T")
MAX_BODY_BYTES = 262_144
MAX_INDEXED = 512
"""Most bytes of an indexed value as stored, including two for its type."""


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A stored value with its key, version and timestamps."""

    value: T
    scope: Scope
    name: str
    id: str
    version: int
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class BeforeWrite(Generic[T]):
    """A write that a hook checks: the hook returns to allow it and raises to refuse it."""

    kind: Literal["create", "update", "delete"]
    scope: Scope
    name: str
    old: T | None
    new: T | None


Hook = Callable[[BeforeWrite[T]], Awaitable[None] | None]


@dataclass(frozen=True, slots=True)
class CollectionLimits:
    """The limits of a collection."""

    name_pattern: str | None = None
    """A regular expression for the whole name; None: any name that can stand in a URL."""
    per_scope: int | None = 1_000
    body_bytes: int = MAX_BODY_BYTES

    def __post_init__(self) -> None:
        try:
            re.compile(self.name_pattern or "")
        except re.error as error:
            raise InvalidInput(f"name_pattern {self.name_pattern!r}: {error}") from None
        if self.per_scope is not None and self.per_scope < 1:
            raise InvalidInput(f"per_scope is {self.per_scope}; allowed: 1 and more, or None")
        if not 1 <= self.body_bytes <= MAX_BODY_BYTES:
            raise InvalidInput(f"body_bytes is {self.body_bytes}; allowed: 1 to {MAX_BODY_BYTES}")


DEFAULT_COLLECTION_LIMITS = CollectionLimits()


@dataclass(frozen=True, slots=True)
class Packed(Generic[T]):
    """A value as a hook sees it and as the store keeps it."""

    value: T
    body: str
    entries: tuple[tuple[str, str], ...]


def indexed_text(attribute: str, value: object) -> str | None:
    """Return an indexed value as stored, with its type; None: it is not indexed."""
    try:
        given = msgspec.to_builtins(value)
    except TypeError:
        given = value
    match given:
        case None:
            return None
        case bool():
            text = f"b:{str(given).lower()}"
        case int():
            text = f"i:{given}"
        case str():
            text = f"s:{given}"
        case _:
            raise InvalidInput(
                f"{attribute} is a {type(value).__name__}; only text, whole numbers and true or "
                "false can be indexed"
            )
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidInput(f"{attribute} has a lone surrogate (half of a character)") from None
    if size > MAX_INDEXED:
        raise InvalidInput(f"{attribute} has {size} bytes; indexed: at most {MAX_INDEXED}")
    if "\0" in text:
        raise InvalidInput(f"{attribute} has a NUL character, which no index can hold")
    return text
