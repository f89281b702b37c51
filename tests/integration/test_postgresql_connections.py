"""Connections to PostgreSQL that hang, turn read-only or grow old: calls fail, later ones work."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import psycopg
import pytest
from psycopg import sql
from sqlalchemy import create_engine, text
from sqlalchemy.engine import make_url

from duly import Duly
from duly.errors import BackendUnavailable, InvalidInput
from duly.model.jobs import JobId, NewJob
from duly.stores import open_store
from duly.stores.sql.db import Db
from duly.stores.sql.dialects.postgresql import copy, notices
from duly.stores.sql.dialects.postgresql.connections import connect_parameters, is_lost_server
from duly.stores.sql.options import SqlOptions
from duly.stores.sql.store import SqlStore
from duly.web.dashboard.site import dashboard_app
from duly.web.operators.auth import AuthOptions, OperatorAuth
from tests.missing import missing_tool
from tests.servers import NO_SERVER, database_of, find_binaries
from tests.system.faults.proxy import Proxy
from tests.system.faults.replica import Pair, own_pair

LIMIT_S = 60.0
POLL_S = 0.05


@pytest.fixture
def proxy(postgres_url: str) -> Iterator[Proxy]:
    """Run a proxy in front of the test server; a test that hangs on it fails."""
    with Proxy(make_url(postgres_url).port or 0) as started:
        hangs = threading.Event()

        def end_hanging() -> None:
            hangs.set()
            started.close_connections()

        timer = threading.Timer(LIMIT_S, end_hanging)
        timer.start()
        yield started
        timer.cancel()
        timer.join()
        assert not hangs.is_set(), f"a call hung for {LIMIT_S:g} s"


def opened(url: str, **options: Any) -> SqlStore:
    return cast(SqlStore, open_store(url, **options))


def until(condition: Callable[[], bool], what: str) -> None:
    pause = threading.Event()
    for _ in range(round(LIMIT_S / POLL_S)):
        if condition():
            return
        pause.wait(POLL_S)
    raise TimeoutError(f"{what}: not within {LIMIT_S:g} s")


def run_statement(db: Db, statement: str) -> list[Any]:
    """Run one statement as a verb."""
    return list(db.run(statement).scalars())


def set_read_only(url: str, *, is_on: bool) -> None:
    """Make sessions opened from now on read-only or writable."""
    change = "SET default_transaction_read_only = on" if is_on else "RESET ALL"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET default_transaction_read_only = off")
        connection.execute(
            sql.SQL("ALTER DATABASE {} " + change).format(sql.Identifier(database_of(url)))
        )


class TestSilence:
    def test_a_call_on_a_frozen_connection_fails_and_the_next_one_works(
        self, postgres_url: str, proxy: Proxy
    ) -> None:
        store = opened(proxy.url(postgres_url), deadline_s=1)

        async def check() -> None:
            await asyncio.gather(*(store.now_ms() for _ in range(5)))
            proxy.freeze()
            with pytest.raises(BackendUnavailable, match="no answer for 1 s") as caught:
                await store.now_ms()
            assert caught.value.is_unreachable
            # The other connections of the pool hang too; none of them is used again.
            for _ in range(6):
                await store.now_ms()
            await store.close()

        asyncio.run(check())

    def test_threads_of_frozen_connections_are_freed(self, postgres_url: str, proxy: Proxy) -> None:
        store = opened(proxy.url(postgres_url), deadline_s=1, connections=2)

        async def check() -> None:
            await asyncio.gather(store.now_ms(), store.now_ms())
            proxy.freeze()
            answers = await asyncio.gather(
                *(store.now_ms() for _ in range(8)), return_exceptions=True
            )
            assert any(isinstance(each, BackendUnavailable) for each in answers)
            assert all(isinstance(each, int | BackendUnavailable) for each in answers)
            assert await asyncio.gather(*(store.now_ms() for _ in range(8)))
            await store.close()

        asyncio.run(check())

    def test_a_proxy_that_never_answers_is_unreachable(
        self, postgres_url: str, proxy: Proxy
    ) -> None:
        store = opened(f"{proxy.url(postgres_url)}?connect_timeout=2", deadline_s=1)
        proxy.fall_silent()
        for _ in range(2):
            with pytest.raises(BackendUnavailable) as caught:
                asyncio.run(store.now_ms())
            assert caught.value.is_unreachable
        proxy.answer()
        assert asyncio.run(store.now_ms())
        asyncio.run(store.close())

    def test_locks_of_a_frozen_client_are_released(self, postgres_url: str, proxy: Proxy) -> None:
        frozen = opened(proxy.url(postgres_url), deadline_s=1)
        direct = opened(postgres_url)

        def lock_and_freeze(db: Db) -> None:
            db.run("SELECT version FROM {p}schema {lock}").all()
            proxy.freeze()
            db.run("SELECT 1")

        async def check() -> None:
            with pytest.raises(BackendUnavailable):
                await frozen._run(lock_and_freeze)
            # The server does not know that the client hangs, but its timeouts end the session.
            assert await direct._run(run_statement, "SELECT 1 FROM {p}schema {lock}") == [1]
            await frozen.close()
            await direct.close()

        asyncio.run(check())

    def test_a_slow_statement_is_cancelled_by_the_server(self, postgres_url: str) -> None:
        store = opened(postgres_url, deadline_s=2)
        with pytest.raises(BackendUnavailable, match="statement timeout") as caught:
            asyncio.run(store._run(run_statement, "SELECT pg_sleep(60)"))
        assert not caught.value.is_unreachable, "the connection is healthy and stays in the pool"
        asyncio.run(store.close())

    def test_upkeep_has_its_own_deadline(self, postgres_url: str, proxy: Proxy) -> None:
        store = opened(proxy.url(postgres_url), deadline_s=1, connections=1)
        slow = "SELECT 7 FROM pg_sleep(1.5)"
        assert asyncio.run(store._run_upkeep(run_statement, slow)) == [7]
        # The connection has its usual deadline again, on the server and on the client.
        with pytest.raises(BackendUnavailable, match="statement timeout"):
            asyncio.run(store._run(run_statement, slow))
        proxy.freeze()
        with pytest.raises(BackendUnavailable, match="no answer for 1 s"):
            asyncio.run(store.now_ms())
        asyncio.run(store.close())

    def test_an_answer_that_arrives_in_parts_is_not_cut_off(self, postgres_url: str) -> None:
        # As behind a pooler: the server has no statement timeout that would end the statement.
        store = opened(postgres_url, deadline_s=1, prepared_statements=False)
        slow = "SELECT repeat('x', 20000) FROM generate_series(1, 10) "
        slow += "WHERE pg_sleep(0.2) IS NOT NULL"
        assert len(asyncio.run(store._run(run_statement, slow))) == 10
        asyncio.run(store.close())

    def test_a_silent_bulk_insert_closes_its_connection(
        self, postgres_url: str, proxy: Proxy
    ) -> None:
        store = opened(proxy.url(postgres_url), deadline_s=1, connections=1)
        freezes = iter([True])

        def freeze_and_copy(db: Db) -> bool:
            if next(freezes, False):
                db.run("SELECT 1")
                proxy.freeze()
            return copy._stored(db, {})

        with pytest.raises(BackendUnavailable, match="no answer for 1 s") as caught:
            asyncio.run(store._run(freeze_and_copy))
        assert caught.value.is_unreachable
        assert asyncio.run(store._run(freeze_and_copy))
        asyncio.run(store.close())

    def test_a_start_takes_no_lock_if_the_schema_is_current(self, postgres_url: str) -> None:
        first = opened(postgres_url)
        with first._engine.begin() as connection:
            first._dialect.guard_schema(connection, first._tables)
            asyncio.run(opened(postgres_url, deadline_s=1).close())
        asyncio.run(first.close())

    def test_the_lock_of_a_vanished_starter_is_released(
        self, postgres_url: str, proxy: Proxy
    ) -> None:
        """A migration has no deadline, but an idle transaction has."""
        vanished = opened(proxy.url(postgres_url), deadline_s=1)
        has_locked = threading.Event()

        def lock_and_hang(db: Db) -> None:
            vanished._dialect.guard_schema(db.connection, vanished._tables)
            proxy.freeze()
            has_locked.set()
            db.run("SELECT 1")

        def hang() -> None:
            with pytest.raises(BackendUnavailable):
                vanished._in_transaction(lock_and_hang)

        hanging = threading.Thread(target=hang)
        hanging.start()
        assert has_locked.wait(LIMIT_S)
        other = opened(postgres_url)
        with other._engine.begin() as connection:
            other._dialect.guard_schema(connection, other._tables)
        asyncio.run(other.close())
        proxy.close_connections()
        hanging.join(LIMIT_S)
        assert not hanging.is_alive()
        asyncio.run(vanished.close())

    def test_a_migration_waits_for_another_starter(self, postgres_url: str) -> None:
        first = opened(postgres_url)
        with (
            first._engine.begin() as connection,
            psycopg.connect(postgres_url, autocommit=True) as watch,
        ):
            watch.execute("UPDATE duly_schema SET version = version - 1")
            first._dialect.guard_schema(connection, first._tables)
            connection.execute(text("UPDATE duly_schema SET version = version + 1"))
            found: list[SqlStore] = []
            starter = threading.Thread(
                target=lambda: found.append(opened(postgres_url, deadline_s=1))
            )
            starter.start()
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND "
            waiting += "datname = current_database() AND clock_timestamp() - query_start > '2s'"
            until(lambda: watch.execute(waiting).fetchone() == (1,), "the starter waits")
        starter.join(LIMIT_S)
        assert found
        for store in (first, *found):
            asyncio.run(store.close())


class TestReadOnly:
    def test_read_only_sessions_are_discarded(self, postgres_url: str) -> None:
        asyncio.run(open_store(postgres_url).close())
        set_read_only(postgres_url, is_on=True)
        url = f"{postgres_url}?target_session_attrs=any"
        store = opened(url, skip_schema_init=True)
        many = [NewJob(id=JobId(f"j{n}"), action="a.b") for n in range(500)]

        async def check() -> None:
            await asyncio.gather(*(store.now_ms() for _ in range(5)))
            for write in (store.check_writable(), store.insert_jobs(many)):
                with pytest.raises(BackendUnavailable, match="read-only") as caught:
                    await write
                assert caught.value.is_unreachable
            await asyncio.gather(*(store.now_ms() for _ in range(5)))
            set_read_only(postgres_url, is_on=False)
            with pytest.raises(BackendUnavailable, match="read-only"):
                await store.check_writable()  # on a session from before the change
            for _ in range(6):
                await store.check_writable()
            assert len(await store.insert_jobs(many)) == 500
            await store.close()

        asyncio.run(check())

    def test_a_bulk_insert_discards_its_session_too(self, postgres_url: str) -> None:
        asyncio.run(open_store(postgres_url).close())
        set_read_only(postgres_url, is_on=True)
        store = opened(
            f"{postgres_url}?target_session_attrs=any", skip_schema_init=True, connections=1
        )
        many = [NewJob(id=JobId(f"j{n}"), action="a.b") for n in range(500)]
        with pytest.raises(BackendUnavailable, match="COPY"):
            asyncio.run(store.insert_jobs(many))
        set_read_only(postgres_url, is_on=False)
        assert len(asyncio.run(store.insert_jobs(many))) == 500
        asyncio.run(store.close())

    def test_a_read_only_server_is_refused_when_connecting(self, postgres_url: str) -> None:
        asyncio.run(open_store(postgres_url).close())
        set_read_only(postgres_url, is_on=True)
        with pytest.raises(BackendUnavailable, match="session is read-only"):
            open_store(postgres_url, connect_attempts=1)

    def test_probes_and_metrics_report_read_only_sessions(self, postgres_url: str) -> None:
        """While sessions are read-only the process is not ready."""
        asyncio.run(open_store(postgres_url).close())
        url = f"{postgres_url}?target_session_attrs=any"
        app = Duly(url, skip_schema_init=True)
        token = "scrape-scrape-scrape"  # noqa: S105
        bearer = {"Authorization": f"Bearer {token}"}
        transport = httpx.ASGITransport(
            dashboard_app(app, OperatorAuth(AuthOptions(metrics_token=token)))
        )

        async def check() -> None:
            async with httpx.AsyncClient(transport=transport, base_url="http://duly") as client:

                async def status() -> int:
                    return (await client.get("/readyz")).status_code

                async def is_up() -> bool:
                    return "duly_up 1.0" in (await client.get("/metrics", headers=bearer)).text

                assert (await status(), await is_up()) == (200, True)
                set_read_only(postgres_url, is_on=True)
                cast(SqlStore, app.store)._engine.dispose()
                await becomes(status, 503)
                await becomes(is_up, wanted=False)
                set_read_only(postgres_url, is_on=False)
                await becomes(status, 200)
                await becomes(is_up, wanted=True)
            await app.store.close()

        asyncio.run(check())


async def becomes(read: Callable[[], Awaitable[object]], wanted: object) -> None:
    for _ in range(round(LIMIT_S / POLL_S)):
        if await read() == wanted:
            return
        await asyncio.sleep(POLL_S)
    raise TimeoutError(f"not {wanted} within {LIMIT_S:g} s")


class TestListening:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Check idle connections after a short silence, so that the tests are fast."""
        for name in ("_CHECK_S", "_TICK_S", "_RETRY_S"):
            monkeypatch.setattr(notices, name, 0.1)

    def test_a_frozen_listener_listens_again(self, postgres_url: str, proxy: Proxy) -> None:
        store = opened(proxy.url(postgres_url), deadline_s=1)
        heard = threading.Semaphore(0)
        end = store.listen(lambda _hint: heard.release())
        assert heard.acquire(timeout=LIMIT_S)  # it says so whenever it begins to listen
        proxy.freeze()
        assert heard.acquire(timeout=LIMIT_S)
        end()
        asyncio.run(store.close())

    def test_a_listener_leaves_a_read_only_server(self, postgres_url: str) -> None:
        store = opened(f"{postgres_url}?target_session_attrs=any")
        set_read_only(postgres_url, is_on=True)
        heard = threading.Semaphore(0)
        end = store.listen(lambda _hint: heard.release())
        for _ in range(3):  # it connects again and again
            assert heard.acquire(timeout=LIMIT_S)
        end()
        asyncio.run(store.close())


