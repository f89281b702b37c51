"""Memory stores with one bug each in upkeep, each with the case that notices it."""

from dataclasses import replace

from duly.engine.kinds import ZONE_RULES
from duly.model.upkeep import (
    ERASED,
    MAX_ERASE,
    MAX_ZONED,
    Erased,
    LedgerPruned,
    LedgerRetention,
    Owner,
    Recomputed,
)
from duly.stores import MemoryStore
from duly.stores.memory.tables import Tables
from duly.testing.conformance import StoreConformance, UpkeepConformance


class BrokenErase(MemoryStore):
    """Base of stores that change the tables after a step of erase()."""

    before: Tables
    owner: Owner

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        self.before, self.owner = self._tables.copy(), Owner.of(scope)
        erased = await super().erase(scope, cursor=cursor, limit=limit)
        self.spoil()
        return erased

    def spoil(self) -> None:
        """Change the tables after the step."""


class ErasesWithoutLimit(MemoryStore):
    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        return await super().erase(scope, cursor=cursor, limit=MAX_ERASE if limit == 1 else limit)


class ErasesOneStepOnly(MemoryStore):
    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        return replace(await super().erase(scope, cursor=cursor, limit=limit), cursor=None)


class ErasesEveryKey(BrokenErase):
    def spoil(self) -> None:
        self._tables.keys.clear()


class ErasesEveryDocument(BrokenErase):
    def spoil(self) -> None:
        kept = {key: each for key, each in self._tables.documents.items() if key[0] == "schedules"}
        self._tables.documents = kept


class KeepsIndexRows(BrokenErase):
    def spoil(self) -> None:
        self._tables.rows = self.before.rows


class KeepsJobEvents(BrokenErase):
    def spoil(self) -> None:
        self._tables.job_events = self.before.job_events | self._tables.job_events


class KeepsLedger(BrokenErase):
    def spoil(self) -> None:
        self._tables.ledger = self.before.ledger


class KeepsNames(BrokenErase):
    def spoil(self) -> None:
        self._tables.events = [
            replace(each, by=self.owner.scope) if each.by == ERASED else each
            for each in self._tables.events
        ]


class ErasesEventsOfOtherOwners(BrokenErase):
    def spoil(self) -> None:
        self._tables.events = [each for each in self._tables.events if each.by != ERASED]


class KeepsRunningMarkers(BrokenErase):
    def spoil(self) -> None:
        self._tables.running = self.before.running


class LetsRunningJobsRun(BrokenErase):
    def spoil(self) -> None:
        for job_id in self._tables.jobs:
            self._tables.jobs[job_id] = self.before.jobs[job_id]


class ErasesTheSystem(MemoryStore):
    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        if scope == "system":
            return Erased()
        return await super().erase(scope, cursor=cursor, limit=limit)


class ErasesByNameOfWorkspace(MemoryStore):
    """Erases every job whose workspace has the same name."""

    async def erase(self, scope: str, *, cursor: str | None = None, limit: int = 1_000) -> Erased:
        name = scope.removeprefix("workspace:")
        for job_id, (job, _) in list(self._tables.jobs.items()):
            if job.workspace == name:
                del self._tables.jobs[job_id]
        return await super().erase(scope, cursor=cursor, limit=limit)


class KeepsNamesInTheAudit(BrokenErase):
    def spoil(self) -> None:
        self._tables.audit = self.before.audit


class RemovesFromTheAudit(BrokenErase):
    def spoil(self) -> None:
        kept = [entry for entry in self._tables.audit if entry.detail != ERASED]
        self._tables.audit = kept


class KeepsNamesOfDeletedInTheAudit(BrokenErase):
    """Loses the owner of a deleted schedule."""

    def spoil(self) -> None:
        standing = {f"schedule:{each.id}" for each in self.before.schedules()}
        self._tables.audit = [
            now if was.target in standing else was
            for was, now in zip(self.before.audit, self._tables.audit, strict=True)
        ]


class BrokenPrune(MemoryStore):
    """Base of stores that hide from prune_ledger() the rows that should hold it back."""

    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        before = self._tables.copy()
        self.hide()
        pruned = await super().prune_ledger(retention, limit, cursor)
        self._tables.rows, self._tables.documents = before.rows, before.documents
        return pruned

    def hide(self) -> None:
        """Change the tables that the step sees."""


class PrunesTheNewest(BrokenPrune):
    """Also prunes what the planner could make again, and rows of schedules that count runs."""

    def hide(self) -> None:
        self._tables.rows, self._tables.documents = {}, {}


class PrunesWhatComesAgain(BrokenPrune):
    def hide(self) -> None:
        self._tables.rows = {}


class ForgetsPrunedRuns(MemoryStore):
    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        for key, stored in self._tables.documents.items():
            self._tables.documents[key] = replace(stored, runs_had=0)
        return await super().prune_ledger(retention, limit, cursor)


class PrunesTooSoon(MemoryStore):
    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        young = replace(retention, events_ms=86_400_000, audit_ms=86_400_000)
        object.__setattr__(young, "ledger_ms", 86_400_000)
        return await super().prune_ledger(young, limit, cursor)


class PrunesSignOuts(MemoryStore):
    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        self._tables.audit = [replace(each, action="any") for each in self._tables.audit]
        return await super().prune_ledger(retention, limit, cursor)


