"""An order and its confirmation job are stored atomically; then a worker sends the confirmation.

Run it: python examples/jobs/jobs.py [URL]. Without a URL it works on a temporary SQLite file.
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import (
    Column,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    make_url,
    select,
)

from duly import Client, Context, Duly, Flow, JobId
from duly.model.jobs import FINAL

POLL_S = 0.02
LONGEST_S = 30.0

shop = Flow("shop")
orders = Table(
    "orders",
    MetaData(),
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("buyer", String(100), nullable=False),
)


@dataclass
class Order:
    number: int
    buyer: str


@shop.action(redact=["buyer"])
async def confirm(order: Order, ctx: Context) -> dict[str, object]:
    if ctx.attempt > 1:
        ctx.log.warning("confirming again; a provider that knows the job id can tell")
    return {"subject": f"Your order {order.number}", "to": order.buyer}


class OutOfStock(Exception):
    """An error of the application that rolls the transaction back."""


def own_engine(url: str) -> Engine:
    """Return the application's own engine, separate from Duly's connections."""
    address = make_url(url)
    if address.get_backend_name() == "postgresql":
        return create_engine(address.set(drivername="postgresql+psycopg"))
    engine = create_engine(address)

    # docs/backends/sqlite.md requires this of other writers to the file.
    @event.listens_for(engine, "connect")
    def leave_checkpoints_to_duly(connection: sqlite3.Connection, _record: object) -> None:
        connection.execute("PRAGMA wal_autocheckpoint=0")

    return engine


def place(client: Client, engine: Engine, order: Order, *, in_stock: bool) -> JobId:
    """Store the order and its confirmation job in one transaction."""
    with engine.begin() as connection:
        connection.execute(insert(orders).values(number=order.number, buyer=order.buyer))
        made = client.enqueue_in(connection, confirm, order, key=f"order-{order.number}")
        if not in_stock:
            raise OutOfStock
    return made.job_id


def show_stored(app: Duly, engine: Engine) -> None:
    with engine.connect() as connection:
        count = connection.execute(select(func.count()).select_from(orders)).scalar_one()
    jobs = sum(each.jobs for each in app.sync.admin.counts())
    print(f"  orders: {count}, jobs: {jobs}")


async def until_ended(app: Duly, job_id: JobId) -> None:
    async with asyncio.timeout(LONGEST_S):
        while True:
            job = await app.client.job(job_id)
            if job is not None and job.state in FINAL:
                return
            await asyncio.sleep(POLL_S)


async def work(app: Duly, job_id: JobId) -> None:
    async with app.running():
        await until_ended(app, job_id)
        print(f"  result: {await app.client.result(job_id)}")
        detail = await app.admin.job(job_id)
        print(f"  history: {' > '.join(event.state for event in detail.events)}")
        print(f"  what an operator sees: {detail.job.payload_preview}")


def main(url: str) -> None:
    engine = own_engine(url)
    app = Duly(url, flows=[shop], allow_foreign_sqlite_writers=True)
    client = app.client  # opens the database, which SQLite cannot do inside another transaction
    orders.metadata.create_all(engine)

    print("an order that fails takes its job back:")
    with suppress(OutOfStock):
        place(client, engine, Order(6, "grace"), in_stock=False)
    show_stored(app, engine)
    print("one that succeeds leaves both:")
    job_id = place(client, engine, Order(7, "ada"), in_stock=True)
    show_stored(app, engine)
    print("a worker runs it:")
    asyncio.run(work(app, job_id))
    engine.dispose()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else f"sqlite:///{folder}/jobs.db")
