"""What this process has done since it began, in plain numbers; metrics are made of them.

Takes a store; lets it count what the verbs answer that loops call. So no loop knows that it is
counted, and none can forget to count.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from operator import itemgetter
from typing import Any

from duly.model.claims import Claims
from duly.model.jobs import JobId, JobState
from duly.model.plans import PlanReport
from duly.model.stored_jobs import Enqueued, KeyTaken
from duly.rules.outcomes import Finish
from duly.stores.port import Store

_status_of: Callable[[Finish], str] = itemgetter(Finish._fields.index("status"))


class Meters:
    """Numbers that only grow."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        """Attempts by how they ended."""

    def watch(self, store: Store) -> Store:
        """Count what this store answers from now on; gives it back."""
        notes: dict[str, Callable[..., None]] = {
            "insert_jobs": self._inserted,
            "plan_occurrences": self._planned,
            "claim_jobs": self._claimed,
            "finish": self._finished,
            "release_expired": partial(self._swept, "rescued"),
            "promote_due": partial(self._swept, "promoted"),
            "prune": partial(self._swept, "pruned"),
        }
        for name, note in notes.items():
            setattr(store, name, _counted(getattr(store, name), note))
        for name in ("prune", "prune_ledger", "prune_schedules"):
            setattr(store, name, self._tried(getattr(store, name)))
        return store

    def note(self, name: str) -> None:
        """Count something that no answer of the store tells."""
        self.counts[name] += 1

    def _tried(self, verb: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        """A verb of retention: where it fails, nothing is removed, and nothing else tells."""

        @wraps(verb)
        async def tried(*asked: Any, **named: Any) -> Any:
            try:
                answer = await verb(*asked, **named)
            except Exception:
                self.counts["prune_failures"] += 1
                raise
            self.counts["prune_runs"] += 1
            return answer

        return tried

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


def _counted(
    verb: Callable[..., Awaitable[Any]], note: Callable[..., None]
) -> Callable[..., Awaitable[Any]]:
    """A verb whose answers are noted, with what it was asked."""

    @wraps(verb)
    async def counted(*asked: Any, **named: Any) -> Any:
        answer = await verb(*asked, **named)
        note(answer, *asked)
        return answer

    return counted
