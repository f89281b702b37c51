"""Collections: scoped documents with a schema, and the schedules of a flow."""

from duly.flows.collections.collection import ResourceCollection, ScopedCollection
from duly.flows.collections.kinds import ResourceKind
from duly.flows.collections.requests import Ensured, NewSchedule, ScheduleChanges, ScheduleOptions
from duly.flows.collections.resource import BeforeWrite, CollectionLimits, Hook, Resource
from duly.flows.collections.schedules import ScheduleCollection, ScopedSchedules

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
