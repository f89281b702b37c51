"""Pages of queues and workspaces, workers, locks, quarantine and audit."""

from __future__ import annotations

from duly.web.dashboard.pages.page import Done, Page, PageAction, Visit

PAGE_SIZE = 100


async def queues(visit: Visit) -> Page:
    """Show the queues with their settings and counts."""
    counts = await visit.admin.monitoring.queues()
    values = {"queues": counts, "all_paused": await visit.admin.all_paused()}
    return Page("queues.html", "Queues", "queues", values)


async def queue(visit: Visit) -> Page:
    """Show one queue with its waiting workspaces."""
    name = visit.need("name")
    found = [each for each in await visit.admin.monitoring.queues(1_000) if each[0].queue == name]
    values = {
        "name": name,
        "found": found[0] if found else None,
        "workspaces": await visit.admin.monitoring.workspaces(name, PAGE_SIZE),
        "audit": await visit.admin.monitoring.audit(target=f"queue:{name}", limit=20),
    }
    return Page("queue.html", f"{name} · queue", "queues", values)


async def workers(visit: Visit) -> Page:
    """Show the workers."""
    return Page("workers.html", "Workers", "workers", {"workers": await visit.admin.workers()})


async def locks(visit: Visit) -> Page:
    """Show the held locks."""
    return Page("locks.html", "Locks", "locks", {"locks": await visit.admin.locks(limit=PAGE_SIZE)})


async def quarantine(visit: Visit) -> Page:
    """Show the schedules that cannot be evaluated."""
    found = await visit.admin.schedules.quarantined(PAGE_SIZE)
    return Page("quarantine.html", "Quarantine", "quarantine", {"rows": found})


async def audit(visit: Visit) -> Page:
    """Show the audit log."""
    before = visit.whole("before")
    target = visit.word("target")
    found = await visit.admin.monitoring.audit(target=target, before=before, limit=PAGE_SIZE + 1)
    values = {
        "entries": found[:PAGE_SIZE],
        "target": target,
        "next_before": found[PAGE_SIZE - 1].seq if len(found) > PAGE_SIZE else None,
    }
    return Page("audit.html", "Audit", "audit", values, is_live=before is None)


async def _pause(visit: Visit) -> Done:
    name = visit.need("name")
    await visit.admin.pause(name, visit.word("note"), by=visit.operator.name)
    return Done(f"Queue {name} is paused; running jobs continue.")


async def _resume(visit: Visit) -> Done:
    name = visit.need("name")
    await visit.admin.resume(name)
    if await visit.admin.all_paused() is not None:
        return Done(f"Queue {name} resumes when the pause of all queues ends.")
    return Done(f"Queue {name} is resumed.")


async def _pause_all(visit: Visit) -> Done:
    await visit.admin.pause_all(visit.word("note"), by=visit.operator.name)
    return Done("All queues are paused; running jobs continue.")


async def _resume_all(visit: Visit) -> Done:
    await visit.admin.resume_all()
    return Done("The pause of all queues has ended; queues paused by name stay paused.")


async def _limit(visit: Visit) -> Done:
    name = visit.need("name")
    given = visit.whole("workspace_limit", 1)
    each = 1 if given is None else given
    await visit.admin.limit(name, job_limit=visit.whole("job_limit"), workspace_limit=each)
    return Done(f"The limits of queue {name} are set.")


async def _release_lock(visit: Visit) -> Done:
    name = visit.need("name")
    lock = await visit.admin.release_lock(name)
    return Done(f"Lock {name} is released; its owner was {lock.owner}.")


ACTIONS = {
    "/queue/pause": PageAction("queue.pause", _pause, "queue:{name}"),
    "/queue/resume": PageAction("queue.resume", _resume, "queue:{name}"),
    "/queues/pause": PageAction("queues.pause", _pause_all, "queues"),
    "/queues/resume": PageAction("queues.resume", _resume_all, "queues"),
    "/lock/release": PageAction("lock.release", _release_lock, "lock:{name}"),
    "/queue/limit": PageAction("queue.limit", _limit, "queue:{name}"),
}
