"""Tokens of (queue, workspace) pairs and slots of queues: leased, with the time last served."""

from __future__ import annotations

from collections.abc import Sequence

from duly.engine.kinds import TOKEN, StoredToken
from duly.engine.transaction import Tx
from duly.model.jobs import Token, WorkerId

QUEUE_ITSELF = ""
"""Workspace of a token that is a slot of the whole queue."""


def numbers(tx: Tx, queue: str, workspace: str, most: int) -> list[StoredToken | None]:
    """Return the tokens of a pair, or the slots of a queue, by number; None: never leased."""
    keys = [(queue, workspace, number) for number in range(1, most + 1)]
    found = tx.get_many(TOKEN, keys)
    return [found.get(key) for key in keys]


def last_served_ms(tx: Tx, queue: str, workspace: str) -> int:
    """Return when a pair was last served, by any of its tokens; 0: never.

    Tokens above a limit that was lowered count too. Numbers are leased from 1 on, without gaps.
    """
    served_at_ms, number = 0, 1
    while token := tx.peek(TOKEN, queue, workspace, number):
        served_at_ms, number = max(served_at_ms, token.served_at_ms), number + 1
    return served_at_ms


def free_number(tx: Tx, queue: str, workspace: str, most: int) -> int | None:
    """Return the lowest number that is not leased; None: all are."""
    for number, token in enumerate(numbers(tx, queue, workspace, most), 1):
        if token is None or token.leased_until_ms <= tx.now_ms:
            return number
    return None


def lease(tx: Tx, queue: str, workspace: str, number: int, owner: WorkerId, lease_ms: int) -> Token:
    """Lease a free token or slot."""
    earlier = tx.get(TOKEN, queue, workspace, number)
    fence = 1 if earlier is None else earlier.fence + 1
    until_ms = tx.now_ms + lease_ms
    place = (queue, workspace, number)
    tx.put(TOKEN, StoredToken(*place, owner, fence, until_ms, tx.now_ms))
    return Token(*place, fence)


def held_token(tx: Tx, owner: WorkerId, token: Token) -> StoredToken | None:
    """Return a token if its lease is still this worker's, even if it has ended."""
    stored = tx.get(TOKEN, token.queue, token.workspace, token.number)
    is_own = stored is not None and (stored.owner, stored.fence) == (owner, token.fence)
    return stored if is_own else None


def holds(tx: Tx, owner: WorkerId, token: Token) -> bool:
    """Return whether this worker holds a token whose lease has not ended."""
    stored = held_token(tx, owner, token)
    return stored is not None and stored.leased_until_ms > tx.now_ms


def keep(tx: Tx, owner: WorkerId, token: Token, lease_ms: int) -> None:
    """Extend a worker's lease and record that its pair is served now."""
    stored = held_token(tx, owner, token)
    if stored is not None:
        until_ms = tx.now_ms + lease_ms
        tx.put(TOKEN, stored._replace(leased_until_ms=until_ms, served_at_ms=tx.now_ms))


def renew_tokens(
    tx: Tx, owner: WorkerId, tokens: Sequence[Token], lease_ms: int, token_lease_ms: int
) -> None:
    """Extend a worker's tokens; a slot is extended by the lease of its job (`lease_ms`)."""
    for token in tokens:
        longer_ms = lease_ms if token.workspace == QUEUE_ITSELF else token_lease_ms
        _lease_until(tx, owner, token, tx.now_ms + longer_ms)


def release_tokens(tx: Tx, owner: WorkerId, tokens: Sequence[Token]) -> None:
    """End a worker's leases now; the items stay, to keep fence and time last served."""
    for token in tokens:
        _lease_until(tx, owner, token, tx.now_ms)


def _lease_until(tx: Tx, owner: WorkerId, token: Token, until_ms: int) -> None:
    """Set the end of a worker's lease; leave another worker's alone."""
    stored = held_token(tx, owner, token)
    if stored is not None:
        tx.put(TOKEN, stored._replace(leased_until_ms=until_ms))
