"""Webhooks as a flow declares them: how a delivery is verified, and whose it is.

Values only: the steps are in `dispatch.webhooks`. A route names a sparse index, so that the owner
of a delivery is found by one query, and a value that nobody has is found by none.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from duly.errors import InvalidInput

_FIELD = re.compile(r"[!#$%&'*+.^_`|~0-9a-z-]+")


class Verify(Protocol):
    """Whether a delivery comes from who it says."""

    def __call__(self, headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        """Answer for lower-case headers, the raw body and the time."""


class HasName(Protocol):
    """A collection, as far as a route needs to know it."""

    @property
    def name(self) -> str:
        """What the collection is called."""


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
    delivery_id: str
    """The header whose value is the idempotency key."""
    fan_out: bool = False
    """Whether all documents with the value get the delivery; else a second one is refused."""
    input: Callable[[Routed], object] | None = None
    """Makes the action's input; None: the body itself."""

    def __post_init__(self) -> None:
        if not _FIELD.fullmatch(self.delivery_id):
            raise InvalidInput(
                f"delivery_id {self.delivery_id!r} of webhook {self.name}; pass the name of the "
                "header that is unique to a delivery"
            )


def attribute_of(
    collection: str | HasName, attribute: str, *, value: Callable[[Any], str | int | bool | None]
) -> Route:
    """Route by an indexed attribute; `value` finds it in the body, None: it is not there."""
    return Route(collection if isinstance(collection, str) else collection.name, attribute, value)
