"""Pages of queues and workspaces, workers, locks, quarantine and audit."""

from __future__ import annotations

from duly.web.dashboard.pages.page import Done, Page, PageAction, PageRequest

PAGE_SIZE = 100


async def queues(page_request: PageRequest) -> Page:
    """Show the queues with their settings and counts."""
    counts = await page_request.admin.monitoring.queues()
    values = {"queues": counts, "all_paused": await page_request.admin.all_paused()}
    return Page("queues.html", "Queues", "queues", values)


async def queue(page_request: PageRequest) -> Page:
    """Show one queue with its waiting workspaces."""
    name = page_request.need("name")
    found = [
        each for each in await page_request.admin.monitoring.queues(1_000) if each[0].queue == name
    ]
    values = {
        "name": name,
        "found": found[0] if found else None,
        "workspaces": await page_request.admin.monitoring.workspaces(name, PAGE_SIZE),
        "audit": await page_request.admin.monitoring.audit(target=f"queue:{name}", limit=20),
    }
    return Page("queue.html", f"{name} · queue", "queues", values)


async def workers(page_request: PageRequest) -> Page:
    """Show the workers."""
    return Page(
        "workers.html", "Workers", "workers", {"workers": await page_request.admin.workers()}
    )


async def locks(page_request: PageRequest) -> Page:
    """Show the held locks."""
    return Page(
        "locks.html", "Locks", "locks", {"locks": await page_request.admin.locks(limit=PAGE_SIZE)}
    )


async def quarantine(page_request: PageRequest) -> Page:
    """Show the schedules that cannot be evaluated."""
    found = await page_request.admin.schedules.quarantined(PAGE_SIZE)
    return Page("quarantine.html", "Quarantine", "quarantine", {"rows": found})


async def audit(page_request: PageRequest) -> Page:
    """Show the audit log."""
    before = page_request.whole("before")
    target = page_request.word("target")
    found = await page_request.admin.monitoring.audit(
        target=target, before=before, limit=PAGE_SIZE + 1
    )
    values = {
        "entries": found[:PAGE_SIZE],
        "target": target,
        "next_before": found[PAGE_SIZE - 1].seq if len(found) > PAGE_SIZE else None,
    }
    return Page("audit.html", "Audit", "audit", values, is_live=before is None)


async def _pause(page_request: PageRequest) -> Done:
    name = page_request.need("name")
    await page_request.admin.pause(name, page_request.word("note"), by=page_request.operator.name)
    return Done(f"Queue {name} is paused; running jobs continue.")


async def _resume(page_request: PageRequest) -> Done:
    name = page_request.need("name")
    await page_request.admin.resume(name)
    if await page_request.admin.all_paused() is not None:
        return Done(f"Queue {name} resumes when the pause of all queues ends.")
    return Done(f"Queue {name} is resumed.")


async def _pause_all(page_request: PageRequest) -> Done:
    await page_request.admin.pause_all(page_request.word("note"), by=page_request.operator.name)
    return Done("All queues are paused; running jobs continue.")


async def _resume_all(page_request: PageRequest) -> Done:
    await page_request.admin.resume_all()
    return Done("The pause of all queues has ended; queues paused by name stay paused.")


async def _limit(page_request: PageRequest) -> Done:
    name = page_request.need("name")
    given = page_request.whole("workspace_limit", 1)
    each = 1 if given is None else given
    await page_request.admin.limit(
        name, job_limit=page_request.whole("job_limit"), workspace_limit=each
    )
    return Done(f"The limits of queue {name} are set.")


async def _release_lock(page_request: PageRequest) -> Done:
    name = page_request.need("name")
    lock = await page_request.admin.release_lock(name)
    return Done(f"Lock {name} is released; its owner was {lock.owner}.")


ACTIONS = {
    "/queue/pause": PageAction("queue.pause", _pause, "queue:{name}"),
    "/queue/resume": PageAction("queue.resume", _resume, "queue:{name}"),
    "/queues/pause": PageAction("queues.pause", _pause_all, "queues"),
    "/queues/resume": PageAction("queues.resume", _resume_all, "queues"),
    "/lock/release": PageAction("lock.release", _release_lock, "lock:{name}"),
    "/queue/limit": PageAction("queue.limit", _limit, "queue:{name}"),
}
