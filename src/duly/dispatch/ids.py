"""The id of a schedule in a dispatch URL, read from the raw path. Pure.

An id is `<owner>/<name>`, each part percent-encoded and decoded once. Ids that no schedule can have
are refused here; resolvers may define other forms.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from duly.errors import InvalidInput
from duly.model.schedules import ScheduleId
from duly.model.scopes import MAX_DISPATCH_ID, SYSTEM, Scope, check_name, user

# `|` is not allowed in URLs, but user ids of the form `auth0|abc` arrive unencoded.
_WRITTEN = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/|-]|%[0-9A-Fa-f]{2})+")
_WORKSPACE = "workspace:"


@dataclass(frozen=True, slots=True)
class DispatchId:
    """An id, split at its first slash."""

    text: str
    """The id as in the URL."""
    owner: str | None
    """The decoded owner; None: the id has no slash."""
    name: str

    @property
    def canonical(self) -> str:
        """The same text for every encoding of one id."""
        name = quote(self.name, safe="")
        return name if self.owner is None else f"{quote(self.owner, safe='')}/{name}"

    @property
    def key(self) -> tuple[Scope, str] | None:
        """The owner's scope and the name; None: one of them is missing or empty."""
        if not self.owner or not self.name:
            return None
        return scope_of(self.owner), self.name


def scope_of(owner: str) -> Scope:
    """Return the scope of an owner in a dispatch URL."""
    if owner == "system":
        return SYSTEM
    if owner.startswith(_WORKSPACE):
        return Scope("workspace", owner.removeprefix(_WORKSPACE))
    return user(owner)


def read_id(raw: str) -> DispatchId | None:
    """Return the id of a raw path; None: it is too long or invalid."""
    if len(raw) > MAX_DISPATCH_ID or not _WRITTEN.fullmatch(raw):
        return None
    before, slash, after = raw.partition("/")
    try:
        parts = [unquote_to_bytes(each).decode() for each in (before, after)]
        for part in parts:
            if part:
                check_name("part", part, most=MAX_DISPATCH_ID)
        owner, name = parts if slash else (None, parts[0])
        if name:
            check_name("name", name)
        if owner:
            scope_of(owner)
    except (UnicodeDecodeError, InvalidInput):
        return None
    return DispatchId(raw, owner, name)


def unstored_id(flow: str, target: DispatchId) -> ScheduleId:
    """Return the id of a schedule that is kept elsewhere, derived from flow and URL id."""
    digest = sha256(f"{flow}/{target.canonical}".encode()).hexdigest()
    return ScheduleId(f"ext_{digest[:32]}")
