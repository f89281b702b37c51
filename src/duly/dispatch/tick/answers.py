"""Answers to a requested tick: 204 nothing due, 200 posted, 500 could not claim."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import asdict

from duly.dispatch.contract import Answer
from duly.dispatch.tick.tick import Tick
from duly.errors import BackendUnavailable, InvalidInput

log = logging.getLogger(__name__)


async def tick_answer(ticker: Callable[[], Awaitable[Tick]]) -> Answer:
    """Run one tick and return its answer; failed posts do not make the tick fail."""
    try:
        tick = await ticker()
        report = await tick.run_once()
    except InvalidInput as error:
        return Answer(500, {"error": "tick_not_configured", "message": str(error)})
    except BackendUnavailable as error:
        log.warning("tick: %s", error, extra={"event": "tick.unavailable"})
        return Answer(500, {"error": "claim_failed", "message": "the database did not answer"})
    return Answer(200, asdict(report)) if report.posted else Answer(204)
