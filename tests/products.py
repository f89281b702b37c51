"""The same product as four kinds of schema, and helpers to store it."""

import json
from dataclasses import dataclass, field
from typing import Any, NotRequired, TypedDict

import msgspec
import pydantic
import pytest

from duly.flows.collections import ResourceCollection
from duly.stores.memory import MemoryStore
from tests.samples import T, run


@dataclass
class Place:
    platform: str
    handle: str | None = None


@dataclass
class Product:
    title: str
    project_id: str | None = None
    price: int | None = 5
    places: list[Place] = field(default_factory=list)
    options: dict[str, int | None] = field(default_factory=dict)
    owner: str | None = field(default_factory=lambda: "nobody")


class PlaceStruct(msgspec.Struct):
    platform: str
    handle: str | None = None


class ProductStruct(msgspec.Struct, rename="camel", omit_defaults=True):
    title: str
    project_id: str | None = None
    price: int | None = 5
    places: list[PlaceStruct] = []
    options: dict[str, int | None] = {}
    owner: str | None = msgspec.field(default_factory=lambda: "nobody")


class PlaceDict(TypedDict):
    platform: str
    handle: NotRequired[str | None]


class ProductDict(TypedDict):
    title: str
    project_id: NotRequired[str | None]
    price: NotRequired[int | None]
    places: NotRequired[list[PlaceDict]]
    options: NotRequired[dict[str, int | None]]
    owner: str | None


class PlaceModel(pydantic.BaseModel):
    platform: str
    handle: str | None = None


class ProductModel(pydantic.BaseModel):
    title: str
    project_id: str | None = pydantic.Field(default=None, alias="projectId")
    price: int | None = 5
    places: list[PlaceModel] = []
    options: dict[str, int | None] = {}
    owner: str | None = pydantic.Field(default_factory=lambda: "nobody")

    model_config = pydantic.ConfigDict(validate_by_name=True, serialize_by_alias=True)

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def shout(self) -> str:
        return self.title.upper()


KINDS: list[tuple[type[Any], type[Any]]] = [
    (Product, Place),
    (ProductStruct, PlaceStruct),
    (ProductDict, PlaceDict),
    (ProductModel, PlaceModel),
]
each_kind = pytest.mark.parametrize(("kind", "place"), KINDS, ids=lambda kind: kind.__name__)


def collection_of(store: MemoryStore, kind: type[T], **options: Any) -> ResourceCollection[T]:
    return ResourceCollection(store, "products", kind, **options)


def stored(store: MemoryStore, name: str = "a", scope: str = "user:u") -> dict[str, Any]:
    document = run(store.get_document("products", scope, name))
    assert document is not None
    body: dict[str, Any] = json.loads(document.body)
    return body
