"""Counters of what this process has done since it began; metrics are made of them.

They count the answers of the store, so no loop has to count and none can forget to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter

from duly.model.claims import Claims
from duly.model.jobs import JobId, JobState
from duly.model.plans import PlanReport
from duly.model.stored_jobs import Enqueued, KeyTaken
from duly.operate.observed import Observer, Observers
from duly.rules.outcomes import Finish

_status_of: Callable[[Finish], str] = itemgetter(Finish._fields.index("status"))


class Meters:
    """Numbers that only grow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Attempts by how they ended."""

    @property
    def observers(self) -> Observers:
        """Return what to count of the answers of a store."""
        return {
            "insert_jobs": Observer(self._inserted),
            "plan_occurrences": Observer(self._planned),
            "claim_jobs": Observer(self._claimed),
            "finish": Observer(self._finished),
            "release_expired": Observer(partial(self._swept, "rescued")),
            "promote_due": Observer(partial(self._swept, "promoted")),
            "prune": Observer(self._pruned, self._prune_failed),
            "prune_ledger": Observer(self._prune_ran, self._prune_failed),
            "prune_schedules": Observer(self._prune_ran, self._prune_failed),
        }

    def note(self, name: str) -> None:
        """Count something that no answer of the store tells."""
        self.counts[name] += 1

    def _inserted(self, answers: Sequence[Enqueued | KeyTaken], *_: object) -> None:
        created = sum(isinstance(each, Enqueued) and each.created for each in answers)
        self.counts["enqueued"] += created

    def _planned(self, _report: PlanReport, *_: object) -> None:
        # What became of the times is counted from the ledger: no report knows what a write plans,
        # or what promotion decides.
        self.counts["plans"] += 1

    def _claimed(self, claims: Claims, *_: object) -> None:
        self.counts["claimed"] += len(claims.jobs)

    def _finished(self, refused: Sequence[JobId], finishes: Sequence[Finish]) -> None:
        stored = finishes
        if refused:
            void = set(refused)
            stored = [each for each in finishes if each.job_id not in void]
        ended = Counter(map(_status_of, stored))
        self.ended.update(ended)
        if ended["succeeded"] < len(stored):
            self.counts["dead"] += sum(each.state is JobState.DEAD for each in stored)
        self.counts["refused"] += len(refused)

    def _swept(self, name: str, moved: int, *_: object) -> None:
        self.counts[name] += moved

    def _pruned(self, removed: int, *_: object) -> None:
        self.counts["pruned"] += removed
        self._prune_ran()

    def _prune_ran(self, *_: object) -> None:
        self.counts["prune_runs"] += 1

    def _prune_failed(self, _: Exception) -> None:
        # Nothing was removed, and nothing else reports it.
        self.counts["prune_failures"] += 1