class PrunesNothing(MemoryStore):
    async def prune_ledger(
        self,
        retention: LedgerRetention,  # noqa: ARG002
        limit: int = 1_000,  # noqa: ARG002
        cursor: str | None = None,  # noqa: ARG002
    ) -> LedgerPruned:
        return LedgerPruned(0, 0, None)


class PrunesWithoutLimit(MemoryStore):
    async def prune_ledger(
        self, retention: LedgerRetention, limit: int = 1_000, cursor: str | None = None
    ) -> LedgerPruned:
        return await super().prune_ledger(retention, 1_000 if limit == 2 else limit, cursor)


class BrokenZones(MemoryStore):
    """Base of stores that change the result of a step of recompute_zones()."""

    before: Tables

    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        self.before = self._tables.copy()
        found = await super().recompute_zones(rules, limit=limit, cursor=cursor)
        return self.spoil(found)

    def spoil(self, found: Recomputed) -> Recomputed:
        return found


class MovesNothing(BrokenZones):
    def spoil(self, found: Recomputed) -> Recomputed:
        self._tables.rows = self.before.rows
        return found


class MovesSilently(BrokenZones):
    def spoil(self, found: Recomputed) -> Recomputed:
        self._tables.events = self.before.events
        return found


class ForgetsThePlanned(BrokenZones):
    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        ledger, self._tables.ledger = self._tables.ledger, {}
        found = await super().recompute_zones(rules, limit=limit, cursor=cursor)
        self._tables.ledger = ledger
        return found


class MovesIntoThePast(BrokenZones):
    def spoil(self, found: Recomputed) -> Recomputed:
        for key, row in self._tables.rows.items():
            if row != self.before.rows[key]:
                day_ms = 86_400_000
                back = replace(row, nominal_ms=row.nominal_ms - day_ms)
                self._tables.rows[key] = replace(back, run_at_ms=row.run_at_ms - day_ms)
        return found


class AcceptsOlderRules(BrokenZones):
    async def recompute_zones(
        self, rules: str | None, *, limit: int = MAX_ZONED, cursor: str | None = None
    ) -> Recomputed:
        found = await super().recompute_zones(rules, limit=limit, cursor=cursor)
        if rules is not None:
            self._tables.settings[ZONE_RULES] = rules
        return found


class StopsAfterAPage(BrokenZones):
    def spoil(self, found: Recomputed) -> Recomputed:
        return replace(found, cursor=None)


BROKEN_UPKEEP: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, UpkeepConformance, name)
    for broken, name in (
        (ErasesWithoutLimit, "test_steps_are_bounded_and_go_on"),
        (ErasesOneStepOnly, "test_everything_of_an_owner_goes"),
        (ErasesEveryKey, "test_others_keep_everything"),
        (ErasesEveryDocument, "test_others_keep_everything"),
        (KeepsIndexRows, "test_everything_of_an_owner_goes"),
        (KeepsJobEvents, "test_everything_of_an_owner_goes"),
        (KeepsLedger, "test_everything_of_an_owner_goes"),
        (KeepsNames, "test_deeds_on_others_things_lose_the_name"),
        (ErasesEventsOfOtherOwners, "test_deeds_on_others_things_lose_the_name"),
        (KeepsRunningMarkers, "test_running_marker_goes_with_its_job"),
        (LetsRunningJobsRun, "test_running_jobs_are_asked_to_stop"),
        (ErasesTheSystem, "test_system_and_nonsense_are_refused"),
        (ErasesByNameOfWorkspace, "test_names_that_look_like_others_take_nothing"),
        (KeepsNamesInTheAudit, "test_entries_about_an_erased_owner_lose_its_names"),
        (RemovesFromTheAudit, "test_entries_about_an_erased_owner_lose_its_names"),
        (KeepsNamesOfDeletedInTheAudit, "test_entries_about_deleted_schedules_lose_the_names"),
        (ErasesWithoutLimit, "test_names_leave_the_audit_in_bounded_steps"),
        (PrunesTooSoon, "test_old_entries_of_the_audit_go"),
        (PrunesSignOuts, "test_a_sign_out_is_kept_as_long_as_its_session_could_last"),
        (PrunesNothing, "test_old_entries_of_the_audit_go"),
        (PrunesNothing, "test_audit_has_a_retention_of_its_own"),
        (PrunesWithoutLimit, "test_entries_of_the_audit_go_in_bounded_steps"),
        (PrunesTheNewest, "test_newest_of_a_schedule_stays"),
        (PrunesTheNewest, "test_newest_of_each_kind_stays"),
        (PrunesWhatComesAgain, "test_times_to_be_planned_again_stay"),
        (ForgetsPrunedRuns, "test_runs_stay_counted_when_their_rows_are_removed"),
        (PrunesTooSoon, "test_old_occurrences_go"),
        (PrunesTooSoon, "test_ranges_go_as_a_whole"),
        (PrunesTooSoon, "test_young_facts_stay"),
        (PrunesNothing, "test_ledger_of_a_deleted_schedule_goes"),
        (PrunesNothing, "test_facts_about_the_gone_go"),
        (PrunesWithoutLimit, "test_steps_are_bounded"),
        (MovesNothing, "test_wrong_times_are_moved"),
        (MovesSilently, "test_wrong_times_are_moved"),
        (ForgetsThePlanned, "test_what_is_planned_is_not_planned_twice"),
        (MovesIntoThePast, "test_moves_go_forward_only"),
        (AcceptsOlderRules, "test_rules_are_remembered_and_never_older"),
        (StopsAfterAPage, "test_pages_reach_everything"),
    )
]
