"""Searching schedules of all scopes: filters, order and pages; and finding rows by id."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest

from duly.errors import InvalidInput
from duly.model.documents import DocumentWrite
from duly.model.index import MAX_PAGE
from duly.model.schedule_writes import ScheduleFilter, ScheduleKey
from duly.model.schedules import HandOver, ScheduleId, ScheduleState
from duly.stores.port import Store
from duly.testing.conformance.index.quarantine import a_bad_row
from duly.testing.conformance.samples import a_definition, a_write, put
from duly.testing.conformance.suite import StoreConformance, case
from duly.triggers import cron, weekly

EVERYBODY = ("system", "user:ada", "user:bob", "workspace:acme")


async def keep(store: Store, flow: str, scope: str, name: str, **fields: Any) -> None:
    """Store an hourly schedule."""
    key = ScheduleKey(flow, scope, name)
    await put(
        store, a_write(key=key, id=f"{flow}|{scope}|{name}", definition=a_definition(**fields))
    )


async def found(store: Store, **fields: Any) -> list[str]:
    """Return the ids of schedules that match a filter; each id is the key."""
    return [each.id for each in await store.search_schedules(ScheduleFilter(**fields))]


class SearchCases(StoreConformance):
    """Cases for search_schedules() and find_rows()."""

    @case
    async def test_nothing_stored_is_an_empty_page(self, store: Store) -> None:
        assert await found(store) == []
        assert await found(store, name_prefix="a") == []
        assert await store.find_rows([]) == {}

    @case
    async def test_search_goes_over_all_scopes_by_flow_name_and_scope(self, store: Store) -> None:
        for scope in EVERYBODY[::-1]:
            await keep(store, "billing", scope, "b")
            await keep(store, "billing", scope, "a")
        await keep(store, "billing-eu", "user:ada", "a")
        await keep(store, "archive", "user:zoe", "z")
        # In byte order of `flow/name`: the hyphen sorts before the slash.
        assert await found(store) == [
            "archive|user:zoe|z",
            "billing-eu|user:ada|a",
            *(f"billing|{scope}|a" for scope in EVERYBODY),
            *(f"billing|{scope}|b" for scope in EVERYBODY),
        ]

    @case
    async def test_filters_narrow_the_search(self, store: Store) -> None:
        for flow in ("billing", "crm"):
            for scope in ("user:ada", "user:bob"):
                await keep(store, flow, scope, "daily")
                await keep(store, flow, scope, "weekly", enabled=False)
        assert await found(store, flow="crm") == [
            "crm|user:ada|daily",
            "crm|user:bob|daily",
            "crm|user:ada|weekly",
            "crm|user:bob|weekly",
        ]
        assert await found(store, scope="user:bob", state="paused") == [
            "billing|user:bob|weekly",
            "crm|user:bob|weekly",
        ]
        assert await found(store, state="active", flow="crm") == [
            "crm|user:ada|daily",
            "crm|user:bob|daily",
        ]
        assert await found(store, state="finished") == []
        assert await found(store, flow="cr") == []
        assert await found(store, scope="user:b") == []

    @case
    async def test_search_knows_every_state(self, store: Store) -> None:
        await keep(store, "crm", "user:ada", "active")
        await keep(store, "crm", "user:ada", "paused", enabled=False)
        await keep(store, "crm", "user:ada", "finished", trigger=weekly({}))
        await keep(store, "crm", "user:ada", "quarantined")
        bad = a_bad_row("quarantined")
        await store.upsert(
            replace(bad, flow="crm", schedule_id=ScheduleId("crm|user:ada|quarantined"))
        )
        await store.claim_due()
        for state in get_args(ScheduleState):
            assert await found(store, state=state) == [f"crm|user:ada|{state}"]

    @case
    async def test_search_knows_every_hand_over(self, store: Store) -> None:
        for hand_over in get_args(HandOver):
            for scope in ("user:ada", "user:bob"):
                await keep(store, "crm", scope, hand_over, hand_over=hand_over)
            await keep(
                store, "crm", "user:ada", f"{hand_over}-off", enabled=False, hand_over=hand_over
            )
        for hand_over in get_args(HandOver):
            on = [f"crm|user:ada|{hand_over}", f"crm|user:bob|{hand_over}"]
            off = [f"crm|user:ada|{hand_over}-off"]
            assert await found(store, hand_over=hand_over) == on + off
            assert await found(store, hand_over=hand_over, state="paused") == off
            assert await found(store, hand_over=hand_over, scope="user:bob") == on[1:]
            assert await found(store, hand_over=hand_over, name_prefix=f"{hand_over}-") == off
        await keep(store, "crm", "user:ada", "jobs", hand_over="external")
        assert "crm|user:ada|jobs" in await found(store, hand_over="external")

    @case
    async def test_names_are_searched_by_their_beginning(self, store: Store) -> None:
        for flow in ("a-flow", "a", "b"):
            for name in ("digest", "digest-weekly", "dig", "Digest", "daily", "e"):
                await keep(store, flow, "user:ada", name)
        assert await found(store, flow="a", name_prefix="digest") == [
            "a|user:ada|digest",
            "a|user:ada|digest-weekly",
        ]
        assert await found(store, name_prefix="digest") == [
            "a-flow|user:ada|digest",
            "a-flow|user:ada|digest-weekly",
            "a|user:ada|digest",
            "a|user:ada|digest-weekly",
            "b|user:ada|digest",
            "b|user:ada|digest-weekly",
        ]
        assert await found(store, name_prefix="D", scope="user:ada", state="active") == [
            "a-flow|user:ada|Digest",
            "a|user:ada|Digest",
            "b|user:ada|Digest",
        ]
        assert await found(store, name_prefix="%") == []
        assert await found(store, name_prefix="_") == []

    @case
    async def test_names_may_hold_anything(self, store: Store) -> None:
        for name in ("50%", "a/b", "日本", "e\u0301\U0001f600"):
            await keep(store, "crm", "user:a/b", name)
            assert await found(store, name_prefix=name) == [f"crm|user:a/b|{name}"]
            assert await found(store, name_prefix=name, flow="crm", scope="user:a/b") == [
                f"crm|user:a/b|{name}"
            ]

    @case
    async def test_pages_join_without_gap_or_double(self, store: Store) -> None:
        for flow in ("a-x", "a", "b"):
            for scope in EVERYBODY:
                for name in ("n1", "n2", "other"):
                    await keep(store, flow, scope, name)
        filters = (
            ScheduleFilter(),
            ScheduleFilter(flow="a"),
            ScheduleFilter(scope="user:bob"),
            ScheduleFilter(state="active"),
            ScheduleFilter(name_prefix="n"),
            ScheduleFilter(name_prefix="n", state="active", scope="system"),
            ScheduleFilter(name_prefix="n2", flow="b"),
        )
        for which in filters:
            whole = [each.id for each in await store.search_schedules(which)]
            assert len(whole) == len(set(whole)) > 1
            for size in (1, 2, 5):
                joined: list[str] = []
                after: ScheduleKey | None = None
                while page := await store.search_schedules(which, after=after, limit=size):
                    joined += [each.id for each in page]
                    assert len(joined) <= len(whole), (which, size)
                    last = page[-1]
                    after = ScheduleKey(last.flow, str(last.scope), last.name)
                assert joined == whole, (which, size)

    @case
    async def test_page_may_begin_at_a_key_that_is_gone(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            await keep(store, "crm", "user:ada", name)
        gone = ScheduleKey("crm", "user:ada", "b")
        await store.delete_schedule(gone)
        for which in (ScheduleFilter(), ScheduleFilter(scope="user:ada")):
            page = await store.search_schedules(which, after=gone)
            assert [each.name for each in page] == ["c"]
        elsewhere = ScheduleKey("crm", "user:aaa", "c")
        page = await store.search_schedules(ScheduleFilter(scope="user:ada"), after=elsewhere)
        assert [each.name for each in page] == ["c"]
        elsewhere = ScheduleKey("crm", "user:zoe", "c")
        assert await store.search_schedules(ScheduleFilter(scope="user:ada"), after=elsewhere) == []

    @case
    async def test_search_gives_whole_schedules_and_nothing_else(self, store: Store) -> None:
        await store.put_document(DocumentWrite("notes", "user:ada", "crm/a", "n1", "{}"))
        (written,) = await put(store, a_write())
        assert await store.search_schedules(ScheduleFilter()) == [written.schedule]
        assert await store.search_schedules(ScheduleFilter(name_prefix="a")) == [written.schedule]

    @case
    async def test_search_pages_have_bounds(self, store: Store) -> None:
        for limit in (-1, 0, MAX_PAGE + 1):
            with pytest.raises(InvalidInput, match="limit"):
                await store.search_schedules(ScheduleFilter(), limit=limit)

    @case
    async def test_rows_are_found_by_id(self, store: Store) -> None:
        written = await put(
            store,
            a_write("a"),
            a_write("b", a_definition(cron("0 0 1 1 *"))),
            a_write("c", a_definition(enabled=False)),
        )
        ids = [each.schedule.id for each in written]
        assert await store.find_rows([*ids, ScheduleId("nobody")]) == {
            ids[0]: written[0].row,
            ids[1]: written[1].row,
        }
        assert await store.find_rows(ids[1:2]) == {ids[1]: written[1].row}

    @case
    async def test_quarantined_rows_have_no_next_time(self, store: Store) -> None:
        await store.upsert(a_bad_row("a"))
        await store.claim_due()
        assert len(await store.list_quarantined()) == 1
        assert await store.find_rows([ScheduleId("id-a")]) == {}
