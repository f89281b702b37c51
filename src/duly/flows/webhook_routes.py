"""Webhooks as a flow declares them: how a delivery is verified, identified and routed.

Only declarations; the steps are in `dispatch.webhooks`. A route names a sparse index, so that the
owner of a delivery is found by one query. The id of a delivery must be covered by its signature;
otherwise it has to be declared as unsigned.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from duly.errors import InvalidInput

MAX_PATH_KEYS = 32
_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class Verify(Protocol):
    """A function that checks that a delivery comes from its sender.

    A verifier whose signature also covers headers names them, in lower case, in an attribute
    `signed_headers`; without that attribute the signature is taken to cover the body alone.
    """

    def __call__(self, headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        """Return whether the signature is valid; `headers` have lower-case names."""


class HasName(Protocol):
    """The part of a collection that a route needs."""

    @property
    def name(self) -> str:
        """The name of the collection."""


@dataclass(frozen=True, slots=True)
class BodyPath:
    """A place in a JSON body."""

    keys: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.keys or not all(self.keys) or len(self.keys) > MAX_PATH_KEYS:
            raise InvalidInput(
                f"body path {'.'.join(self.keys)!r} must have 1 to {MAX_PATH_KEYS} names "
                "separated by dots, none of them empty, as in body_path('payload.project.id')"
            )

    def __call__(self, body: Any) -> Any:
        """Return the value at this place; None if the body does not have it."""
        found = body
        for key in self.keys:
            if isinstance(found, dict):
                found = found.get(key)
            elif isinstance(found, list) and key.isascii() and key.isdigit():
                found = found[int(key)] if len(key) < 10 and int(key) < len(found) else None
            else:
                return None
        return found

    def __str__(self) -> str:
        return ".".join(self.keys)


@dataclass(frozen=True, slots=True)
class UnsignedHeader:
    """A header that the signature does not cover."""

    name: str

    def __post_init__(self) -> None:
        if not _FIELD.fullmatch(self.name):
            raise InvalidInput(f"header {self.name!r} is not the name of an HTTP header")


DeliveryId = BodyPath | UnsignedHeader | str | None
"""The id of a delivery; a plain text names a header that the signature covers."""


@dataclass(frozen=True, slots=True)
class Route:
    """A lookup from a delivery's body to its documents."""

    collection: str
    attribute: str
    value: Callable[[Any], str | int | bool | None]


@dataclass(frozen=True, slots=True)
class Routed:
    """A delivery and a document that it is about, from which an input is made."""

    body: Any
    name: str
    """The name of the document."""
    document: Any
    """The stored document as plain JSON."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """A webhook endpoint, shared by all owners."""

    name: str
    action: str
    verify: Verify
    route: Route
    delivery_id: DeliveryId = None
    """The source of the idempotency key; None: the digest of the signed bytes, or the
    `webhook-id` header if the signature covers it."""
    fan_out: bool = False
    """Whether all documents with the value get the delivery; else several are refused."""
    input: Callable[[Routed], object] | None = None
    """Returns the action's input; None: the input is the body."""

    def __post_init__(self) -> None:
        named = self.delivery_id
        if named is None or isinstance(named, BodyPath | UnsignedHeader):
            return
        if isinstance(named, str) and named in self.signed_headers:
            return
        raise InvalidInput(
            f"delivery_id {named!r} of webhook {self.name} is a header that its signature does "
            "not cover, so a captured delivery could be repeated under a new id. Omit delivery_id "
            "(digest of the signed bytes), take the id from the signed body with "
            f"body_path('id'), or accept the risk with unsigned_header({named!r})"
        )

    @property
    def signed_headers(self) -> tuple[str, ...]:
        """Names of the headers that the signature covers."""
        return tuple(getattr(self.verify, "signed_headers", ()))


def body_path(path: str) -> BodyPath:
    """Return the place `path` of a JSON body, as in `payload.project.id` or `events.0.id`."""
    return BodyPath(tuple(path.split(".")))


def unsigned_header(name: str) -> UnsignedHeader:
    """Return a header as the delivery id although the signature does not cover it.

    Anyone who captured one delivery can repeat it under a new id, any number of times.
    """
    return UnsignedHeader(name.lower())


def attribute_of(
    collection: str | HasName, attribute: str, *, value: Callable[[Any], str | int | bool | None]
) -> Route:
    """Route by an indexed attribute; `value` returns it from the body, or None if there is none.

    `value` is a function of the body, such as `body_path("payload.project.id")`.
    """
    return Route(collection if isinstance(collection, str) else collection.name, attribute, value)
