"""The application of the soaks: it notes every start of a handler in a journal."""

import os

from duly.app import Duly
from duly.context import Context
from duly.flows import Flow

flow = Flow("soak")


@flow.action
async def note(ctx: Context) -> None:
    """Appended in one write, so that no two processes mix their lines."""
    journal = os.open(os.environ["DULY_SOAK_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(journal, f"{ctx.job_id}\n".encode())
    finally:
        os.close(journal)


app = Duly(os.environ.get("DULY_SOAK_URL", "memory:"), flows=[flow], look_ahead_s=5)
