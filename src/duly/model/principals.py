"""Principals: who an action runs as.

A principal comes from the scope that owns the work. A user may carry a workspace: then the user's
jobs count there, but the user still owns them.
"""

from __future__ import annotations

from dataclasses import dataclass

from duly.errors import InvalidInput
from duly.model.scopes import SYSTEM, Scope, check_name, user, workspace, workspace_of


@dataclass(frozen=True, slots=True)
class Principal:
    """A user, a workspace, or, with neither, the system."""

    user_id: str | None = None
    org_id: str | None = None
    """The workspace: the principal itself, or the one that the user works in."""
    roles: tuple[str, ...] = ()
    """Roles known to the application at the call; not stored with schedules or jobs."""

    def __post_init__(self) -> None:
        if self.user_id is not None:
            user(self.user_id)
        if self.org_id is not None:
            workspace(self.org_id)  # refuses reserved ids
        given: object = self.roles
        if not isinstance(given, tuple):
            raise InvalidInput(f"roles is {given!r}; pass a tuple of names")
        for role in given:
            check_name("role", role)

    @property
    def scope(self) -> Scope:
        """Return the scope that the principal owns."""
        if self.user_id is not None:
            return user(self.user_id)
        return SYSTEM if self.org_id is None else Scope("workspace", self.org_id)

    @property
    def workspace(self) -> str:
        """Return the workspace that the principal's jobs count in."""
        return workspace_of(self.scope) if self.org_id is None else self.org_id

    @property
    def is_system(self) -> bool:
        """Return whether it is the system."""
        return self.user_id is None and self.org_id is None


def principal_of(scope: Scope | str, workspace: str | None = None) -> Principal:
    """Return the principal of a scope; `workspace` is that of its jobs, if known."""
    owner = scope if isinstance(scope, Scope) else Scope.parse(scope)
    match owner.kind:
        case "system":
            return Principal()
        case "workspace":
            return _stored(None, owner.id)
        case "user":
            own = workspace in (None, workspace_of(owner))
            return _stored(owner.id, None if own else workspace)


def _stored(user_id: str | None, org_id: str | None) -> Principal:
    """Return a principal of stored ids, which were checked when they were stored."""
    made = object.__new__(Principal)
    for name, value in (("user_id", user_id), ("org_id", org_id), ("roles", ())):
        object.__setattr__(made, name, value)
    return made