def test_old_connections_are_replaced(postgres_url: str) -> None:
    store = opened(postgres_url, connections=1, recycle_s=1)
    statement = "SELECT pg_backend_pid()"
    first = asyncio.run(store._run(run_statement, statement))
    until(lambda: asyncio.run(store._run(run_statement, statement)) != first, "another backend")
    asyncio.run(store.close())


def test_timeouts_set_by_an_administrator_stay(postgres_url: str) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        name = sql.Identifier(database_of(postgres_url))
        connection.execute(sql.SQL("ALTER DATABASE {} SET statement_timeout = '7s'").format(name))
    store = opened(postgres_url)
    assert asyncio.run(store._run(run_statement, "SHOW statement_timeout")) == ["7s"]
    idle = "SHOW idle_in_transaction_session_timeout"
    assert asyncio.run(store._run(run_statement, idle)) == ["8s"]
    asyncio.run(store.close())


def test_transactions_of_callers_are_left_alone(postgres_url: str) -> None:
    store = opened(postgres_url)
    engine = create_engine(make_url(postgres_url).set(drivername="postgresql+psycopg"))
    with engine.begin() as connection:
        store.insert_jobs_in(connection, [NewJob(id=JobId("mine"), action="a.b")])
        assert connection.execute(text("SHOW statement_timeout")).scalar() == "0"
        idle = text("SHOW idle_in_transaction_session_timeout")
        assert connection.execute(idle).scalar() == "0"
    engine.dispose()
    asyncio.run(store.close())


