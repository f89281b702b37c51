"""The application of the soaks: it notes every start of a handler in a journal."""

import os

from duly.app import Duly
from duly.flows.context import Context
from duly.flows.flow import Flow

flow = Flow("soak")


def write_start(ctx: Context) -> None:
    """Append a line in one write, so that no two processes mix their lines."""
    journal = os.open(os.environ["DULY_SOAK_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, f"{ctx.job_id} {ctx.attempt}\n".encode())
    finally:
        os.close(journal)


@flow.action
async def note(ctx: Context) -> None:
    """Run at least once, as actions do by default."""
    write_start(ctx)


@flow.action(delivery="at_most_once")
async def note_once(ctx: Context) -> None:
    """Run at most once, whatever starts it."""
    write_start(ctx)


app = Duly(os.environ.get("DULY_SOAK_URL", "memory:"), flows=[flow], look_ahead_s=5)
