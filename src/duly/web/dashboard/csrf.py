"""CSRF protection of forms: a token per session, and the browser's origin headers."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from duly.web.operators.sessions import Session, Signer

FIELD = "csrf"


def token_of(signer: Signer, session: Session) -> str:
    """Return the token that every form of a session carries."""
    return signer.sign("csrf", session.nonce)


def is_own(signer: Signer, session: Session, token: str) -> bool:
    """Return whether a form's token is the session's."""
    return signer.is_signed("csrf", session.nonce, token)


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Return whether the request comes from our own page, by `Sec-Fetch-Site` and `Origin`.

    A request with neither header is accepted: it does not come from a browser, so no site can
    have sent it with a user's cookie.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")
