"""Imports names of `duly` from the module that defines them in the current checkout.

Decision 0035 moved them into layers; earlier commits define them in the modules of FLAT.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

LAYERED = (
    "duly.engine.ids",
    "duly.model.claims",
    "duly.model.jobs",
    "duly.model.plans",
    "duly.model.schedule_writes",
    "duly.model.schedules",
    "duly.model.stored_jobs",
    "duly.rules.outcomes",
)
FLAT = (
    "duly.ids",
    "duly.job_store",
    "duly.jobs",
    "duly.outcomes",
    "duly.plan_store",
    "duly.schedules",
    "duly.store",
)


def modules() -> list[Any]:
    """Return the modules of the imported checkout."""
    try:
        return [import_module(name) for name in LAYERED]
    except ModuleNotFoundError:
        return [import_module(name) for name in FLAT]


def __getattr__(name: str) -> Any:
    for module in modules():
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(name)
