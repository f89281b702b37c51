"""Documents (scoped JSON with a version) and writes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ABSENT = 0
"""As an expected version: the document must not exist yet."""


@dataclass(frozen=True, slots=True)
class Document:
    """One stored resource: scoped JSON with a version."""

    collection: str
    scope: str
    name: str
    id: str
    body: str
    """JSON text."""
    version: int
    created_at_ms: int
    updated_at_ms: int


@dataclass(frozen=True, slots=True)
class DocumentWrite:
    """A request of put_document()."""

    collection: str
    scope: str
    name: str
    id: str
    """Used if the document is new; an existing one keeps its id."""
    body: str
    entries: tuple[tuple[str, str], ...] = ()
    """(attribute, value) pairs of the sparse index; they replace all earlier pairs."""
    expected_version: int | None = None
    """ABSENT, a version, or None: any."""
    scope_limit: int | None = None
    """Refuse a new document if the scope already has this many; None: no limit."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write was applied."""

    document: Document
    created: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The write was refused; nothing changed."""

    reason: Literal["stale", "exists", "absent", "full"]
    version: int
    """The version found (0: none); with "full", the count against the limit."""
    limit: Literal["schedules", "schedules_per_flow"] = "schedules"
    """With "full" of a schedule: which of its Limits was reached."""
