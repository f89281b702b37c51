"""Operator accounts of the dashboard, from `name:role:hash` entries of the settings.

Passwords are stored as scrypt hashes and compared in constant time, whether the name exists or not.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from secrets import token_bytes
from typing import Literal, cast, get_args

from duly.errors import InvalidInput
from duly.model.scopes import check_name

Role = Literal["viewer", "operator"]

MAX_OPERATORS = 1_000
MAX_PASSWORD = 1_024
_COST, _BLOCK, _PARALLEL = 15, 8, 1
_MIN_COST, _MAX_COST = 10, 20
_LENGTH = 32
_NOT_A_HASH = "a password hash is not one that `duly operator hash` makes"
_SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class Operator:
    """An account: a viewer may read, an operator may also act."""

    name: str
    role: Role
    password_hash: str = ""
    """Empty: no password sign-in; a guest uses a sign-in link."""

    def __post_init__(self) -> None:
        check_name("operator", self.name)
        if self.role not in get_args(Role):
            allowed = " or ".join(get_args(Role))
            raise InvalidInput(f"operator {self.name!r} is {self.role!r}; allowed: {allowed}")
        if self.password_hash:
            _parts(self.password_hash)

    @property
    def may_act(self) -> bool:
        """True if the account may change anything."""
        return self.role == "operator"


def parse_operators(text: str) -> tuple[Operator, ...]:
    """Parse operators from `name:role:hash` entries, separated by commas."""
    found: dict[str, Operator] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, _, rest = part.partition(":")
        role, _, password_hash = rest.partition(":")
        if not password_hash:
            raise InvalidInput(
                f"operator {name!r} (DULY_OPERATORS); write name:role:hash, as printed by "
                "`duly operator hash`"
            )
        if name in found:
            raise InvalidInput(f"operator {name!r} (DULY_OPERATORS) is named twice")
        found[name] = Operator(name, cast(Role, role), password_hash)
    if len(found) > MAX_OPERATORS:
        raise InvalidInput(f"{len(found)} operators; allowed: {MAX_OPERATORS}")
    return tuple(found.values())


def hash_password(password: str, *, salt: bytes | None = None) -> str:
    """Return the stored form of a password; it contains no colon, comma or dollar sign."""
    if not 8 <= len(password) <= MAX_PASSWORD:
        raise InvalidInput(f"a password has 8 to {MAX_PASSWORD} characters")
    salt = token_bytes(16) if salt is None else salt
    costs = (_COST, _BLOCK, _PARALLEL)
    made = _scrypt(password, salt, costs)
    return _SEPARATOR.join(["scrypt", *map(str, costs), _text(salt), _text(made)])


def find_operator(operators: Sequence[Operator], name: str, password: str) -> Operator | None:
    """Return the operator with this name and password, or None. Slow on purpose: use a thread."""
    found = next((each for each in operators if each.name == name and each.password_hash), None)
    # An unknown name costs the same, so that timing does not reveal which names exist.
    stored = _nobody() if found is None else found.password_hash
    costs, salt, wanted = _parts(stored)
    is_right = hmac.compare_digest(_scrypt(password[:MAX_PASSWORD], salt, costs), wanted)
    return found if is_right and found is not None else None


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _parts(stored: str) -> tuple[tuple[int, int, int], bytes, bytes]:
    """Return costs, salt and digest of a stored password."""
    try:
        kind, cost, block, parallel, salt, made = stored.split(_SEPARATOR)
        costs = (int(cost), int(block), int(parallel))
        found = _bytes(salt), _bytes(made)
    except (ValueError, Base64Error):
        raise InvalidInput(_NOT_A_HASH) from None
    if kind != "scrypt" or not _MIN_COST <= costs[0] <= _MAX_COST or len(found[1]) != _LENGTH:
        raise InvalidInput(_NOT_A_HASH)
    return costs, *found


def _scrypt(password: str, salt: bytes, costs: tuple[int, int, int]) -> bytes:
    cost, block, parallel = costs
    return hashlib.scrypt(
        password.encode(),
        salt=salt,
        n=1 << cost,
        r=block,
        p=parallel,
        maxmem=256 * block << cost,
        dklen=_LENGTH,
    )


def _text(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


@cache
def _nobody() -> str:
    """Return a hash of a random password, as costly to check as any."""
    return hash_password(token_bytes(16).hex())
