"""The OpenAPI document of the whole surface, built from the table of operations. Pure."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec

from duly.web.api.operations import OPERATIONS, Operation

_REF = "#/components/schemas/{name}"
_SECURITY: dict[str, list[dict[str, list[str]]]] = {
    "gateway": [{"bearer": []}, {"signed": []}],
    "user": [{"user": []}],
    "signature": [{"sender": []}],
    "none": [],
}
_ABOUT: dict[str, str] = {
    "flow": "The name of a flow.",
    "scheduleId": "`<owner>/<name>`, each part percent-encoded.",
    "webhook": "The name of a webhook of the flow.",
    "name": "The name of one of the caller's schedules, percent-encoded.",
}


@cache
def document() -> dict[str, Any]:
    """Return the document; it is the same for every application and reveals no flows."""
    types = _types()
    _, components = msgspec.json.schema_components(types, ref_template=_REF)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        path = operation.path.replace("+}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Duly",
            "version": version("duly"),
            "description": "Dispatch, tick, webhooks, and the schedules of end users.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _schemes()},
    }


def _types() -> list[Any]:
    found = [operation.body for operation in OPERATIONS if operation.body is not None]
    for operation in OPERATIONS:
        found += [kind for _, kind in operation.documented.values() if kind is not None]
    return list(dict.fromkeys(found))


def _schemes() -> dict[str, Any]:
    def header(name: str, about: str) -> dict[str, str]:
        return {"type": "apiKey", "in": "header", "name": name, "description": about}

    return {
        "bearer": {"type": "http", "scheme": "bearer", "description": "A dispatch secret."},
        "signed": header("webhook-signature", "A Standard Webhooks signature, id and timestamp."),
        "sender": header("webhook-signature", "The signature scheme of the webhook's sender."),
        "user": {
            "type": "http",
            "scheme": "bearer",
            "description": "Whatever the application's `authenticate` reads from the request.",
        },
    }


def _described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": operation.id,
        "summary": operation.about,
        "parameters": _parameters(operation),
        "responses": {
            str(status): _answer(words, kind)
            for status, (words, kind) in operation.documented.items()
        },
        "security": _SECURITY[operation.security],
    }
    if operation.body is not None:
        found["requestBody"] = {
            "required": operation.is_body_needed,
            "content": {"application/json": {"schema": _schema(operation.body)}},
        }
    return found


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _ABOUT[name],
            "schema": {"type": "string", "minLength": 1},
        }
        for name in re.findall(r"\{(\w+)\+?\}", operation.path)
    ]
    in_query = [
        {"name": each.name, "in": "query", "description": each.about, "schema": dict(each.schema)}
        for each in operation.query
    ]
    return in_path + in_query


def _answer(words: str, kind: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"description": words}
    if kind is not None:
        found["content"] = {"application/json": {"schema": _schema(kind)}}
    return found


def _schema(kind: Any) -> Any:
    (schema,), _ = msgspec.json.schema_components([kind], ref_template=_REF)
    return schema
