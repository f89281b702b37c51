"""Schemas of documents and inputs, and their conversion to JSON and back.

A schema is a dataclass, a msgspec Struct, a TypedDict or a pydantic model. Values from outside are
refused if they have unknown fields; in stored text of another release these are ignored.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, Generic, TypeVar, cast, is_typeddict

import msgspec
import msgspec.inspect as mi

from duly.errors import InvalidInput
from duly.model.json_bounds import check_json_bounds, check_json_text

T = TypeVar("T")
MAX_JSON_BYTES = 262_144
"""Most bytes of an input, a document and anything else without a smaller limit."""
_OBJECTS = (mi.StructType, mi.DataclassType, mi.TypedDictType)
_LISTS = (mi.ListType, mi.VarTupleType, mi.SetType, mi.FrozenSetType, mi.CollectionType)
_FAULTS = (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError)


class StructSchema(Generic[T]):
    """A schema that msgspec handles: dataclass, Struct or TypedDict."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.title = kind.__name__
        try:
            self._decoder = msgspec.json.Decoder(kind)
            self._node = mi.type_info(kind)
        except (TypeError, NameError, msgspec.ValidationError) as error:
            raise InvalidInput(f"schema {self.title}: {error}") from None
        assert isinstance(self._node, _OBJECTS)
        self.attributes = tuple(field.name for field in self._node.fields)
        self.stored_names = _names(self._node)

    def holds(self, value: object) -> bool:
        """Return whether the value is an instance; for a TypedDict, whether it is a dict."""
        return isinstance(value, dict if is_typeddict(self.kind) else self.kind)

    def attribute(self, value: T, name: str) -> object:
        """Return one of the `attributes` of a value; None if a TypedDict lacks it."""
        if isinstance(value, Mapping):
            return value.get(name)
        return getattr(value, name)

    def plain(self, value: T, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
        """Return the value as JSON types, without fields that are None by default."""
        found = plain(self.title, value, max_bytes)
        for _, node, obj in list(_objects(self._node, found)):
            for field in node.fields:
                if obj.get(field.encode_name, ...) is None and _absent_is_none(field):
                    del obj[field.encode_name]
        return cast(dict[str, Any], found)

    def read(self, text: str | bytes) -> T:
        """Return the value of stored text; fields of other releases are ignored."""
        try:
            return self._decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise InvalidInput(f"not a {self.title}: {error}") from None

    def read_own(self, text: str) -> T:
        """Return the value of the result of plain(), checked like a value from outside."""
        return self.parse(text)

    def parse(self, text: str | bytes) -> T:
        """Return the value of text from outside; refuse unknown fields at any depth."""
        check_json_text(self.title, text)
        value = self.read(text)
        for path, node, obj in _objects(self._node, msgspec.json.decode(text)):
            for name in obj.keys() - _names(node):
                raise unknown_field(f"{self.title}{path}", name, _names(node))
        return value


class ModelSchema(Generic[T]):
    """A pydantic schema; its documents are stored by field names, not by aliases."""

    def __init__(self, kind: type[T]) -> None:
        self.kind = kind
        self.title = kind.__name__
        self._model = cast(Any, kind)
        if tuple(int(part) for part in sys.modules["pydantic"].VERSION.split(".")[:2]) < (2, 12):
            raise InvalidInput(f"schema {self.title}: install pydantic 2.12 or newer")
        self.attributes = tuple(self._model.model_fields)
        self.stored_names = frozenset(self.attributes)

    def holds(self, value: object) -> bool:
        """Return whether the value is an instance."""
        return isinstance(value, self.kind)

    def attribute(self, value: T, name: str) -> object:
        """Return one of the `attributes` of a value."""
        return getattr(value, name)

    def plain(self, value: T, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
        """Return the value as JSON types, without fields that are None by default."""
        check_json_bounds(self.title, value, max_bytes)
        try:
            dumped = cast(Any, value).model_dump(
                mode="json", by_alias=False, round_trip=True, warnings=False
            )
        except _FAULTS as error:
            raise InvalidInput(f"{self.title} cannot be written as JSON: {error}") from None
        _strip_model(value, dumped)
        return cast(dict[str, Any], plain(self.title, dumped, max_bytes))

    def read(self, text: str | bytes) -> T:
        """Return the value of stored text; fields of other releases are ignored."""
        return self._validate(text, by_alias=False, by_name=True)

    def read_own(self, text: str) -> T:
        """Return the value of the result of plain(), checked like a value from outside."""
        return self._validate(text, extra="forbid", by_alias=False, by_name=True)

    def parse(self, text: str | bytes) -> T:
        """Return the value of text from outside, by its aliases; refuse unknown fields."""
        check_json_text(self.title, text)
        return self._validate(text, extra="forbid")

    def _validate(self, text: str | bytes, **how: Any) -> T:
        try:
            return cast(T, self._model.model_validate_json(text, **how))
        except sys.modules["pydantic"].ValidationError as error:
            faults = (
                f"{'.'.join(map(str, fault['loc'])) or 'value'}: {fault['msg']}"
                for fault in error.errors(include_url=False, include_input=False)
            )
            raise InvalidInput(f"not a {self.title}: {'; '.join(faults)}") from None


Schema = StructSchema[T] | ModelSchema[T]


def schema_of(kind: type[T]) -> Schema[T]:
    """Return the schema of a type; InvalidInput if it is none of the four kinds."""
    if not isinstance(kind, type):
        raise InvalidInput(f"schema {kind!r}; pass the type itself")
    if dataclasses.is_dataclass(kind) or is_typeddict(kind) or issubclass(kind, msgspec.Struct):
        return StructSchema(kind)
    # A model cannot exist before pydantic is imported, so there is no need to import it.
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and issubclass(kind, pydantic.BaseModel):
        return ModelSchema(kind)
    raise InvalidInput(
        f"schema {kind.__name__}; allowed: a dataclass, a msgspec Struct, a TypedDict or a "
        "pydantic model"
    )


def plain(what: str, value: object, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return a value as JSON types.

    InvalidInput if JSON cannot hold it unchanged, if it is nested too deeply, or as soon as its
    JSON must have more than `max_bytes` bytes.
    """
    check_json_bounds(what, value, max_bytes)
    try:
        found = msgspec.to_builtins(value, str_keys=True, enc_hook=_plain_model)
        # msgspec writes NaN as null, and the standard library writes lone surrogates.
        json.dumps(found, allow_nan=False)
        msgspec.json.encode(found)
    except _FAULTS as error:
        raise InvalidInput(f"{what} cannot be written as JSON: {error}") from None
    return found


def nearest(name: object, known: Iterable[str]) -> str:
    """Return a hint: `did you mean 'x'?`, or the allowed names."""
    names = sorted(known)
    close = get_close_matches(name, names, n=1) if isinstance(name, str) else ()
    return f"did you mean {close[0]!r}?" if close else f"allowed: {', '.join(names) or 'none'}"


def unknown_field(what: str, name: str, known: Iterable[str]) -> InvalidInput:
    """Return the exception for an unknown field."""
    return InvalidInput(f"{what} has no field {name!r}; {nearest(name, known)}")


def _plain_model(value: object) -> object:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise NotImplementedError(f"a {type(value).__name__} is not JSON")
    # By alias, as the model reads values from outside.
    return dump(mode="json", by_alias=True, round_trip=True)


_Objects = mi.StructType | mi.DataclassType | mi.TypedDictType


def _objects(
    node: mi.Type, raw: object, path: str = ""
) -> Iterator[tuple[str, _Objects, dict[str, Any]]]:
    """Yield every object of a JSON value that has fields in the schema, outermost first."""
    if isinstance(node, mi.UnionType):
        for member in node.types:
            if _fits(member, raw):
                yield from _objects(member, raw, path)
    elif isinstance(raw, dict) and isinstance(node, _OBJECTS):
        yield path, node, raw
        for field in node.fields:
            if field.encode_name in raw:
                inner = f"{path}.{field.encode_name}"
                yield from _objects(field.type, raw[field.encode_name], inner)
    elif isinstance(raw, dict) and isinstance(node, mi.DictType):
        for name, item in raw.items():
            yield from _objects(node.value_type, item, f"{path}.{name}")
    elif isinstance(raw, list) and isinstance(node, (*_LISTS, mi.TupleType)):
        inside = node.item_types if isinstance(node, mi.TupleType) else (node.item_type,) * len(raw)
        for place, (kind, item) in enumerate(zip(inside, raw, strict=False)):
            yield from _objects(kind, item, f"{path}[{place}]")


def _fits(node: mi.Type, raw: object) -> bool:
    """Return whether msgspec would choose this member of a union; at most one fits."""
    if isinstance(node, mi.StructType) and node.tag_field is not None:
        return isinstance(raw, dict) and raw.get(node.tag_field) == node.tag
    if isinstance(node, (*_OBJECTS, mi.DictType)):
        return isinstance(raw, dict)
    return isinstance(raw, list) and isinstance(node, (*_LISTS, mi.TupleType))


def _absent_is_none(field: mi.Field) -> bool:
    """Return whether an absent field reads as None, or may be absent (NotRequired)."""
    if field.required or field.default_factory is not msgspec.NODEFAULT:
        return False
    return field.default is None or field.default is msgspec.NODEFAULT


def _names(node: _Objects) -> frozenset[str]:
    names = {field.encode_name for field in node.fields}
    if isinstance(node, mi.StructType) and node.tag_field is not None:
        names.add(node.tag_field)
    return frozenset(names)


def _strip_model(value: object, shown: object) -> None:
    """Walk a model and its dump together, and remove fields that are None by default."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None and isinstance(shown, dict):
        for name, field in fields.items():
            if shown.get(name, ...) is None and not field.is_required() and field.default is None:
                del shown[name]
            elif name in shown:
                _strip_model(getattr(value, name), shown[name])
    elif isinstance(value, Mapping) and isinstance(shown, dict) and len(value) == len(shown):
        for inner, dumped in zip(value.values(), shown.values(), strict=True):
            _strip_model(inner, dumped)
    elif isinstance(value, list | tuple) and isinstance(shown, list) and len(value) == len(shown):
        for inner, dumped in zip(value, shown, strict=True):
            _strip_model(inner, dumped)
