"""Scopes: owners of schedules, jobs and documents.

A scope is `system`, `workspace:<id>` or `user:<id>`. Ids are checked once, here, by the rules of
the dispatch URL, so that everything that is stored can be dispatched.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Literal, cast, get_args
from urllib.parse import quote

from duly.errors import InvalidInput

ScopeKind = Literal["system", "workspace", "user"]
MAX_NAME = 128
MAX_DISPATCH_ID = 1024
_FLOW = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """An owner; str() is the stored form."""

    kind: ScopeKind
    id: str = ""

    def __post_init__(self) -> None:
        if self.kind not in get_args(ScopeKind):
            raise InvalidInput(f"scope {self.kind!r}; allowed: {', '.join(get_args(ScopeKind))}")
        if self.kind == "system":
            if self.id:
                raise InvalidInput(f"the system scope has no id, not even {self.id!r}")
            return
        check_name(f"{self.kind} id", self.id, most=MAX_DISPATCH_ID)
        size = len(quote(self.owner, safe=""))
        if size > MAX_DISPATCH_ID:
            raise InvalidInput(
                f"{self.kind} id {self.id[:40]!r}... has {size} characters when percent-encoded; "
                f"allowed: {MAX_DISPATCH_ID}"
            )

    @classmethod
    def parse(cls, text: str) -> Scope:
        """Return the scope of its stored form; refuse an invalid one."""
        kind, _, owner = text.partition(":")
        return cls(cast(ScopeKind, kind), owner)

    @classmethod
    def of(cls, given: object) -> Scope:
        """Return a scope unchanged, or the scope of a stored form."""
        return given if isinstance(given, Scope) else cls.parse(str(given))

    def __str__(self) -> str:
        return self.kind if self.kind == "system" else f"{self.kind}:{self.id}"

    @property
    def owner(self) -> str:
        """Return the scope as in a dispatch URL: for a user, the bare id."""
        return self.id if self.kind == "user" else str(self)


SYSTEM = Scope("system")


def user(user_id: str) -> Scope:
    """Return the scope of one user."""
    return Scope("user", user_id)


def workspace(workspace_id: str) -> Scope:
    """Return the scope of a workspace; refuse a reserved id."""
    return Scope("workspace", check_workspace(workspace_id))


_RESERVED = ("user:", "workspace:")


def check_workspace(workspace_id: str) -> str:
    """Return a workspace id; refuse one reserved for the jobs of users or the system.

    Jobs of a user without a workspace count in `user:<id>`, those of the system in `system`. A
    workspace of that name would share their turns and idempotency keys. Stored ids stay readable:
    only new input is checked.
    """
    if workspace_id == "system" or str(workspace_id).startswith(_RESERVED):
        raise InvalidInput(
            f"workspace {workspace_id!r} is reserved: it may not be 'system' nor begin with "
            "'user:' or 'workspace:'; pass the id of a workspace, such as 'acme'"
        )
    return workspace_id


def check_new_owner(scope: Scope) -> Scope:
    """Return the owner of something new; refuse a workspace with a reserved id."""
    if scope.kind == "workspace":
        check_workspace(scope.id)
    return scope


def place_of_jobs(scope: Scope, named: str | None = None) -> str:
    """Return the workspace of an owner's new jobs: the named one, else the owner's own."""
    own = workspace_of(check_new_owner(scope))
    return own if named in (None, own) else check_workspace(named)


def workspace_of(scope: Scope) -> str:
    """Return the workspace of an owner's jobs: its id, or the stored form of another scope."""
    return scope.id if scope.kind == "workspace" else str(scope)


def check_name(what: str, text: str, *, most: int = MAX_NAME) -> str:
    """Return a name; refuse one that cannot be percent-encoded in a URL path."""
    given: object = text
    if not isinstance(given, str) or not given:
        raise InvalidInput(f"{what} is {given!r}; it must be non-empty text")
    if len(given) > most:
        raise InvalidInput(f"{what} {given[:40]!r}... is longer than {most} characters")
    if given in (".", ".."):
        raise InvalidInput(f"{what} {given!r} is not allowed: a URL cannot hold it")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in given):
        raise InvalidInput(f"{what} {given!r} has a control character or half a surrogate pair")
    return given


def dispatch_id(scope: Scope, name: str) -> str:
    """Return `<owner>/<name>`, each part percent-encoded; refuse one that is too long."""
    check_name("schedule name", name)
    if scope.kind == "user" and (scope.id == "system" or scope.id.startswith("workspace:")):
        raise InvalidInput(f"user id {scope.id!r} reads as another scope in a dispatch URL")
    encoded = f"{quote(scope.owner, safe='')}/{quote(name, safe='')}"
    if len(encoded) > MAX_DISPATCH_ID:
        raise InvalidInput(
            f"schedule {name!r} of {scope}: the dispatch id has {len(encoded)} characters; "
            f"allowed: {MAX_DISPATCH_ID}"
        )
    return encoded


def check_flow(flow: str) -> str:
    """Return a flow name; refuse characters other than lower-case letters, digits, `-` and `_`."""
    if not isinstance(flow, str) or not _FLOW.fullmatch(flow):
        raise InvalidInput(
            f"flow {str(flow)[:80]!r}; allowed: a-z, 0-9, - and _, at most 64, "
            "a letter or digit first"
        )
    return flow
