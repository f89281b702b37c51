"""Documents: scoped JSON with a version, and the writes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

ABSENT = 0
"""As an expected version: the thing must not exist yet."""


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
    """What put_document() is asked to store."""

    collection: str
    scope: str
    name: str
    id: str
    """Taken when the document is new; an existing one keeps its own."""
    body: str
    entries: tuple[tuple[str, str], ...] = ()
    """(attribute, value) pairs of the sparse index; they replace all earlier ones."""
    expected_version: int | None = None
    """ABSENT, a version, or None for "whatever is there"."""
    scope_limit: int | None = None
    """Refuse a new document when the scope already holds so many."""


@dataclass(frozen=True, slots=True)
class Written:
    """The write happened."""

    document: Document
    created: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The write did not happen, and nothing changed."""

    reason: Literal["stale", "exists", "absent", "full"]
    version: int
    """The version found (0: none); with "full", how many are counted against the limit."""
    limit: Literal["schedules", "schedules_per_flow"] = "schedules"
    """With "full" of a schedule: which of its Limits."""
