"""That a form was sent from our own page: a token per session, and the browser's own word."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from duly.web.operators.sessions import Session, Signer

FIELD = "csrf"


def token_of(signer: Signer, session: Session) -> str:
    """What every form of a session carries."""
    return signer.sign("csrf", session.nonce)


def is_own(signer: Signer, session: Session, token: str) -> bool:
    """Whether a form's token is the session's."""
    return signer.is_signed("csrf", session.nonce, token)


def is_same_origin(headers: Mapping[str, str]) -> bool:
    """Whether the browser says that the request comes from our own page.

    Browsers say so in one header or the other; what says neither is not a browser and has no
    cookie that it was not given.
    """
    site = headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")
