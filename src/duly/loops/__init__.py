"""The loops: what runs while an application runs."""

from duly.loops.keeper import Keeper, KeeperOptions
from duly.loops.planner import Planner, PlannerOptions
from duly.loops.slots import Abort
from duly.loops.worker import Worker, WorkerOptions, WorkerStuck

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
