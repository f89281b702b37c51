"""What a worker holds: leases of jobs, and the tokens they run under."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, ItemsView, Iterable
from dataclasses import replace

from duly.model.claims import ClaimRequest, Claims, HeldToken, Renewed
from duly.model.jobs import JobId, Token, WorkerId
from duly.runtime.backoff import STORE_FAILURES
from duly.stores.port import JobStore

log = logging.getLogger(__name__)

Note = Callable[[str], None]
"""Counts what should not happen, by name: `late_renewals`, `stuck_tokens`."""
LATE = 0.9
"""A renewal is late when this share of a lease has passed: a little more, and it would be lost."""
STUCK_S = 60.0
"""A token that is held for longer keeps others of its pair waiting."""


class Leases:
    """Held leases; a token is given back when the last job under it has ended."""

    def __init__(
        self,
        store: JobStore,
        worker: WorkerId,
        lease_s: float,
        token_lease_s: float,
        *,
        fair: bool,
    ) -> None:
        self._store = store
        self._worker = worker
        self._lease_s = lease_s
        self._token_lease_s = token_lease_s
        # Known beforehand: a pause that begins before the first token comes must be short enough.
        self.period_s = min(lease_s / 3, token_lease_s / 2) if fair else lease_s / 3
        """How often to renew: a third of a lease, half of a token's."""
        self._held: dict[JobId, int] = {}
        """Fences."""
        self._tokens: dict[JobId, tuple[Token, ...]] = {}
        self._jobs_under: dict[Token, int] = {}
        self._lent: tuple[HeldToken, ...] = ()
        """Tokens that the claim under way may use."""
        self.on_free: Callable[[], None] = lambda: None
        """Called when tokens were given back: their pairs can be claimed from again."""
        self._free: list[Token] = []
        self.note: Note = lambda _name: None
        self._extended_at = 0.0
        """When every lease that is held was extended last, or the first of them taken."""
        self._since: dict[Token, float] = {}
        """When jobs were last taken under tokens; those that were told of are no longer here."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._held

    def items(self) -> ItemsView[JobId, int]:
        """Return the jobs that are held, with their fences."""
        return self._held.items()

    async def claim(self, request: ClaimRequest) -> tuple[Claims, Collection[JobId]]:
        """Claim jobs and hold them, where it may be under tokens that are held already.

        Return the claims, and the jobs among them that were held by an earlier claim. Call
        give_back() when the jobs are taken over.
        """
        if request.fair and request.max_token_batch is not None:
            request = replace(request, held=self._lend(request.max_token_batch))
        try:
            claims = await self._store.claim_jobs(request)
            again = self.add(claims)
        finally:
            lent, self._lent = self._lent, ()
            self._let_go(token for token, _ in lent)
        return claims, again

    def _lend(self, most: int) -> tuple[HeldToken, ...]:
        """Return tokens to claim under, with what is left of `most` jobs for each.

        None of them is given back before the claim has ended, since it may bring jobs under it.
        """
        self._lent = tuple(
            HeldToken(token, most - jobs)
            for token, jobs in self._jobs_under.items()
            if token.workspace and jobs < most
        )
        for token, _ in self._lent:
            self._jobs_under[token] += 1
        return self._lent

    def add(self, claims: Claims) -> Collection[JobId]:
        """Hold what a claim took; return the jobs that an earlier claim held."""
        now = asyncio.get_running_loop().time()
        if not self._held:
            self._extended_at = now
        taken = {job.id: job.fence for job in claims.jobs}
        # Those that ended, were queued and claimed again before the answer about their end came.
        again = taken.keys() & self._held.keys()
        self.drop([(job_id, self._held[job_id]) for job_id in again])
        self._held |= taken
        for job_id, tokens in claims.holds.items():
            self._tokens[job_id] = tokens
            for token in tokens:
                self._since[token] = now
                self._jobs_under[token] = self._jobs_under.get(token, 0) + 1
        return again

    def drop(self, leases: Iterable[tuple[JobId, int]]) -> None:
        """Hold claims no longer, by (id, fence); tokens that fell free wait for give_back()."""
        held = self._held
        for job_id, fence in leases:
            if held.get(job_id) == fence:
                del held[job_id]
                if self._tokens:
                    self._let_go(self._tokens.pop(job_id, ()))

    def _let_go(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            self._jobs_under[token] -= 1
            if not self._jobs_under[token]:
                del self._jobs_under[token]
                self._since.pop(token, None)
                self._free.append(token)

    async def give_back(self) -> None:
        """Release tokens nothing runs under; one that cannot be reached ends by itself."""
        free, self._free = self._free, []
        if free:
            try:
                await self._store.release_tokens(self._worker, free)
            except STORE_FAILURES as error:
                log.warning("tokens: %s", error, extra={"event": "worker.unavailable"})
            self.on_free()

    async def renew(self) -> Renewed:
        """Extend everything that is held; tells only of claims that are held still."""
        asked = dict(self._held)
        if not asked:
            return Renewed([], [])
        now = asyncio.get_running_loop().time()
        self._look_for_stuck(now)
        found = await self._store.renew(
            self._worker,
            list(asked.items()),
            int(self._lease_s * 1000),
            list(self._jobs_under),
            int(self._token_lease_s * 1000),
        )
        if now - self._extended_at > LATE * self._lease_s:
            self._tell_late(now - self._extended_at)
        self._extended_at = now
        # Meanwhile a job may have ended, and may even be here again under another fence.
        held = {job_id for job_id, fence in self._held.items() if asked.get(job_id) == fence}
        return Renewed(
            [job_id for job_id in found.lost if job_id in held],
            [job_id for job_id in found.cancel if job_id in held],
        )

    def _tell_late(self, passed_s: float) -> None:
        self.note("late_renewals")
        log.warning(
            "leases of %g s were renewed after %.1f s: loop or database are slow",
            self._lease_s,
            passed_s,
            extra={"event": "worker.late_renewal", "passed_ms": round(passed_s * 1000)},
        )

    def _look_for_stuck(self, now: float) -> None:
        """Tell once of each token that is held for long."""
        for token in [each for each, since in self._since.items() if now - since > STUCK_S]:
            del self._since[token]
            self.note("stuck_tokens")
            log.warning(
                "the token of queue %s, workspace %s is held for over %g s",
                token.queue,
                token.workspace,
                STUCK_S,
                extra={
                    "event": "worker.stuck_token",
                    "queue": token.queue,
                    "workspace": token.workspace,
                },
            )
