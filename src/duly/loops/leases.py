"""What a worker holds: leases of jobs, and the tokens they run under."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from duly.errors import BackendUnavailable
from duly.job_store import Claims, JobStore, Renewed
from duly.jobs import JobId, Token, WorkerId

log = logging.getLogger(__name__)


class Leases:
    """Held leases; a token is given back when the last job under it has ended."""

    def __init__(
        self, store: JobStore, worker: WorkerId, lease_s: float, token_lease_s: float, *, fair: bool
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
        self._free: list[Token] = []

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, job_id: object) -> bool:
        return job_id in self._held

    def add(self, claims: Claims) -> None:
        """Hold what a claim took."""
        for job in claims.jobs:
            before = self._held.get(job.id)
            if before is not None:
                # It ended, was queued and claimed again before the answer about its end came.
                self.drop([(job.id, before)])
            self._held[job.id] = job.fence
        for job_id, tokens in claims.holds.items():
            self._tokens[job_id] = tokens
            for token in tokens:
                self._jobs_under[token] = self._jobs_under.get(token, 0) + 1

    def drop(self, leases: Iterable[tuple[JobId, int]]) -> None:
        """Hold claims no longer, by (id, fence); tokens that fell free wait for give_back()."""
        for job_id, fence in leases:
            if self._held.get(job_id) == fence:
                del self._held[job_id]
                if self._tokens:
                    self._let_go(self._tokens.pop(job_id, ()))

    def _let_go(self, tokens: Iterable[Token]) -> None:
        for token in tokens:
            self._jobs_under[token] -= 1
            if not self._jobs_under[token]:
                del self._jobs_under[token]
                self._free.append(token)

    async def give_back(self) -> None:
        """Release tokens nothing runs under; one that cannot be reached ends by itself."""
        free, self._free = self._free, []
        if free:
            try:
                await self._store.release_tokens(self._worker, free)
            except BackendUnavailable as error:
                log.warning("tokens: %s", error, extra={"event": "worker.unavailable"})

    async def renew(self) -> Renewed:
        """Extend everything that is held; tells only of claims that are held still."""
        asked = dict(self._held)
        if not asked:
            return Renewed([], [])
        found = await self._store.renew(
            self._worker,
            list(asked.items()),
            int(self._lease_s * 1000),
            list(self._jobs_under),
            int(self._token_lease_s * 1000),
        )
        # Meanwhile a job may have ended, and may even be here again under another fence.
        held = {job_id for job_id, fence in self._held.items() if asked.get(job_id) == fence}
        return Renewed(
            [job_id for job_id in found.lost if job_id in held],
            [job_id for job_id in found.cancel if job_id in held],
        )
