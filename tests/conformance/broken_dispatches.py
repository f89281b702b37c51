"""Memory stores with one bug each in dispatches, each with the case that notices it."""

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from duly.engine.dispatch import dispatches
from duly.engine.dispatch.dispatches import stored_id
from duly.engine.kinds import ROW_IDS, StoredOccurrence
from duly.engine.transaction import Tx
from duly.model.dispatches import DispatchAnswer, DispatchClaim, Dispatching, Fire, FireAnswer
from duly.model.documents import Refused
from duly.model.ledger import Occurrence, OccurrenceState
from duly.model.schedule_writes import ScheduleWrite, ScheduleWritten
from duly.stores import MemoryStore
from duly.stores.memory.tables import LedgerEntry, StoredKey, Tables
from duly.testing.conformance import DispatchConformance, StoreConformance
from tests.conformance.broken_overlap import planted

S = OccurrenceState


def without_row(tx: Tx, items: Iterable[StoredOccurrence]) -> set[str]:
    """Treat finished schedules as deleted ones."""
    owners = {item.occurrence.schedule_id for item in items}
    return {each for each in owners if not tx.find(ROW_IDS, each)}


class BrokenTicks(MemoryStore):
    """Base of stores that change a claim's request, its view of the tables or its writes."""

    async def claim_dispatches(self, claim: DispatchClaim) -> list[Dispatching]:
        self.prepare()
        given = await super().claim_dispatches(self.ask(claim))
        self.spoil()
        return self.answer(given)

    def prepare(self) -> None:
        """Change the tables before the claim."""

    def ask(self, claim: DispatchClaim) -> DispatchClaim:
        return claim

    def spoil(self) -> None:
        """Change the tables after the claim."""

    def answer(self, given: list[Dispatching]) -> list[Dispatching]:
        return given

    def forget(self, *gone: OccurrenceState) -> None:
        """Drop ledger rows in these states."""
        ledger = self._tables.ledger
        self._tables.ledger = {k: e for k, e in ledger.items() if e.occurrence.state not in gone}


class PostsAheadOfTime(BrokenTicks):
    def prepare(self) -> None:
        for key, row in self._tables.rows.items():
            self._tables.rows[key] = replace(row, run_at_ms=row.run_at_ms - 10)


class PostsEveryHandOver(BrokenTicks):
    def prepare(self) -> None:
        for key, row in self._tables.rows.items():
            self._tables.rows[key] = replace(row, hand_over="http")


class PostsEveryTriggerVersion(BrokenTicks):
    def prepare(self) -> None:
        for key, row in self._tables.rows.items():
            self._tables.rows[key] = replace(row, trigger_version=1)


class PostsEveryFlow(BrokenTicks):
    def ask(self, claim: DispatchClaim) -> DispatchClaim:
        return replace(claim, flows=None)


class GivesMoreThanAsked(BrokenTicks):
    def ask(self, claim: DispatchClaim) -> DispatchClaim:
        return replace(claim, limit=1_000)


class LosesTheSurplus(BrokenTicks):
    def spoil(self) -> None:
        self._tables.posts = {k: post for k, post in self._tables.posts.items() if post.tries}


class CallsTheSurplusPosted(BrokenTicks):
    def spoil(self) -> None:
        for key, post in self._tables.posts.items():
            self._tables.posts[key] = post._replace(tries=max(1, post.tries))


class PostsAllAtOnce(BrokenTicks):
    """Catches up without a stagger."""

    def prepare(self) -> None:
        for key, post in self._tables.posts.items():
            if not post.tries:
                self._tables.posts[key] = post._replace(lease_until_ms=0)


class ForgetsWhoClaimed(BrokenTicks):
    def spoil(self) -> None:
        for key, post in self._tables.posts.items():
            self._tables.posts[key] = post._replace(claim_id=None)


class HidesMisfires(BrokenTicks):
    def spoil(self) -> None:
        self.forget(S.MISSED)


class NewestFirst(BrokenTicks):
    def answer(self, given: list[Dispatching]) -> list[Dispatching]:
        return given[::-1]


class NeverPostsAgain(BrokenTicks):
    def prepare(self) -> None:
        self._tables.posts = {k: post for k, post in self._tables.posts.items() if not post.tries}


class PostsAtMostOnceTwice(BrokenTicks):
    def prepare(self) -> None:
        for key, post in self._tables.posts.items():
            self._tables.posts[key] = post._replace(delivery="at_least_once")


class PostsForEver(BrokenTicks):
    def prepare(self) -> None:
        for key, post in self._tables.posts.items():
            self._tables.posts[key] = post._replace(tries=min(post.tries, 8))


class PostsTheDeleted(BrokenTicks):
    def prepare(self) -> None:
        self._tables.events = [each for each in self._tables.events if each.kind != "deleted"]


