"""Jobs and schedules written in a transaction of the caller, with every supported driver."""

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from duly.errors import Conflict, InvalidInput
from duly.flows.client import Client
from duly.flows.collections import ScheduleCollection, ScopedSchedules
from duly.model.scopes import user
from duly.model.stored_jobs import JobFilter
from duly.stores import open_store
from duly.stores.port import Store
from duly.triggers import once
from tests.integration.working import in_loop

MANY = 120
"""Jobs of one call: above the size from which PostgreSQL inserts them by COPY if possible."""
SOON, LATER = timedelta(seconds=30), timedelta(days=2)
"""Inside the look-ahead, where creating a schedule also makes its first job, and outside it."""
OWN_TABLE = "CREATE TABLE IF NOT EXISTS orders (id integer PRIMARY KEY)"


class Driver(NamedTuple):
    """A driver, and the kind of object that holds the caller's transaction."""

    name: str
    kind: type[Any]

    @property
    def is_async(self) -> bool:
        return self.kind in (AsyncConnection, AsyncSession)


DRIVERS = [
    Driver(name, kind)
    for name, kinds in {
        "sqlite+pysqlite": (Connection, Session),
        "sqlite+aiosqlite": (AsyncConnection, AsyncSession),
        "postgresql+psycopg": (Connection, Session, AsyncConnection, AsyncSession),
        "postgresql+asyncpg": (AsyncConnection, AsyncSession),
        "postgresql+psycopg2": (Connection, Session),
        "postgresql+pg8000": (Connection, Session),
    }.items()
    for kind in kinds
]


@pytest.fixture(params=DRIVERS, ids=lambda each: f"{each.name}-{each.kind.__name__}")
def driver(request: pytest.FixtureRequest) -> Driver:
    found: Driver = request.param
    return found


@pytest.fixture
def url(driver: Driver, request: pytest.FixtureRequest) -> str:
    name = "sqlite_url" if driver.name.startswith("sqlite") else "emptied_url"
    return str(request.getfixturevalue(name))


class Caller:
    """An application with its own table in the database of Duly."""

    def __init__(self, driver: Driver, url: str, store: Store) -> None:
        self._driver = driver
        self._url = make_url(url).set(drivername=driver.name)
        self.store = store
        self.client = Client(store)

    @property
    def mine(self) -> ScopedSchedules:
        return ScheduleCollection(self.store, "orders").of(user("ada"))

    @asynccontextmanager
    async def begin(self) -> AsyncIterator[Any]:
        """Open a transaction that commits at the end of the block unless the block raises."""
        kind = self._driver.kind
        async with AsyncExitStack() as stack:
            if self._driver.is_async:
                engine = create_async_engine(self._url, poolclass=NullPool)
                stack.push_async_callback(engine.dispose)
                held: Any = AsyncSession(engine) if kind is AsyncSession else engine.connect()
                caller: Any = await stack.enter_async_context(held)
                await stack.enter_async_context(caller.begin())
            else:
                plain = create_engine(self._url, poolclass=NullPool)
                stack.callback(plain.dispose)
                held = Session(plain) if kind is Session else plain.connect()
                caller = stack.enter_context(held)
                stack.enter_context(caller.begin())
            yield caller

    async def orders(self) -> int:
        async with self.begin() as caller:
            await answered(caller.execute(text(OWN_TABLE)))
            found = await answered(caller.execute(text("SELECT count(*) FROM orders")))
            return int(found.scalar())

    async def order(self, caller: Any, number: int) -> None:
        """Insert a row into the application's own table."""
        await answered(caller.execute(text(OWN_TABLE)))
        await answered(caller.execute(text(f"INSERT INTO orders VALUES ({number})")))  # noqa: S608

    async def write(self, caller: Any) -> None:
        """Insert a row of the application and everything that can join its transaction."""
        now = datetime.now(UTC)
        await self.order(caller, 1)
        await answered(self.client.enqueue_in(caller, "orders.pay", {"order": 1}, key="k"))
        await answered(
            self.client.enqueue_in(caller, "orders.send", delay=timedelta(days=1), priority=3)
        )
        many = self.client.enqueue_many_in(caller, "orders.count", range(MANY), keys=str)
        assert all(each.created for each in await answered(many))
        for name, after in (("soon", SOON), ("later", LATER)):
            made = self.mine.create_in(caller, name, once(now + after), action="remind")
            assert (await answered(made)).name == name


