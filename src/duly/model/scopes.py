"""Station 2: who owns a thing.

A scope is `system`, `workspace:<id>` or `user:<id>`. Ids are checked here once, by the rule of the
dispatch URL, so that nothing can be stored that could never be dispatched.
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
        """The scope of its stored form."""
        kind, _, owner = text.partition(":")
        return cls(cast(ScopeKind, kind), owner)

    @classmethod
    def of(cls, given: object) -> Scope:
        """Return a scope as it is, or that of a stored form."""
        return given if isinstance(given, Scope) else cls.parse(str(given))

    def __str__(self) -> str:
        return self.kind if self.kind == "system" else f"{self.kind}:{self.id}"

    @property
    def owner(self) -> str:
        """How the scope stands in a dispatch URL: a user by the bare id."""
        return self.id if self.kind == "user" else str(self)


SYSTEM = Scope("system")


def user(user_id: str) -> Scope:
    """The scope of one user."""
    return Scope("user", user_id)


def workspace(workspace_id: str) -> Scope:
    """Return the scope of a workspace; InvalidInput for an id that is reserved."""
    return Scope("workspace", check_workspace(workspace_id))


_RESERVED = ("user:", "workspace:")


def check_workspace(workspace_id: str) -> str:
    """Refuse a workspace id that reads as the place of a user's or the system's jobs.

    Jobs of a user without a workspace count in `user:<id>`, those of the system in `system`. A
    workspace of that name would share their turns and idempotency keys. Stored ones stay readable:
    this is asked where a name comes in, and not where one is read.
    """
    if workspace_id == "system" or str(workspace_id).startswith(_RESERVED):
        raise InvalidInput(
            f"workspace {workspace_id!r} is reserved: it may not be 'system' nor begin with "
            "'user:' or 'workspace:'; pass the id of a workspace, such as 'acme'"
        )
    return workspace_id


def check_new_owner(scope: Scope) -> Scope:
    """Refuse to give anything new to a workspace whose id is reserved."""
    if scope.kind == "workspace":
        check_workspace(scope.id)
    return scope


def place_of_jobs(scope: Scope, named: str | None = None) -> str:
    """Return the workspace of an owner's new jobs: the one that is named, else the owner's own."""
    own = workspace_of(check_new_owner(scope))
    return own if named in (None, own) else check_workspace(named)


def workspace_of(scope: Scope) -> str:
    """The workspace of an owner's jobs: its own, or the user where there is none."""
    return scope.id if scope.kind == "workspace" else str(scope)


def check_name(what: str, text: str, *, most: int = MAX_NAME) -> str:
    """Refuse a name that could not stand, percent-encoded, in a URL path."""
    given: object = text
    if not isinstance(given, str) or not given:
        raise InvalidInput(f"{what} is {given!r}; it must be text that is not empty")
    if len(given) > most:
        raise InvalidInput(f"{what} {given[:40]!r}... is longer than {most} characters")
    if given in (".", ".."):
        raise InvalidInput(f"{what} {given!r} is not allowed: a URL cannot hold it")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in given):
        raise InvalidInput(f"{what} {given!r} has a control character or half a surrogate pair")
    return given


def dispatch_id(scope: Scope, name: str) -> str:
    """`<owner>/<name>` with each part percent-encoded; refused where it would be too long."""
    check_name("schedule name", name)
    if scope.kind == "user" and (scope.id == "system" or scope.id.startswith("workspace:")):
        raise InvalidInput(f"user id {scope.id!r} reads as another scope in a dispatch URL")
    encoded = f"{quote(scope.owner, safe='')}/{quote(name, safe='')}"
    if len(encoded) > MAX_DISPATCH_ID:
        raise InvalidInput(
            f"schedule {name!r} of {scope}: its dispatch id has {len(encoded)} characters, "
            f"allowed are {MAX_DISPATCH_ID}"
        )
    return encoded


def check_flow(flow: str) -> str:
    """Refuse a flow name that is not lower-case letters, digits, `-` and `_`."""
    if not isinstance(flow, str) or not _FLOW.fullmatch(flow):
        raise InvalidInput(
            f"flow {str(flow)[:80]!r}; allowed: a-z, 0-9, - and _, at most 64, "
            "a letter or digit first"
        )
    return flow