class BrokenAnswers(MemoryStore):
    """Base of stores that change what an answer to a post does."""

    async def end_dispatches(self, claim_id: str, answers: Sequence[DispatchAnswer]) -> int:
        before = self._tables.copy()
        self.prepare(claim_id)
        stood = await super().end_dispatches(claim_id, [self.hear(each) for each in answers])
        self.spoil(before)
        return stood

    def prepare(self, claim_id: str) -> None:
        """Change the tables before the answer."""

    def hear(self, answer: DispatchAnswer) -> DispatchAnswer:
        return answer

    def spoil(self, before: Tables) -> None:
        """Change the tables after the answer."""


class BelievesEveryClaim(BrokenAnswers):
    def prepare(self, claim_id: str) -> None:
        for key, post in self._tables.posts.items():
            self._tables.posts[key] = post._replace(claim_id=stored_id(claim_id))


class RepeatsWithoutDelay(BrokenAnswers):
    def hear(self, answer: DispatchAnswer) -> DispatchAnswer:
        return answer._replace(delay_ms=0)


class FailsWhatIsToBeRepeated(BrokenAnswers):
    def hear(self, answer: DispatchAnswer) -> DispatchAnswer:
        return answer._replace(end="failed") if answer.end == "again" else answer


class OverwritesWhatWasFired(BrokenAnswers):
    def prepare(self, claim_id: str) -> None:
        del claim_id
        for key, entry in self._tables.ledger.items():
            if entry.occurrence.state is S.FIRED:
                ended = msgspec.structs.replace(entry.occurrence, state=S.SUCCEEDED)
                self._tables.ledger[key] = LedgerEntry(ended)


class NeverQuarantines(BrokenAnswers):
    def prepare(self, claim_id: str) -> None:
        del claim_id
        self._tables.not_found.clear()


class NeverResetsTheCount(BrokenAnswers):
    def spoil(self, before: Tables) -> None:
        for key, times in before.not_found.items():
            self._tables.not_found[key] = max(times, self._tables.not_found.get(key, 0))


class BrokenEdits(MemoryStore):
    """Keeps counts of unknown schedules over an edit, and withdraws rows that are being posted."""

    async def put_schedules(
        self, writes: Sequence[ScheduleWrite]
    ) -> list[ScheduleWritten | Refused]:
        counts = dict(self._tables.not_found)
        answers = await super().put_schedules(writes)
        self._tables.not_found.update(counts)
        self._tables.posts.clear()
        return answers


class BrokenEndpoints(MemoryStore):
    """Base of stores that change the request of a fire or its writes."""

    async def fire(self, request: Fire) -> FireAnswer:
        answer = await super().fire(self.ask(request))
        self.spoil(request, answer)
        return answer

    def ask(self, request: Fire) -> Fire:
        return request

    def spoil(self, request: Fire, answer: FireAnswer) -> None:
        """Change the tables after the fire."""

    def free(self, *taken: OccurrenceState) -> None:
        """Let times in these states be fired again."""
        ledger = self._tables.ledger
        self._tables.ledger = {k: e for k, e in ledger.items() if e.occurrence.state not in taken}

    def rewrite(self, wanted: OccurrenceState, state: OccurrenceState) -> None:
        """Replace one state by another."""

        def changed(row: Occurrence) -> Occurrence:
            return msgspec.structs.replace(row, state=state) if row.state is wanted else row

        for key, entry in self._tables.ledger.items():
            self._tables.ledger[key] = LedgerEntry(changed(entry.occurrence))