def test_the_url_wins_over_the_defaults() -> None:
    options = SqlOptions(deadline_s=6)
    found = connect_parameters(make_url("postgresql://a@b/c"), options)
    assert found["target_session_attrs"] == "read-write"
    assert (found["keepalives_idle"], found["tcp_user_timeout"]) == (6, 6_000)
    url = make_url("postgresql://a@b/c?target_session_attrs=any&connect_timeout=9&keepalives=0")
    kept = connect_parameters(url, options)
    assert not {"target_session_attrs", "connect_timeout", "keepalives"} & set(kept)


@pytest.mark.parametrize(
    ("state", "is_lost"),
    [
        ("25006", True),
        ("57P01", True),
        ("57P02", True),
        ("57P03", True),
        ("08006", True),
        ("57014", False),
        ("40001", False),
        ("23505", False),
        ("", False),
    ],
)
def test_errors_that_mean_another_connection(state: str, is_lost: bool) -> None:
    assert is_lost_server(state) is is_lost


@pytest.mark.parametrize("name", ["deadline_s", "upkeep_deadline_s", "recycle_s"])
@pytest.mark.parametrize("seconds", [0, 0.5, -1, 100_000, float("nan")])
def test_odd_deadlines_are_refused(name: str, seconds: float) -> None:
    with pytest.raises(InvalidInput, match=f"{name} is .* s; allowed: 1 s to 86400 s"):
        SqlOptions(**{name: seconds})  # type: ignore[arg-type]


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    """Run a primary and its synchronous standby."""
    binaries = find_binaries()
    if binaries is None:
        missing_tool(NO_SERVER)
    with own_pair(tmp_path, binaries) as started:
        yield started


@pytest.mark.extended
def test_the_writable_one_of_several_hosts_is_used(pair: Pair) -> None:
    name = database_of(pair.primary.create())
    hosts = "&".join(f"host=127.0.0.1:{server.port}" for server in (pair.standby, pair.primary))
    store = opened(f"postgresql://duly@/{name}?{hosts}")
    asyncio.run(store.check_writable())
    pair.fence()
    with pytest.raises(BackendUnavailable):
        asyncio.run(store.check_writable())
    pair.promote()
    asyncio.run(store.check_writable())
    asyncio.run(store.close())


@pytest.mark.extended
def test_a_commit_that_waits_for_a_standby_fails(pair: Pair) -> None:
    """The server's timeouts must not end that wait, as the commit would be reported as done."""
    store = opened(pair.primary.create(), deadline_s=2)
    asyncio.run(store.check_writable())
    pair.standby.control("-m", "immediate", "stop")
    for _ in range(2):  # the first one still waits on the server and holds its lock
        with pytest.raises(BackendUnavailable, match="no answer for 2 s"):
            asyncio.run(store.check_writable())
    pair.standby.restart()
    asyncio.run(store.check_writable())
    asyncio.run(store.close())
