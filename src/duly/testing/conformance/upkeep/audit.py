"""The audit: old entries are pruned, and the names of an erased owner are removed."""

from __future__ import annotations

import pytest

from duly.errors import InvalidInput
from duly.model.jobs import JobId
from duly.model.summaries import MAX_SESSION_S, SIGN_OUT, AuditEntry
from duly.model.upkeep import DAY_MS, ERASED, Erased, LedgerRetention
from duly.rules.outcomes import Succeeded
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.jobs.samples import claims, end, insert
from duly.testing.conformance.planning.samples import plan
from duly.testing.conformance.samples import a_key, a_write, put
from duly.testing.conformance.suite import StoreConformance, case
from duly.testing.conformance.upkeep.erasure import ADA, BOB, erase, job_of
from duly.testing.conformance.upkeep.ledger import prune

DAYS = 400


async def tell(store: Store, target: str, detail: str = "of ada", by: str = "ops") -> AuditEntry:
    """Append an entry about a target and return it."""
    return await store.append_audit(AuditEntry(by, "thing.touch", target, "done", detail))


async def told(store: Store) -> list[tuple[str, str, str]]:
    """Return actor, target and detail of every entry, oldest first."""
    found = await store.list_audit()
    return [(each.by, each.target, each.detail) for each in reversed(found)]


class AuditUpkeepCases(StoreConformance):
    """Cases for the audit in prune_ledger() and erase()."""

    @case
    async def test_old_entries_of_the_audit_go(self, store: Store, clock: ManualClock) -> None:
        await tell(store, "queue:mail")
        clock.advance(days=1)
        young = await tell(store, "queue:mail")
        clock.advance(days=DAYS - 1)
        assert (await prune(store)).audit == 0
        clock.advance(milliseconds=1)
        assert (await prune(store)).audit == 1
        assert await store.list_audit() == [young]
        later = await tell(store, "queue:other")
        assert later.seq > young.seq

    @case
    async def test_a_sign_out_is_kept_as_long_as_its_session_could_last(
        self, store: Store, clock: ManualClock
    ) -> None:
        out = await store.append_audit(AuditEntry("ada", SIGN_OUT, "session:1"))
        await tell(store, "queue:mail")
        short = LedgerRetention(audit_ms=DAY_MS)
        clock.advance(days=2)
        assert (await prune(store, 1, short)).audit == 1
        clock.advance(seconds=MAX_SESSION_S - 2 * 86_400)
        assert (await prune(store, 1, short)).audit == 0
        assert await store.list_audit(target="session:1") == [out]
        clock.advance(milliseconds=1)
        assert (await prune(store, 1, short)).audit == 1

    @case
    async def test_entries_of_the_audit_go_in_bounded_steps(
        self, store: Store, clock: ManualClock
    ) -> None:
        for number in range(5):
            await tell(store, f"job:{number}")
        clock.advance(days=DAYS + 1)
        kept = await tell(store, "job:5")
        assert (await prune(store, 2)).audit == 5
        assert await store.list_audit() == [kept]

    @case
    async def test_audit_has_a_retention_of_its_own(self, store: Store, clock: ManualClock) -> None:
        await tell(store, "queue:mail")
        clock.advance(days=2)
        step = await store.prune_ledger(LedgerRetention(audit_ms=DAY_MS))
        removed = step.audit
        while step.cursor is not None:
            step = await store.prune_ledger(LedgerRetention(audit_ms=DAY_MS), cursor=step.cursor)
            removed += step.audit
        assert removed == 1
        with pytest.raises(InvalidInput, match="audit_ms"):
            LedgerRetention(audit_ms=DAY_MS - 1)

    @case
    async def test_entries_about_an_erased_owner_lose_its_names(self, store: Store) -> None:
        """Entries about an erased owner stay without its names; those about others stay as is."""
        for scope, name in ((ADA, "ada"), (BOB, "bob")):
            await put(store, a_write(name, key=a_key(name, scope=scope), by=scope))
            await insert(store, job_of(scope, f"job-{name}"))
            for target in (f"schedule:id-{name}", f"schedule:crm/{scope}/{name}"):
                await tell(store, target, f"of {name}")
            await tell(store, f"job:job-{name}", f"of {name}")
        await tell(store, "queue:mail", "quiet", by=ADA)
        await tell(store, "schedule:crm/user:adam/ada", "of adam")
        bobs = [
            ("ops", target, "of bob")
            for target in ("schedule:id-bob", "schedule:crm/user:bob/bob", "job:job-bob")
        ]
        erased = await erase(store)
        assert erased.audit == 4
        assert await told(store) == [
            ("ops", f"schedule:{ERASED}", ERASED),
            ("ops", f"schedule:{ERASED}", ERASED),
            ("ops", f"job:{ERASED}", ERASED),
            *bobs,
            (ERASED, "queue:mail", "quiet"),
            ("ops", "schedule:crm/user:adam/ada", "of adam"),
        ]
        assert await erase(store) == Erased()

    @case
    async def test_entries_about_deleted_schedules_lose_the_names(
        self, store: Store, clock: ManualClock
    ) -> None:
        """Deleted schedules of an erased owner are found by their creator or their ledger."""
        for name, by in (("made", ADA), ("fired", "static")):
            await put(store, a_write(name, key=a_key(name, scope=ADA), by=by))
        clock.advance(hours=1)
        await plan(store)
        for job in (await claims(store)).jobs:
            await end(store, job, Succeeded())
        await put(store, a_write("others", key=a_key("others", scope=BOB), by=ADA))
        for name in ("made", "fired"):
            await store.delete_schedule(a_key(name, scope=ADA))
        for name in ("made", "fired", "others"):
            await tell(store, f"schedule:id-{name}", name)
        assert (await erase(store)).audit == 2
        assert [words for _, _, words in await told(store)] == [ERASED, ERASED, "others"]

    @case
    async def test_names_leave_the_audit_in_bounded_steps(self, store: Store) -> None:
        await insert(store, job_of(ADA, "job-ada"))
        for _ in range(3):
            await tell(store, "job:job-ada")
            await tell(store, "job:other")
        step = await store.erase(ADA, limit=1)
        assert (step.audit <= 1, step.cursor is not None) == (True, True)
        assert (await erase(store, limit=1)).audit == 3 - step.audit
        assert await store.get_job(JobId("job-ada")) is None
        assert [words for _, _, words in await told(store)] == [ERASED, "of ada"] * 3
