"""Tokens and slots in memory: rows leased by time, which remember when they were last served."""

from __future__ import annotations

from collections.abc import Sequence

from duly.jobs import Token, WorkerId
from duly.stores.memory.tables import StoredToken, Tables, TokenKey

QUEUE_ITSELF = ""
"""As a workspace: the row is a slot of the whole queue."""


def free_number(tables: Tables, now_ms: int, queue: str, workspace: str, most: int) -> int | None:
    """The lowest number whose lease has ended or never was."""
    for number in range(1, most + 1):
        token = tables.tokens.get((queue, workspace, number))
        if token is None or token.leased_until_ms <= now_ms:
            return number
    return None


def served_at_ms(tables: Tables, queue: str, workspace: str) -> int:
    """When a pair was served last; 0: never."""
    return max(
        (each.served_at_ms for key, each in tables.tokens.items() if key[:2] == (queue, workspace)),
        default=0,
    )


def lease(tables: Tables, now_ms: int, key: TokenKey, owner: WorkerId, lease_ms: int) -> Token:
    """Lease a free token."""
    earlier = tables.tokens.get(key)
    fence = 1 if earlier is None else earlier.fence + 1
    tables.tokens[key] = StoredToken(owner, fence, now_ms + lease_ms, now_ms)
    return Token(*key, fence)


def holds(tables: Tables, now_ms: int, owner: WorkerId, token: Token) -> bool:
    """Return whether a lease of a token is this worker's and has not ended."""
    stored = tables.tokens.get((token.queue, token.workspace, token.number))
    if stored is None or stored.leased_until_ms <= now_ms:
        return False
    return (stored.owner, stored.fence) == (owner, token.fence)


def keep(tables: Tables, now_ms: int, token: Token, lease_ms: int) -> None:
    """Extend a lease because its pair is served again under it."""
    key = (token.queue, token.workspace, token.number)
    stored = tables.tokens[key]
    tables.tokens[key] = stored._replace(leased_until_ms=now_ms + lease_ms, served_at_ms=now_ms)


def lease_until(tables: Tables, owner: WorkerId, token: Token, until_ms: int) -> None:
    """Move the end of a lease; somebody else's is left alone."""
    key = (token.queue, token.workspace, token.number)
    stored = tables.tokens.get(key)
    if stored is not None and (stored.owner, stored.fence) == (owner, token.fence):
        tables.tokens[key] = stored._replace(leased_until_ms=until_ms)


def renew(
    tables: Tables,
    now_ms: int,
    owner: WorkerId,
    tokens: Sequence[Token],
    lease_ms: int,
    token_lease_ms: int,
) -> None:
    """Extend tokens; a slot lives as long as the lease of its job."""
    for token in tokens:
        longer_ms = lease_ms if token.workspace == QUEUE_ITSELF else token_lease_ms
        lease_until(tables, owner, token, now_ms + longer_ms)


def release(tables: Tables, now_ms: int, owner: WorkerId, tokens: Sequence[Token]) -> None:
    """End leases now; the rows stay, for what they remember."""
    for token in tokens:
        lease_until(tables, owner, token, now_ms)
