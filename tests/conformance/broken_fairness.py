"""Memory stores with one bug each in fairness between pairs, each with the case that notices it."""

from dataclasses import replace

from duly.engine.kinds import StoredJob
from duly.model.claims import ClaimRequest
from duly.stores import MemoryStore
from duly.stores.memory.tables import StoredToken
from duly.testing.conformance import FairnessConformance, StoreConformance
from duly.triggers.instants import to_ms
from tests.conformance.broken_jobs import BrokenClaims


class SharesNoRoom(BrokenClaims):
    """Gives a single pair only one batch, so that the rest of the room stays unused."""

    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, max_token_batch=None)


class GivesTheFirstPairAllRoom(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        most = request.max_token_batch
        return request if most is None else replace(request, token_batch=most)


class ClaimsOnUnderLostTokens(BrokenClaims):
    """Extends an expired token for as long as its worker names it."""

    def ask(self, request: ClaimRequest) -> ClaimRequest:
        until_ms = to_ms(self._clock.now()) + 1
        for token, _ in request.held:
            lease = StoredToken(request.worker, token.fence, until_ms, 0)
            self._tables.tokens[token.queue, token.workspace, token.number] = lease
        return request


class ClaimsOnPastUnknownJobs(BrokenClaims):
    """Moves jobs of other actions to the end of the line, so that they never end a turn."""

    def ask(self, request: ClaimRequest) -> ClaimRequest:
        for job_id, (job, _) in self._tables.jobs.items():
            if request.actions is not None and job.action not in request.actions:
                self._tables.jobs[job_id] = StoredJob(job, 2**62)
        return request


class ForgetsHeldTokens(BrokenClaims):
    def ask(self, request: ClaimRequest) -> ClaimRequest:
        return replace(request, held=())


BROKEN_FAIRNESS: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (SharesNoRoom, FairnessConformance, "test_lone_pair_takes_the_room"),
    (GivesTheFirstPairAllRoom, FairnessConformance, "test_few_pairs_share_the_room"),
    (ClaimsOnUnderLostTokens, FairnessConformance, "test_lost_tokens_are_not_claimed_on"),
    (ClaimsOnPastUnknownJobs, FairnessConformance, "test_unknown_job_in_front_ends_a_turn"),
    (ForgetsHeldTokens, FairnessConformance, "test_lone_pair_is_claimed_on"),
]