class FiresTwice(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        self.free(S.FIRED)
        return request


class FiresWhatEnded(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        self.free(S.FAILED)
        return request


class FiresWhatWasSwallowed(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        self.free(S.MISSED)
        return request


class FiresWhatIsPlanned(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        self.free(S.PLANNED)
        return request


class NeverFiresTheWithdrawn(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        self.rewrite(S.WITHDRAWN, S.DENIED)
        return request


class LeavesItToTheWorkerToFire(BrokenEndpoints):
    def spoil(self, request: Fire, answer: FireAnswer) -> None:
        del request, answer
        self.rewrite(S.FIRED, S.PLANNED)


class LetsTicksPostWhatWasFired(BrokenEndpoints):
    async def fire(self, request: Fire) -> FireAnswer:
        posts = dict(self._tables.posts)
        answer = await super().fire(request)
        self._tables.posts = posts
        for key in posts:
            self._tables.ledger[key] = LedgerEntry(
                msgspec.structs.replace(self._tables.ledger[key].occurrence, state=S.DISPATCHING)
            )
        return answer


class LooksFirstAndActsLater(MemoryStore):
    async def fire(self, request: Fire) -> FireAnswer:
        seen = dict(self._tables.ledger)
        await asyncio.sleep(0)
        self._tables.ledger = seen
        return await super().fire(request)


class ForgetsKeys(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        return replace(request, job=msgspec.structs.replace(request.job, key=None))


class KeepsKeysApartByInput(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        job = request.job
        key = None if job.key is None else f"{job.key}/{job.input}"
        return replace(request, job=msgspec.structs.replace(job, key=key))


class TakesKeysAnyway(BrokenEndpoints):
    """Uses up the key also if no job was made."""

    def spoil(self, request: Fire, answer: FireAnswer) -> None:
        del answer
        job = request.job
        if job.key is not None:
            key = (job.workspace, job.action, job.key)
            self._tables.keys.setdefault(key, StoredKey(job.id, "", 2**60))


class RunsAllAtOnce(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        return replace(request, job=msgspec.structs.replace(request.job, turn=None))


class FiresPausedExternal(BrokenEndpoints):
    """Treats every external schedule as active."""

    async def fire(self, request: Fire) -> FireAnswer:
        documents = dict(self._tables.documents)
        for key, stored in documents.items():
            if '"hand_over":"external"' in stored.document.body:
                self._tables.documents[key] = replace(stored, state="active")
        answer = await super().fire(request)
        self._tables.documents = documents
        return answer


class FiresFinished(BrokenEndpoints):
    async def fire(self, request: Fire) -> FireAnswer:
        for key, stored in self._tables.documents.items():
            if stored.state == "finished":
                self._tables.documents[key] = replace(stored, state="active")
        return await super().fire(request)


class FiresDeleted(BrokenEndpoints):
    def ask(self, request: Fire) -> Fire:
        return replace(request, is_stored=False)


class SkipsSilently(BrokenEndpoints):
    def spoil(self, request: Fire, answer: FireAnswer) -> None:
        del request, answer
        self.free(S.SKIPPED)


BROKEN_DISPATCHES: list[tuple[type[MemoryStore], type[StoreConformance], str]] = [
    (broken, DispatchConformance, name)
    for broken, name in (
        (PostsAheadOfTime, "test_nothing_is_taken_ahead_of_its_time"),
        (PostsEveryHandOver, "test_rows_of_other_hand_overs_are_not_posted"),
        (PostsEveryTriggerVersion, "test_newer_triggers_wait_for_newer_ticks"),
        (PostsEveryFlow, "test_only_named_flows_are_posted"),
        (PostsEveryFlow, "test_only_named_flows_are_posted_again"),
        (GivesMoreThanAsked, "test_no_more_than_asked"),
        (LosesTheSurplus, "test_surplus_stays_for_the_next_claim"),
        (CallsTheSurplusPosted, "test_at_most_once_may_be_posted_once"),
        (PostsAllAtOnce, "test_catching_up_is_staggered"),
        (ForgetsWhoClaimed, "test_lost_answer_is_asked_for_again"),
        (HidesMisfires, "test_misfires_go_by_the_policy"),
        (NewestFirst, "test_oldest_comes_first_and_before_what_is_new"),
        (NeverPostsAgain, "test_lease_holds_until_its_end"),
        (PostsAtMostOnceTwice, "test_at_most_once_is_not_posted_again"),
        (PostsForEver, "test_gives_up_in_the_end"),
        (PostsTheDeleted, "test_deleted_schedule_is_not_posted_again"),
        (
            planted("TreatsFinishedAsDeleted", (dispatches, "_deleted", without_row)),
            "test_finished_schedule_is_posted_again",
        ),
        (BelievesEveryClaim, "test_claim_speaks_for_its_own_alone"),
        (BelievesEveryClaim, "test_lost_lease_has_no_say"),
        (RepeatsWithoutDelay, "test_again_waits_for_its_delay"),
        (FailsWhatIsToBeRepeated, "test_again_waits_for_its_delay"),
        (OverwritesWhatWasFired, "test_what_was_fired_stays"),
        (NeverQuarantines, "test_unknown_schedule_is_set_apart_in_the_end"),
        (NeverResetsTheCount, "test_closed_begins_the_count_anew"),
        (BrokenEdits, "test_edit_begins_the_count_anew"),
        (BrokenEdits, "test_edit_does_not_take_back_what_has_begun"),
        (FiresTwice, "test_second_job_of_a_time_is_a_duplicate"),
        (FiresWhatEnded, "test_late_endpoint_meets_what_ended"),
        (FiresWhatWasSwallowed, "test_swallowed_times_are_taken"),
        (FiresWhatIsPlanned, "test_planned_times_are_taken"),
        (NeverFiresTheWithdrawn, "test_withdrawn_times_are_free"),
        (LeavesItToTheWorkerToFire, "test_dispatch_becomes_a_job"),
        (LetsTicksPostWhatWasFired, "test_posted_again_is_fired_once"),
        (LooksFirstAndActsLater, "test_fired_at_once_fires_once"),
        (ForgetsKeys, "test_key_stands_for_the_first"),
        (KeepsKeysApartByInput, "test_key_stands_whatever_the_input"),
        (TakesKeysAnyway, "test_duplicate_takes_no_key"),
        (TakesKeysAnyway, "test_skipped_takes_no_key"),
        (RunsAllAtOnce, "test_skip_beside_a_running_one"),
        (SkipsSilently, "test_skip_beside_a_running_one"),
        (FiresPausedExternal, "test_paused_schedule_accepts_no_dispatch"),
        (FiresPausedExternal, "test_pause_and_dispatch_at_once"),
        (FiresFinished, "test_finished_schedule_accepts_no_dispatch"),
        (FiresDeleted, "test_deleted_schedule_accepts_no_dispatch"),
    )
]
