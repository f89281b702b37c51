"""Collections: scoped documents with a schema, and the schedules of a flow.

Takes values and words of applications; gives what is stored, through the verbs of the store.
"""

from duly.resources.collection import ResourceCollection, ScopedCollection
from duly.resources.kinds import ResourceKind
from duly.resources.requests import Ensured, NewSchedule, ScheduleChanges, ScheduleOptions
from duly.resources.resource import BeforeWrite, CollectionLimits, Hook, Resource
from duly.resources.schedules import ScheduleCollection, ScopedSchedules

__all__ = [
    "BeforeWrite",
    "CollectionLimits",
    "Ensured",
    "Hook",
    "NewSchedule",
    "Resource",
    "ResourceCollection",
    "ResourceKind",
    "ScheduleChanges",
    "ScheduleCollection",
    "ScheduleOptions",
    "ScopedCollection",
    "ScopedSchedules",
]
