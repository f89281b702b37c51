"""The loops: what runs while an application runs."""

from duly.loops.keeper import Keeper, KeeperOptions
from duly.loops.worker import Worker, WorkerOptions, WorkerStuck

__all__ = ["Keeper", "KeeperOptions", "Worker", "WorkerOptions", "WorkerStuck"]
