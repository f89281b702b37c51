"""An application in a module that child processes import; some handlers kill their process."""

import asyncio
import os
import signal
import threading

from duly.app import Duly
from duly.flows.context import Context
from duly.flows.flow import Flow
from duly.model.retries import RetryPolicy

TWICE = RetryPolicy(attempts=2, backoff="none")
work = Flow("work")


@work.action
async def where(ctx: Context) -> int:
    ctx.progress(50, "half")
    await ctx.enqueue(second, None)
    return os.getpid()


@work.action
def second() -> int:
    return os.getpid()


@work.action(retry=TWICE)
async def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@work.action(retry=TWICE)
def leave() -> None:
    os._exit(3)


@work.action
async def linger(ctx: Context) -> None:
    ctx.progress(1, "begun")
    await asyncio.Event().wait()


@work.action(retry=TWICE, timeout_s=0.3)
async def block() -> None:
    threading.Event().wait()


app = Duly("memory:", flows=[work])
