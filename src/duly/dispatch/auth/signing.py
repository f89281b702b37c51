"""Signatures over raw bodies: Standard Webhooks, and the plain HMACs that other senders use.

Pure. Comparisons take constant time, and every secret is tried.
"""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Mapping, Sequence

from duly.errors import InvalidInput

SECRET_PREFIX = "whsec_"  # noqa: S105 - the prefix, not a secret
REPLAY_WINDOW_S = 300
MIN_KEY_BYTES = 16
MAX_SIGNATURES = 16
ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"

Headers = Mapping[str, str]
"""Headers with names in lower case."""


def signing_key(secret: str) -> bytes:
    """Return the key of a `whsec_...` secret; refuse other secrets and keys that are too short."""
    try:
        key = b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        raise InvalidInput("a signing secret must be whsec_ and base64 after it") from None
    if not secret.startswith(SECRET_PREFIX) or len(key) < MIN_KEY_BYTES:
        raise InvalidInput(
            f"a signing secret must be whsec_ and base64 of at least {MIN_KEY_BYTES} bytes"
        )
    return key


def sign(secret: str, message_id: str, at_s: int, body: bytes) -> dict[str, str]:
    """Return the Standard Webhooks headers that sign a body, its message id and its time."""
    signature = _standard(signing_key(secret), message_id, str(at_s), body)
    return {ID: message_id, TIMESTAMP: str(at_s), SIGNATURE: f"v1,{signature}"}


def signed_id(
    secrets: Sequence[str], headers: Headers, body: bytes, now_s: int, window_s: int = 300
) -> str | None:
    """Return the message id if one of the secrets signed the body within the window, else None."""
    message_id, stamp = headers.get(ID, ""), headers.get(TIMESTAMP, "")
    # Ten digits last until 2286; int() alone would take underscores and other digits, too.
    is_stamp = stamp.isascii() and stamp.isdigit() and len(stamp) <= 10
    if not message_id or not is_stamp or abs(int(stamp) - now_s) > window_s:
        return None
    given = [
        each.removeprefix("v1,")
        for each in headers.get(SIGNATURE, "").split(" ")[:MAX_SIGNATURES]
        if each.startswith("v1,")
    ]
    fits = False
    for secret in secrets:
        expected = _standard(signing_key(secret), message_id, stamp, body)
        for signature in given:
            fits |= same(signature, expected)
    return message_id if fits else None


def hex_digest(algorithm: str, secret: str, body: bytes) -> str:
    """Return the HMAC of a body in hexadecimal digits."""
    return hmac.new(secret.encode(), body, algorithm).hexdigest()


def same(given: str, expected: str) -> bool:
    """Return whether two texts are equal, in constant time."""
    return hmac.compare_digest(given.encode("utf-8", "surrogatepass"), expected.encode())


def _standard(key: bytes, message_id: str, stamp: str, body: bytes) -> str:
    content = f"{message_id}.{stamp}.".encode("utf-8", "surrogatepass") + body
    return b64encode(hmac.new(key, content, "sha256").digest()).decode()
