"""Sessions of operators: signed cookies that end.

A session names the operator and the password it began with, so that a changed password or a
removed operator ends it. Every process with the same secret reads every session; which of them
were signed out is in the database (`sign_outs`).
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
    """What a session cookie says."""

    name: str
    nonce: str
    ends_at_s: int
    proof: str
    """Of the password that the session began with."""


class Signer:
    """Signs short texts; each purpose has signatures of its own."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def sign(self, purpose: str, text: str) -> str:
        """The signature of a text."""
        return hmac.new(self._secret, f"{purpose}\0{text}".encode(), hashlib.sha256).hexdigest()

    def is_signed(self, purpose: str, text: str, signature: str) -> bool:
        """Whether it is the signature of a text; in constant time."""
        return hmac.compare_digest(self.sign(purpose, text).encode(), signature.encode())

    def seal(self, purpose: str, value: object) -> str:
        """A value as text that can be read by anybody and changed by nobody."""
        body = urlsafe_b64encode(msgspec.json.encode(value)).decode().rstrip("=")
        return f"{body}.{self.sign(purpose, body)}"

    def unseal(self, purpose: str, text: str) -> bytes | None:
        """The JSON of a sealed value; None: it was not sealed here."""
        body, _, signature = text.rpartition(".")
        if len(text) > MAX_COOKIE or not text.isascii():
            return None
        if not self.is_signed(purpose, body, signature):
            return None
        return urlsafe_b64decode(body + "=" * (-len(body) % 4))


def begin_session(signer: Signer, operator: Operator, ends_at_s: int) -> str:
    """The cookie of a new session."""
    return signer.seal("session", Session(operator.name, token_hex(12), ends_at_s, proof(operator)))


def read_session(signer: Signer, cookie: str, now_s: int) -> Session | None:
    """The session of a cookie; None: none, or one that has ended."""
    body = signer.unseal("session", cookie)
    if body is None:
        return None
    session = msgspec.json.decode(body, type=Session)
    return session if now_s < session.ends_at_s else None


def proof(operator: Operator) -> str:
    """What changes with the operator's password or role."""
    whole = f"{operator.name}\0{operator.role}\0{operator.password_hash}"
    return hashlib.sha256(whole.encode()).hexdigest()[:16]
