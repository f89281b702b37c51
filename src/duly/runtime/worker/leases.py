"""The leases that a worker holds, and the tokens that its jobs run under."""

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
"""Counts an anomaly by name: `late_renewals` or `stuck_tokens`."""
LATE = 0.9
"""Share of a lease after which a renewal counts as late."""
STUCK_S = 60.0
"""Seconds after which a held token is reported, since other jobs of its pair may wait for it."""


class Leases:
    """The held leases; a token is released when the last job under it has ended."""

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
        # Fixed in advance: a pause that starts before the first token must be short enough for it.
        self.period_s = min(lease_s / 3, token_lease_s / 2) if fair else lease_s / 3
        """Seconds between renewals: a third of a lease; fair workers: at most half of a token's."""
        self._held: dict[JobId, int] = {}
        """Fences by job."""
        self._tokens: dict[JobId, tuple[Token, ...]] = {}
        self._jobs_under: dict[Token, int] = {}
        self._lent: tuple[HeldToken, ...] = ()
        """Tokens that the claim in progress may use."""
        self.on_free: Callable[[], None] = lambda: None
        """Called after tokens were released: their pairs can be claimed from again."""
        self._free: list[Token] = []
        self.note: Note = lambda _name: None
        self._extended_at = 0.0
        """When all held leases were last extended, or the first of them was taken."""
        self._since: dict[Token, float] = {}
        """When jobs were last taken under each token; a token that was reported is removed."""

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._held

    def items(self) -> ItemsView[JobId, int]:
        """Return the held jobs with their fences."""
        return self._held.items()

    async def claim(self, request: ClaimRequest) -> tuple[Claims, Collection[JobId]]:
        """Claim jobs and hold them, a fair worker also under tokens it already holds.

        Return the claims, and the jobs among them that were held by an earlier claim. Call
        give_back() once the jobs are in the buffer.
        """
        if request.fair and request.max_token_batch is not None:
            request = replace(request, held=self._lend(request.max_token_batch))
        try:
            claims = await self._store.claim_jobs(request)
            again = self.add(claims)
        finally:
            lent, self._lent = self._lent, ()
            self._forget_lost(token for token, _ in lent)
        return claims, again

    def _lend(self, most: int) -> tuple[HeldToken, ...]:
        """Return held tokens with room for more jobs, and for each how many of `most` are left.

        None of them is released before the claim has ended, since it may add jobs under it.
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
        """Hold the claimed jobs; return those that an earlier claim held."""
        now = asyncio.get_running_loop().time()
        if not self._held:
            self._extended_at = now
        taken = {job.id: job.fence for job in claims.jobs}
        # Jobs that ended and were queued and claimed again before the answer about their end came.
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
        """Drop leases by (id, fence); tokens without jobs are released by give_back()."""
        held = self._held
        for job_id, fence in leases:
            if held.get(job_id) == fence:
                del held[job_id]
                if self._tokens:
                    self._forget_lost(self._tokens.pop(job_id, ()))

    def _forget_lost(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            self._jobs_under[token] -= 1
            if not self._jobs_under[token]:
                del self._jobs_under[token]
                self._since.pop(token, None)
                self._free.append(token)

    async def give_back(self) -> None:
        """Release tokens without jobs; if the store fails, their leases expire."""
        free, self._free = self._free, []
        if free:
            try:
                await self._store.release_tokens(self._worker, free)
            except STORE_FAILURES as error:
                log.warning("tokens: %s", error, extra={"event": "worker.unavailable"})
            self.on_free()

    async def renew(self) -> Renewed:
        """Extend all held leases; return lost and cancelled jobs among those still held."""
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
        # Meanwhile a job may have ended, and may even have been claimed again under another fence.
        held = {job_id for job_id, fence in self._held.items() if asked.get(job_id) == fence}
        return Renewed(
            [job_id for job_id in found.lost if job_id in held],
            [job_id for job_id in found.cancel if job_id in held],
        )

    def _tell_late(self, passed_s: float) -> None:
        self.note("late_renewals")
        log.warning(
            "leases of %g s were renewed after %.1f s: the event loop or the database is slow",
            self._lease_s,
            passed_s,
            extra={"event": "worker.late_renewal", "passed_ms": round(passed_s * 1000)},
        )

    def _look_for_stuck(self, now: float) -> None:
        """Warn once of each token that is held for too long."""
        for token in [each for each, since in self._since.items() if now - since > STUCK_S]:
            del self._since[token]
            self.note("stuck_tokens")
            log.warning(
                "the token of queue %s, workspace %s has been held for over %g s",
                token.queue,
                token.workspace,
                STUCK_S,
                extra={
                    "event": "worker.stuck_token",
                    "queue": token.queue,
                    "workspace": token.workspace,
                },
            )
