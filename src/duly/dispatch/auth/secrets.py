"""Authentication of dispatch and tick calls by shared secrets.

A secret that begins with `whsec_` is a signing key, any other is a bearer token. Several may be
valid at once, so that they can be rotated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest

from duly.dispatch.auth.signing import SECRET_PREFIX, Headers, signed_id, signing_key
from duly.errors import InvalidInput
from duly.model.principals import Principal

MIN_SECRET = 16
MAX_SECRET = 1_024
CLOSED = (
    "dispatch and tick are closed: no secret is configured, so every call is answered 401. "
    "Set DULY_DISPATCH_SECRETS, or pass gateways="
)


@dataclass(frozen=True, slots=True)
class Gateway:
    """A caller, identified by a secret."""

    secret: str = field(repr=False)
    principal: Principal | None = None
    """None: a trusted scheduler, which may dispatch any schedule and tick. Otherwise the caller may
    only dispatch this principal's own schedules."""

    def __post_init__(self) -> None:
        if not self.secret.strip():
            raise InvalidInput("a dispatch secret is empty; make one: openssl rand -base64 32")
        if not MIN_SECRET <= len(self.secret) <= MAX_SECRET:
            raise InvalidInput(
                f"a dispatch secret has {len(self.secret)} characters; allowed: {MIN_SECRET} to "
                f"{MAX_SECRET}. Make one: openssl rand -base64 32"
            )
        if self.signs:
            signing_key(self.secret)

    @property
    def signs(self) -> bool:
        """Return whether the secret is a signing key and not a bearer token."""
        return self.secret.startswith(SECRET_PREFIX)

    @property
    def is_system(self) -> bool:
        """Return whether its holder is a trusted scheduler and not confined to one owner."""
        return _is_system(self.principal)


@dataclass(frozen=True, slots=True)
class Admission:
    """The result of a successful authentication."""

    principal: Principal | None
    message_id: str | None = None
    """The message id of a signed call, which makes repeated sends one dispatch; else None."""

    @property
    def is_system(self) -> bool:
        """Return whether the caller is a trusted scheduler and not confined to one owner."""
        return _is_system(self.principal)


class Gatekeeper:
    """The check of calls against the gateways."""

    def __init__(self, gateways: Sequence[Gateway] = ()) -> None:
        self._bearers = [
            (_digest(each.secret), each.principal) for each in gateways if not each.signs
        ]
        self._signers = [each for each in gateways if each.signs]
        self.is_closed = not gateways

    def admit(self, headers: Headers, body: bytes, now_s: int) -> Admission | None:
        """Return the caller's admission; None: unknown. Only signatures need body and time."""
        admission = self.admit_bearer(headers)
        for gateway in self._signers:
            message_id = signed_id([gateway.secret], headers, body, now_s)
            if message_id is not None and admission is None:
                admission = Admission(gateway.principal, message_id)
        return admission

    def admit_bearer(self, headers: Headers) -> Admission | None:
        """Return the caller's admission by its `Authorization: Bearer` header alone."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        given = _digest(token.strip() if scheme.lower() == "bearer" else "")
        admission = None
        for digest, principal in self._bearers:
            # Digests of equal length, and every secret compared: timing reveals nothing.
            if compare_digest(given, digest) and admission is None:
                admission = Admission(principal)
        return admission


def _is_system(principal: Principal | None) -> bool:
    return principal is None or principal.is_system


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()
