"""The loops of a running application: planner, worker and keeper."""

from duly.runtime.keeper import Keeper, KeeperOptions
from duly.runtime.planner import Planner, PlannerOptions
from duly.runtime.worker.slots import Abort
from duly.runtime.worker.worker import Worker, WorkerOptions, WorkerStuck

__all__ = [
    "Abort",
    "Keeper",
    "KeeperOptions",
    "Planner",
    "PlannerOptions",
    "Worker",
    "WorkerOptions",
    "WorkerStuck",
]