async def answered(answer: Any) -> Any:
    """Return a plain result, or await the result of a call on an async transaction."""
    return await answer if inspect.isawaitable(answer) else answer


@asynccontextmanager
async def calling(driver: Driver, url: str) -> AsyncIterator[Caller]:
    store = open_store(url, allow_foreign_sqlite_writers=True)
    try:
        yield Caller(driver, url, store)
    finally:
        await store.close()


async def stored(store: Store) -> dict[str, int]:
    """Return the number of jobs of each action."""
    jobs = await store.list_jobs(JobFilter(), limit=1_000)
    counts: dict[str, int] = {}
    for job in jobs:
        counts[job.action] = counts.get(job.action, 0) + 1
    return counts


@in_loop
async def test_everything_commits_with_the_caller(driver: Driver, url: str) -> None:
    async with calling(driver, url) as app:
        await app.orders()
        await forget(app)
        async with app.begin() as caller:
            await answered(caller.execute(text("DELETE FROM orders")))
            await app.write(caller)
        # The schedule inside the look-ahead has its first job already.
        expected = {"orders.pay": 1, "orders.send": 1, "orders.count": MANY, "orders.remind": 1}
        assert await stored(app.store) == expected
        assert [each.name for each in await app.mine.list()] == ["later", "soon"]
        assert await app.orders() == 1


@in_loop
async def test_everything_rolls_back_with_the_caller(driver: Driver, url: str) -> None:
    async with calling(driver, url) as app:
        await app.orders()
        await forget(app)

        async def change_mind() -> None:
            async with app.begin() as caller:
                await answered(caller.execute(text("DELETE FROM orders")))
                await app.write(caller)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await change_mind()
        assert await stored(app.store) == {}
        assert await app.mine.list() == []


@in_loop
async def test_a_refusal_leaves_the_transaction_usable(driver: Driver, url: str) -> None:
    async with calling(driver, url) as app:
        await app.orders()
        await forget(app)
        await app.client.enqueue("orders.pay", {"order": 0}, key="k")
        await app.mine.create("taken", once(datetime.now(UTC) + LATER), action="remind")
        refused: list[tuple[type[Exception], Callable[[Any], Any]]] = [
            (Conflict, lambda caller: app.client.enqueue_in(caller, "orders.pay", 1, key="k")),
            (
                Conflict,
                lambda caller: app.mine.create_in(caller, "taken", "@daily", action="remind"),
            ),
            (InvalidInput, lambda caller: app.client.enqueue_in(caller, "orders.pay", key="")),
            (
                InvalidInput,
                lambda caller: app.mine.create_in(caller, "often", "* * * * * *", action="remind"),
            ),
        ]
        async with app.begin() as caller:
            await answered(caller.execute(text("DELETE FROM orders")))
            for number, (kind, call) in enumerate(refused):
                with pytest.raises(kind):
                    await answered(call(caller))
                await app.order(caller, number)
            await answered(app.client.enqueue_in(caller, "orders.send"))
        assert await stored(app.store) == {"orders.pay": 1, "orders.send": 1}
        assert await app.orders() == len(refused)


async def forget(app: Caller) -> None:
    """Delete the schedules that an earlier test left in a shared database."""
    for each in await app.mine.list():
        await app.mine.delete(each.name)
    for job in await app.store.list_jobs(JobFilter(), limit=1_000):
        pytest.fail(f"job {job.id} was left behind")
