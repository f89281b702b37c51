"""A kind of resource, declared next to the code that uses it, before there is a store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from duly.flows.collections.collection import ResourceCollection
from duly.flows.collections.resource import DEFAULT_COLLECTION_LIMITS, CollectionLimits, Hook
from duly.stores.port import Store

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ResourceKind(Generic[T]):
    """A ResourceCollection without a store; on() binds it to one."""

    name: str
    schema: type[T]
    indexes: Sequence[str] = ()
    limits: CollectionLimits = DEFAULT_COLLECTION_LIMITS
    hooks: Sequence[Hook[T]] = ()

    def on(self, store: Store) -> ResourceCollection[T]:
        """Return the collection in a store."""
        return ResourceCollection(
            store,
            self.name,
            self.schema,
            indexes=self.indexes,
            limits=self.limits,
            hooks=self.hooks,
        )
