"""Signed-out sessions, stored in the audit so that every process knows of them.

A session is a signed cookie, valid until it expires. A sign-out adds an audit entry whose target
is the session; a session with such an entry is refused, even if a copy of its cookie exists.
Retention keeps these entries at least as long as a session can last.
"""

from __future__ import annotations

from hashlib import sha256

from duly.model.summaries import SIGN_OUT, AuditEntry
from duly.web.dashboard.pages.page import MonitoredApp
from duly.web.operators.sessions import Session


class SignOuts:
    """Records sign-outs in the database and looks them up."""

    def __init__(self, app: MonitoredApp) -> None:
        self._app = app

    async def record(self, session: Session, address: str) -> None:
        """Record that a session is signed out, for every process."""
        entry = AuditEntry(session.name, SIGN_OUT, _target(session), "done", f"from {address}")
        await self._app.admin.monitoring.record(entry)

    async def has(self, session: Session) -> bool:
        """Return whether a session was signed out; one indexed read."""
        found = await self._app.admin.monitoring.audit(target=_target(session), limit=1)
        return any(each.action == SIGN_OUT for each in found)


def _target(session: Session) -> str:
    # A digest: the audit is shown to operators, and the nonce is part of a cookie.
    return f"session:{sha256(session.nonce.encode()).hexdigest()[:32]}"
