"""The id of a schedule in a dispatch URL, read from the raw path. Pure.

Takes `<owner>/<name>` with each part percent-encoded; gives the parts decoded once. What could
stand for no schedule at all is refused here; the shape of an id is its resolver's affair.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, unquote_to_bytes

from duly.errors import InvalidInput
from duly.model.schedules import ScheduleId
from duly.model.scopes import MAX_DISPATCH_ID, SYSTEM, Scope, check_name, user

# `|` belongs into no URL, but user ids of the form `auth0|abc` come unencoded all the same.
_WRITTEN = re.compile(r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/|-]|%[0-9A-Fa-f]{2})+")
_WORKSPACE = "workspace:"


@dataclass(frozen=True, slots=True)
class DispatchId:
    """An id, taken apart at its first slash."""

    text: str
    """As it stands in the URL."""
    owner: str | None
    """None: the id has no slash."""
    name: str

    @property
    def canonical(self) -> str:
        """One text for all ways of encoding the same id."""
        name = quote(self.name, safe="")
        return name if self.owner is None else f"{quote(self.owner, safe='')}/{name}"

    @property
    def key(self) -> tuple[Scope, str] | None:
        """Whose schedule it is and its name; None where it names no owner, or no name."""
        if not self.owner or not self.name:
            return None
        return scope_of(self.owner), self.name


def scope_of(owner: str) -> Scope:
    """The scope that an owner stands for in a dispatch URL."""
    if owner == "system":
        return SYSTEM
    if owner.startswith(_WORKSPACE):
        return Scope("workspace", owner.removeprefix(_WORKSPACE))
    return user(owner)


def read_id(raw: str) -> DispatchId | None:
    """The id of a raw path; None where it is too long or not an id at all."""
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
    """The identity of a schedule that is kept elsewhere: the same for the same URL."""
    digest = sha256(f"{flow}/{target.canonical}".encode()).hexdigest()
    return ScheduleId(f"ext_{digest[:32]}")
