"""Reconciliation: the index is rebuilt from documents and ledger, and its health reported."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from duly.model.index import ReconcileReport
from duly.model.plans import PlanRequest
from duly.model.schedule_writes import ScheduleKey
from duly.model.schedules import Policies, ScheduleId
from duly.stores.port import Store
from duly.testing.clock import ManualClock
from duly.testing.conformance.samples import (
    DAILY,
    FLOW,
    HOUR_MS,
    HOURLY,
    SCOPE,
    START_MS,
    a_definition,
    a_key,
    a_row,
    a_write,
    only_row,
    put,
)
from duly.testing.conformance.suite import START, StoreConformance, case
from duly.triggers import cron, every, once, weekly
from duly.triggers.instants import from_ms


class UpkeepCases(StoreConformance):
    """Cases for reconcile() and index_health()."""

    @case
    async def test_health_counts_schedules(self, store: Store, clock: ManualClock) -> None:
        off = a_definition(enabled=False)
        await put(store, a_write("a"), a_write("b"), a_write("c", off))
        health = await store.index_health()
        assert (health.active, health.rows, health.missing, health.due) == (2, 2, 0, 0)
        assert health.is_healthy
        clock.advance(hours=1)
        health = await store.index_health()
        assert (health.due, health.oldest_due_ms) == (2, START_MS + HOUR_MS)

    @case
    async def test_schedules_without_rows_are_unhealthy(self, store: Store) -> None:
        await put(store, a_write("a"), a_write("b"))
        await store.remove(a_key("a"))
        health = await store.index_health()
        assert (health.active, health.rows, health.missing) == (2, 1, 1)
        assert not health.is_healthy

    @case
    async def test_foreign_row_under_the_key_is_no_row(self, store: Store) -> None:
        await put(store, a_write("a"))
        await store.upsert(a_row("a", schedule_id="foreign"))
        assert (await store.index_health()).missing == 1
        report = await store.reconcile()
        assert report.checked == 1
        assert (await only_row(store)).schedule_id == "id-a"
        assert (await store.index_health()).is_healthy

    @case
    async def test_whole_index_needs_no_mending(self, store: Store) -> None:
        off = a_definition(enabled=False)
        await put(store, a_write("a"), a_write("b", off), a_write("c"))
        rows = await store.list_rows()
        assert await store.reconcile() == ReconcileReport(checked=3)
        assert await store.list_rows() == rows

    @case
    async def test_missing_rows_come_back(self, store: Store, clock: ManualClock) -> None:
        """A missing row is restored at its earlier time, even if that has passed."""
        (answer,) = await put(store, a_write(definition=a_definition(max_runs=4)))
        await store.remove(a_key())
        clock.advance(hours=3)
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        assert await only_row(store) == answer.row
        assert (await store.index_health()).is_healthy

    @case
    async def test_emptied_index_is_rebuilt_the_same(
        self, store: Store, clock: ManualClock
    ) -> None:
        with_rows = [
            a_definition(policies=Policies(priority=3)),
            a_definition(DAILY, hand_over="http"),
            a_definition(cron("H * * * *", spread=900)),
            a_definition(every(minutes=90), max_runs=4),
            a_definition(weekly({"mon": "09:00"}, tz="Asia/Tokyo")),
            a_definition(once(START + timedelta(days=1))),
        ]
        without = [a_definition(enabled=False), a_definition(hand_over="external")]
        definitions = [*with_rows, *without]
        await put(store, *(a_write(f"{n}", each) for n, each in enumerate(definitions)))
        rows = await store.list_rows()
        for number in range(len(definitions)):
            await store.remove(a_key(f"{number}"))
        assert await store.list_rows() == []
        clock.advance(minutes=50)
        assert await store.reconcile() == ReconcileReport(
            checked=len(definitions), added=len(with_rows)
        )
        assert await store.list_rows() == rows

    @case
    async def test_missing_rows_go_on_after_the_ledger(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(max_runs=4)))
        for number in range(2):
            clock.advance(hours=1)
            assert len(await store.claim_due(claim_id=f"claim-{number}")) == 1
        await store.remove(a_key())
        clock.advance(hours=5)
        await store.reconcile()
        row = await only_row(store)
        assert row.nominal_ms == START_MS + 3 * HOUR_MS
        assert row.runs_left == 2

    @case
    async def test_missing_rows_begin_no_earlier_than_their_rule(
        self, store: Store, clock: ManualClock
    ) -> None:
        """A restored row has no time of the new trigger before the edit that set it."""
        await put(store, a_write(definition=a_definition(cron("0 0 1 * *"))))
        clock.set(datetime(2026, 5, 1, tzinfo=UTC))
        assert len(await store.claim_due(claim_id="claim")) == 1
        clock.set(datetime(2026, 5, 20, 8, 30, tzinfo=UTC))
        await put(store, a_write(definition=a_definition(cron("0 */6 * * *"))))
        clock.set(datetime(2026, 5, 20, 13, tzinfo=UTC))
        await put(store, a_write(definition=a_definition(cron("0 */6 * * *"), description="new")))
        row = await only_row(store)
        await store.remove(a_key())
        assert await store.reconcile() == ReconcileReport(checked=1, added=1)
        assert (await only_row(store)).nominal_ms == row.nominal_ms
        assert from_ms(row.nominal_ms) == datetime(2026, 5, 20, 12, tzinfo=UTC)

    @case
    async def test_missing_rows_begin_no_earlier_than_a_resume(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write())
        clock.advance(hours=1)
        assert len(await store.claim_due(claim_id="claim")) == 1
        await put(store, a_write(definition=a_definition(hand_over="external")))
        await put(store, a_write(definition=a_definition(hand_over="external", enabled=False)))
        clock.advance(hours=5)
        await put(store, a_write())
        row = await only_row(store)
        await store.remove(a_key())
        await store.reconcile()
        assert (await only_row(store)).nominal_ms == row.nominal_ms == START_MS + 7 * HOUR_MS

    @case
    async def test_missing_rows_begin_no_earlier_than_another_beginning(
        self, store: Store, clock: ManualClock
    ) -> None:
        await put(store, a_write(definition=a_definition(max_runs=1)))
        clock.advance(hours=1)
        assert len(await store.claim_due(claim_id="claim")) == 1
        clock.advance(hours=5)
        await put(store, a_write(definition=a_definition(max_runs=2)))
        row = await only_row(store)
        await store.remove(a_key())
        await store.reconcile()
        assert (await only_row(store)).nominal_ms == row.nominal_ms == START_MS + 7 * HOUR_MS

    @case
    async def test_spread_rows_go_on_after_the_ledger(
        self, store: Store, clock: ManualClock
    ) -> None:
        trigger = cron("0 * * * *", spread=3000)
        (answer,) = await put(store, a_write(definition=a_definition(trigger)))
        assert answer.row is not None
        clock.advance(hours=1, milliseconds=-1)
        assert len(await store.claim_due(claim_id="one")) == 1
        after_claim = await only_row(store)
        await store.remove(a_key())
        await store.reconcile()
        row = await only_row(store)
        assert (row.nominal_ms, row.run_at_ms) == (after_claim.nominal_ms, after_claim.run_at_ms)

    @case
    async def test_used_up_schedules_are_finished(self, store: Store, clock: ManualClock) -> None:
        await put(store, a_write(definition=a_definition(max_runs=2)))
        for number in range(2):
            clock.advance(hours=1)
            await store.upsert(replace(await only_row(store), runs_left=9))
            assert len(await store.claim_due(claim_id=f"claim-{number}")) == 1
        await store.remove(a_key())
        await store.reconcile()
        schedule = await store.get_schedule(a_key())
        assert schedule is not None
        assert schedule.state == "finished"
        assert await store.list_rows() == []
        assert (await store.index_health()).is_healthy

    @case
    async def test_rows_of_the_idle_are_removed(self, store: Store) -> None:
        off = a_definition(enabled=False)
        await put(
            store,
            a_write("paused", off),
            a_write("external", a_definition(hand_over="external")),
            a_write("kept"),
        )
        for name in ("paused", "external"):
            await store.upsert(a_row(name))
        assert await store.reconcile() == ReconcileReport(checked=3, removed=2)
        assert [row.name for row in await store.list_rows()] == ["kept"]

    @case
    async def test_rows_of_callers_are_left_alone(self, store: Store, clock: ManualClock) -> None:
        """Rows upserted by the application are kept, even in a flow that has stored schedules."""
        await put(store, a_write("stored"), a_write("moved"))
        await store.delete_schedule(a_key("moved"))
        own = [
            a_row("own", hand_over="external"),
            # The id of a deleted schedule whose definition is now kept elsewhere.
            a_row("moved", hand_over="external"),
            a_row("other", flow="elsewhere", hand_over="external"),
        ]
        for row in own:
            await store.upsert(row)
        for flows in (None, [FLOW], [FLOW, "elsewhere"]):
            assert (await store.reconcile(flows)).removed == 0
        rows = [row for row in await store.list_rows() if row.name != "stored"]
        assert sorted(rows, key=lambda row: row.name) == sorted(own, key=lambda row: row.name)
        assert (await store.index_health()).is_healthy
        clock.advance(hours=2)
        report = await store.plan_occurrences(PlanRequest())
        assert (report.rows, report.quarantined) == (1, 0)
        claimed = await store.claim_due()
        assert {each.name for each in claimed} == {"own", "moved", "other"}

    @case
    async def test_flows_without_documents_are_left_alone(self, store: Store) -> None:
        """Rows of a flow without stored schedules are kept."""
        await put(store, a_write())
        foreign = a_row("x", schedule_id="x", flow="elsewhere")
        await store.upsert(foreign)
        assert (await store.reconcile()).removed == 0
        assert foreign in await store.list_rows()
        assert (await store.reconcile(["elsewhere"])).removed == 0
        assert foreign in await store.list_rows()

    @case
    async def test_only_named_flows_are_mended(self, store: Store) -> None:
        other = ScheduleKey("invoices", SCOPE, "a")
        await put(store, a_write(), a_write(key=other, id="invoice"))
        await store.remove(a_key())
        await store.remove(other)
        assert await store.reconcile(["invoices"]) == ReconcileReport(checked=1, added=1)
        assert (await only_row(store)).flow == "invoices"
        assert await store.reconcile([]) == ReconcileReport()
        assert len(await store.list_rows()) == 1

    @case
    async def test_wrong_rows_are_corrected_and_keep_their_times(
        self, store: Store, clock: ManualClock
    ) -> None:
        policies = Policies(priority=2, grace_ms=7)
        await put(store, a_write(definition=a_definition(policies=policies, max_runs=9)))
        clock.advance(hours=1)
        await store.claim_due()
        right = await only_row(store)
        for wrong in (
            replace(right, priority=9),
            replace(right, policies="{}"),
            replace(right, hand_over="http"),
            replace(right, zone="Europe/Berlin"),
        ):
            await store.upsert(wrong)
            assert await store.reconcile() == ReconcileReport(checked=1, corrected=1)
            assert replace(await only_row(store), version=right.version) == right

    @case
    async def test_wrong_trigger_is_corrected_with_its_times(
        self, store: Store, clock: ManualClock
    ) -> None:
        (answer,) = await put(store, a_write())
        assert answer.row is not None
        await store.upsert(
            replace(a_row(trigger=cron("5 5 * * *")), schedule_id=ScheduleId("id-a"))
        )
        clock.advance(minutes=30)
        assert await store.reconcile() == ReconcileReport(checked=1, corrected=1)
        row = await only_row(store)
        assert replace(row, version=answer.row.version) == answer.row
        assert row.version > answer.row.version

    @case
    async def test_quarantine_outlives_reconcile(self, store: Store, clock: ManualClock) -> None:
        (answer,) = await put(store, a_write())
        assert answer.row is not None
        await store.upsert(replace(answer.row, trigger="nonsense"))
        clock.advance(hours=1)
        await store.claim_due()
        assert await store.reconcile() == ReconcileReport(checked=1)
        assert len(await store.list_quarantined()) == 1
        assert not (await store.index_health()).is_healthy

    @case
    async def test_many_schedules_are_mended_in_pages(self, store: Store) -> None:
        count = 1_100
        keys = [
            ScheduleKey("many", f"workspace:{number % 7}", f"{number}") for number in range(count)
        ]
        writes = [a_write(key=key, id=f"{key.scope} {key.name}") for key in keys]
        await put(store, *writes)
        for key in keys[::100]:
            await store.remove(key)
        assert (await store.index_health()).missing == len(keys[::100])
        report = await store.reconcile()
        assert report == ReconcileReport(checked=count, added=len(keys[::100]))
        health = await store.index_health()
        assert (health.rows, health.is_healthy) == (count, True)

    @case
    async def test_healthy_means_all_is_indexed(self, store: Store) -> None:
        definition = a_definition(HOURLY)
        await put(store, *(a_write(f"{number}", definition) for number in range(3)))
        for number in range(3):
            await store.remove(a_key(f"{number}"))
        health = await store.index_health()
        assert (health.active, health.rows, health.is_healthy) == (3, 0, False)
