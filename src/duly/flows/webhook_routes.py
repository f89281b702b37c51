"""Webhooks as a flow declares them: how a delivery is verified, identified and routed.

Values only: the steps are in `dispatch.webhooks`. A route names a sparse index, so that the owner
of a delivery is found by one query. What identifies a delivery must be covered by its signature;
anything else has to be declared as unsigned.
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
    """Check that a delivery comes from its sender.

    A verifier whose signature also covers headers names them, in lower case, in an attribute
    `signed_headers`; without that attribute the signature is taken to cover the body alone.
    """

    def __call__(self, headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        """Answer for lower-case headers, the raw body and the time."""


class HasName(Protocol):
    """A collection, as far as a route needs to know it."""

    @property
    def name(self) -> str:
        """What the collection is called."""


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
"""How a delivery is told from others; a plain text is a header that the signature covers."""


@dataclass(frozen=True, slots=True)
class Route:
    """From a delivery's body to the documents it is about."""

    collection: str
    attribute: str
    value: Callable[[Any], str | int | bool | None]


@dataclass(frozen=True, slots=True)
class Routed:
    """A delivery that found a document, from which an input is made."""

    body: Any
    name: str
    """Of the document."""
    document: Any
    """The stored document as plain JSON."""


@dataclass(frozen=True, slots=True)
class Webhook:
    """One endpoint for all owners."""

    name: str
    action: str
    verify: Verify
    route: Route
    delivery_id: DeliveryId = None
    """Where the idempotency key comes from; None: the digest of the signed bytes, or the
    `webhook-id` header where the signature covers it."""
    fan_out: bool = False
    """Whether all documents with the value get the delivery; else a second one is refused."""
    input: Callable[[Routed], object] | None = None
    """Makes the action's input; None: the body itself."""

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

    Whoever captured one delivery can repeat it under a new id, as often as they like.
    """
    return UnsignedHeader(name.lower())


def attribute_of(
    collection: str | HasName, attribute: str, *, value: Callable[[Any], str | int | bool | None]
) -> Route:
    """Route by an indexed attribute; `value` returns it from the body, or None if there is none.

    `value` is a function of the body, such as `body_path("payload.project.id")`.
    """
    return Route(collection if isinstance(collection, str) else collection.name, attribute, value)
