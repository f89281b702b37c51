"""Operator sessions: signed cookies with an expiry.

A session holds the operator's name and a proof of the password, so that a changed password or a
removed operator ends it. Every process with the same secret can read it; sign-outs are stored in
the database (`sign_outs`).
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from secrets import token_hex
from typing import NamedTuple

import msgspec

from duly.web.operators.accounts import Operator

MAX_COOKIE = 2_048


class Session(NamedTuple):
    """Content of a session cookie."""

    name: str
    nonce: str
    ends_at_s: int
    proof: str
    """Digest of the name, role and password hash at sign-in."""


class Signer:
    """HMAC signer of short texts; signatures differ by purpose."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, text: str) -> str:
        """Return the signature of a text."""
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def is_signed(self, purpose: str, text: str, signature: str) -> bool:
        """Return whether the signature belongs to the text; compares in constant time."""
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())

    def seal(self, purpose: str, value: object) -> str:
        """Return a value as signed, unencrypted text."""
        body = urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
        return f"{body}.{self.sign(purpose, body)}"

    def unseal(self, purpose: str, text: str) -> bytes | None:
        """Return the JSON of a sealed value; None: too long, or the signature is invalid."""
        body, _, signature = text.rpartition(".")
        if len(text) > MAX_COOKIE or not text.isascii():
            return None
        if not self.is_signed(purpose, body, signature):
            return None
        return urlsafe_b64decode(body + "=" * (-len(body) % 4))


def begin_session(signer: Signer, operator: Operator, ends_at_s: int) -> str:
    """Return the cookie of a new session."""
    return signer.seal("session", Session(operator.name, token_hex(12), ends_at_s, proof(operator)))


def read_session(signer: Signer, cookie: str, now_s: int) -> Session | None:
    """Return the session of a cookie; None: invalid or expired."""
    body = signer.unseal("session", cookie)
    if body is None:
        return None
    session = msgspec.json.decode(body, type=Session)
    return session if now_s < session.ends_at_s else None


def proof(operator: Operator) -> str:
    """Return a digest that changes with the operator's password or role."""
    whole = f"{operator.name}\0{operator.role}\0{operator.password_hash}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
