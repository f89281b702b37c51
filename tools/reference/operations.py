"""Generate the tables of the HTTP API from the OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from duly.web.api.openapi import document
from tools.reference.markdown import code, table, words

_WHO = {"bearer": "gateway", "signed": "gateway", "user": "end user", "sender": "sender"}


def summary() -> str:
    """Return a table with a line for each operation."""
    rows = []
    for method, path, found in _operations():
        who = next((_WHO[name] for scheme in found["security"] for name in scheme), "anybody")
        rows.append((code(f"{method} {path}"), who, found["summary"], words(found["responses"])))
    return table(("call", "asked by", "does", "answers"), rows)


def bodies() -> str:
    """Return a table for each kind of body."""
    parts = []
    for name, schema in sorted(document()["components"]["schemas"].items()):
        needed = schema.get("required", ())
        rows = [
            (code(field), _kind(each), "yes" if field in needed else "")
            for field, each in schema.get("properties", {}).items()
        ]
        if rows:
            about = schema.get("description", "")
            parts.append(f"### {name}\n\n{about}\n\n{table(('field', 'type', 'always'), rows)}")
    return "\n\n".join(parts)


def _operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, methods in document()["paths"].items():
        for method, found in methods.items():
            yield method.upper(), path, found


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        found = document()["components"]["schemas"][name]
        return f"[{name}](#{name.lower()})" if "properties" in found else _kind(found)
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(each) for each in schema["anyOf"]))
    if "enum" in schema:
        return words(schema["enum"])
    if "const" in schema:
        return code(schema["const"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return schema.get("format") or schema.get("type") or "any JSON"
