"""Verifiers of webhook senders: functions of headers, raw body and time.

Several secrets may be valid at once, so that they can be rotated; an empty one is refused when the
verifier is created.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from duly.dispatch.auth.signing import (
    ID,
    REPLAY_WINDOW_S,
    TIMESTAMP,
    hex_digest,
    same,
    signed_id,
    signing_key,
)
from duly.errors import InvalidInput
from duly.flows.webhook_routes import Verify

Secrets = str | Sequence[str]


def hmac_sha256(*, header: str, secret: Secrets, prefix: str = "") -> Verify:
    """Verify a hex HMAC-SHA256 of the body, as in `x-hub-signature-256: sha256=...`."""
    return _hmac("sha256", header, secret, prefix)


def hmac_sha1(*, header: str, secret: Secrets, prefix: str = "") -> Verify:
    """Verify a hex HMAC-SHA1 of the body, as in `x-vercel-signature: ...`."""
    return _hmac("sha1", header, secret, prefix)


def standard_webhooks(*, secret: Secrets, window_s: int = REPLAY_WINDOW_S) -> Verify:
    """Verify Standard Webhooks: id, timestamp and signature, within a window against replays."""
    secrets = _several(secret)
    for each in secrets:
        signing_key(each)
    return _StandardWebhooks(secrets, window_s)


@dataclass(frozen=True, slots=True)
class _StandardWebhooks:
    """A verifier of signatures over id, timestamp and body."""

    secrets: tuple[str, ...] = field(repr=False)
    window_s: int
    signed_headers: tuple[str, ...] = (ID, TIMESTAMP)

    def __call__(self, headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        return signed_id(self.secrets, headers, body, now_s, self.window_s) is not None


def _hmac(algorithm: str, header: str, secret: Secrets, prefix: str) -> Verify:
    name, secrets = header.lower(), _several(secret)

    def verify(headers: Mapping[str, str], body: bytes, now_s: int) -> bool:
        del now_s
        given = headers.get(name, "")
        fits = False
        for each in secrets:
            fits |= same(given, prefix + hex_digest(algorithm, each, body))
        return fits

    return verify


def _several(secret: Secrets) -> tuple[str, ...]:
    found = (secret,) if isinstance(secret, str) else tuple(secret)
    if not found or not all(each.strip() for each in found):
        raise InvalidInput("a webhook's secret is empty; set one, or anyone could sign")
    return found
