"""Redaction of payloads and error texts.

Secrets (credentials and payment data) are found by the names of their fields, by typical forms in
running text, and by value once known. These functions accept any text and never raise.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator
from typing import Any

from duly.model.jobs import MAX_ERROR_CHARACTERS
from duly.operate.redaction.known_secrets import CUT, MIN_SECRET, KnownSecrets
from duly.operate.redaction.secret_names import EVERY, is_secret, joined

REDACTED = "[redacted]"
MAX_DEPTH = 32
MAX_PARSED = 1_000_000
MAX_SCANNED = 20_000
"""Characters scanned per text; more than is ever shown, so that the end of the shown part is
judged with its full context."""
MAX_SECRETS = 10_000
MIN_GUESSED = 8
"""Minimum length of a guessed secret for it to be searched for elsewhere."""

_FORMS = re.compile(
    r"(?i:\bbearer)\s{1,4}([\w.~+/=-]+)"
    r"|\bBasic\s{1,4}((?=[a-z]*[A-Z0-9+/=])[A-Za-z0-9+/]{6,}={0,2})"
    # A password in a URL, also one with a slash; a port is not a password.
    r"|://([^\s/:@]{0,256}:(?!\d{1,5}(?:[/?#\s]|$))[^\s\"'<>]{0,512})@"
    r"|://([^\s/?#\"'<>]+)@"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(.*?)(?:-----END|\Z)"
    r"|(?<![\w-])(eyJ[\w-]{8,}\.[\w-]{4,}(?:\.[\w-]*)?)"
    r"|(?<![\w-])(sk-[\w-]{16,}|[prs]k_(?:live|test)_\w{8,}|gh[oprsu]_\w{16,}|github_pat_\w{16,}"
    r"|glpat-[\w-]{16,}|xox[a-z]-[\w-]{8,}|AKIA[0-9A-Z]{16})",
    re.DOTALL,
)
_SIGN = re.compile(
    r"""--[A-Za-z][\w-]{0,63}["']?,?\s{1,4}|\\{0,8}["'`]?\]?\s{0,4}(?:=>|:=|[:=])\s{0,4}"""
)
_NAME_BACKWARDS = re.compile(r"[\w.\-]{0,64}(?: [\w.\-]{1,64})?")
_VALUE = re.compile(
    r"""[bBrRuU]{0,2}\\{0,8}(?:"((?:[^"\\]|\\.)*)|'((?:[^'\\]|\\.)*))"""
    # A bracket may hold anything, and its end cannot be found without parsing.
    r"|([\w.]{0,64}[\[({].*)|((?:(?![,;](?:\s|[\w.-]{1,64}[=:]))[^\s&])+)",
    re.DOTALL,
)
_LINE = re.compile(r"([^\r\n]+)")
_NOT_JSON = object()


def preview(
    text: str, extra: Collection[str] = (), limit: int = 2_000, *, secrets: Collection[str] = ()
) -> str:
    """Return JSON text with its secrets redacted, as JSON text of at most `limit` characters.

    A value under a secret name is redacted whole, and wherever else it occurs. `extra` are the
    secret names that the action declares, or EVERY; `secrets` are values known from elsewhere.
    Text that is not JSON is returned as a JSON string.
    """
    names, tree = joined(extra), _parsed(text)
    found = _found(text if tree is _NOT_JSON else tree, names)
    view = _View(names, {*found, *secrets}, limit)
    if tree is _NOT_JSON and EVERY in names:
        return _dumps(REDACTED)
    shown = _dumps(view.text(text) if tree is _NOT_JSON else view.value(tree, 0))
    if len(shown) <= limit:
        return shown
    # Quoting at most doubles JSON text.
    return _dumps(_cut(shown, max((limit - 2) // 2, 1)))


def scrub(text: str, secrets: Collection[str] = (), limit: int = MAX_ERROR_CHARACTERS) -> str:
    """Return an error text without `secrets` and anything that looks like a secret, truncated."""
    return _cut(_View(frozenset(), secrets, limit).clean(text), limit)


def secret_values(text: str, extra: Collection[str] = ()) -> frozenset[str]:
    """Return the values under secret names in JSON text, for scrub()."""
    names, tree = joined(extra), _parsed(text)
    return frozenset(_found(text if tree is _NOT_JSON else tree, names))


def masked(value: Any, extra: Collection[str] = (), secrets: Collection[str] = ()) -> Any:
    """Return a JSON value with values under secret names, and `secrets` anywhere, replaced.

    Unlike a preview it is complete: it is shown to its author.
    """
    return _View(joined(extra), secrets, 0).masked(value, 0)


def is_masked(value: Any) -> bool:
    """Return whether a JSON value contains the placeholder that masked() writes."""
    waiting: list[Any] = [value]
    while waiting:
        inner = waiting.pop()
        if isinstance(inner, str) and REDACTED in inner:
            return True
        if isinstance(inner, dict):
            waiting += inner.values()
        elif isinstance(inner, list):
            waiting += inner
    return False


class _View:
    """A payload being rendered: its secrets, and the room left for output."""

    def __init__(self, names: frozenset[str], secrets: Iterable[str], limit: int) -> None:
        self._names = names
        # A fifth is reserved for brackets and omission marks.
        self._room = limit - limit // 5
        self._limit = limit
        known = (each for each in secrets if len(each) >= MIN_SECRET and each != REDACTED)
        self._known = KnownSecrets(known)

    def value(self, value: object, depth: int) -> object:
        self._room -= 2
        if EVERY in self._names and isinstance(value, str | int | float):
            return REDACTED
        if isinstance(value, str):
            return self._string(value, depth)
        if isinstance(value, dict | list) and depth >= MAX_DEPTH:
            return CUT
        if isinstance(value, dict):
            return self._object(value, depth)
        if isinstance(value, list):
            return self._list(value, depth)
        return self._scalar(value)

    def _object(self, value: dict[str, Any], depth: int) -> dict[str, object]:
        shown: dict[str, object] = {}
        for place, (name, inner) in enumerate(value.items()):
            if self._room <= 0:
                shown[CUT] = f"{len(value) - place} more"
                break
            is_hidden = is_secret(name, self._names)
            self._room -= 2
            shown[self.text(name)] = REDACTED if is_hidden else self.value(inner, depth + 1)
        return shown

    def _list(self, value: list[Any], depth: int) -> list[object]:
        shown: list[object] = []
        for place, inner in enumerate(value):
            if self._room <= 0:
                shown.append(f"{CUT} {len(value) - place} more")
                break
            shown.append(self.value(inner, depth + 1))
        return shown

    def _string(self, value: str, depth: int) -> str:
        inside = _embedded(value)
        if inside is _NOT_JSON or depth >= MAX_DEPTH:
            return self.text(value)
        return _cut(_dumps(self.value(inside, depth + 1)), self._limit)

    def _scalar(self, value: object) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            value = str(value)
        # A number may also be long, or equal a secret found elsewhere.
        shown = self.text(str(value))
        return value if shown == str(value) else shown

    def text(self, text: str) -> str:
        shown = _cut(self.clean(text), max(self._room, 16))
        self._room -= len(_dumps(shown))
        return shown

    def masked(self, value: Any, depth: int) -> Any:
        """Return the value as value() does, but complete and without guesses."""
        if EVERY in self._names and isinstance(value, str | int | float):
            return REDACTED
        if isinstance(value, str):
            return _replaced(value, sorted(self._known.spans(value)))
        if isinstance(value, dict | list) and depth >= MAX_DEPTH:
            return CUT
        if isinstance(value, dict):
            return {
                name: REDACTED
                if is_secret(name, self._names) and inner is not None
                else self.masked(inner, depth + 1)
                for name, inner in value.items()
            }
        if isinstance(value, list):
            return [self.masked(inner, depth + 1) for inner in value]
        return value

    def clean(self, text: str) -> str:
        """Return the text with every secret replaced, cut at about MAX_SCANNED characters."""
        if len(text) > MAX_SCANNED:
            text = text[:MAX_SCANNED]
            # The last word may be part of a secret.
            text = text[: max(text.rfind(" "), MAX_SCANNED // 2)] + CUT
        return _replaced(text, sorted([*self._known.spans(text), *_suspect(text, self._names)]))


def _replaced(text: str, spans: list[tuple[int, int]]) -> str:
    """Return the text with the spans redacted; spans are sorted and may overlap."""
    pieces, done = list[str](), 0
    for start, end in spans:
        if start >= done:
            pieces += text[done:start], REDACTED
        done = max(done, end)
    return "".join([*pieces, text[done:]])


def _suspect(text: str, names: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Yield the spans that look like a secret, or that follow a secret name."""
    for match in _FORMS.finditer(text):
        yield match.span(match.lastindex or 0)
    place = 0
    while sign := _SIGN.search(text, place):
        place = sign.end()
        is_flag = sign[0].startswith("--")
        name = sign[0] if is_flag else _name_before(text, sign.start())
        if not _announces(name, names) or text.startswith(REDACTED, place):
            continue
        value = _VALUE.match(text, place)
        if value is not None and value.lastindex == 4 and _is_header(name):
            value = _LINE.match(text, place)
        if value is not None:
            yield value.span(value.lastindex or 0)
            place = value.end()


def _name_before(text: str, end: int) -> str:
    """Return the one or two words that end at `end`."""
    match = _NAME_BACKWARDS.match(text[max(0, end - 129) : end][::-1])
    return "" if match is None else match[0][::-1]


def _announces(name: str, names: frozenset[str]) -> bool:
    return is_secret(name.rpartition(" ")[2], names) or is_secret(name, names)


def _is_header(name: str) -> bool:
    return any(word in name.lower() for word in ("authorization", "cookie"))


def _found(value: object, names: frozenset[str]) -> set[str]:
    """Return every value under a secret name, at any depth, and secret-like parts of texts."""
    found: set[str] = set()
    waiting: list[tuple[object, bool, int]] = [(value, EVERY in names, 0)]
    while waiting and len(found) < MAX_SECRETS:
        value, is_under, depth = waiting.pop()
        if isinstance(value, dict):
            for name, inner in value.items():
                waiting.append((inner, is_under or is_secret(name, names), depth))
        elif isinstance(value, list):
            waiting += [(inner, is_under, depth) for inner in value]
        elif isinstance(value, str):
            inside = _embedded(value) if depth < MAX_DEPTH else _NOT_JSON
            if inside is not _NOT_JSON:
                waiting.append((inside, is_under, depth + 1))
            else:
                found.update(_guessed(value[:MAX_SCANNED]))
            if is_under:
                found.add(value)
        elif is_under and isinstance(value, int | float) and not isinstance(value, bool):
            found.add(str(value))
    return {each for each in found if len(each) >= MIN_SECRET and each != REDACTED}


def _guessed(text: str) -> Iterator[str]:
    """Yield parts of a text that have the form of a secret; of a URL, the password."""
    for match in _FORMS.finditer(text):
        secret = match[match.lastindex or 0]
        if len(secret := secret.partition(":")[2] or secret) >= MIN_GUESSED:
            yield secret


def _parsed(text: str) -> object:
    if len(text) > MAX_PARSED:
        return _NOT_JSON
    try:
        return json.loads(text, parse_constant=str)
    except (ValueError, RecursionError):
        return _NOT_JSON


def _embedded(text: str) -> object:
    """Return the object, list or string that a string encodes as JSON, else _NOT_JSON."""
    return _parsed(text) if text.lstrip()[:1] in ("{", "[", '"') and text else _NOT_JSON


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(limit - len(CUT), 0)] + CUT


def _dumps(value: object) -> str:
    # A lone surrogate is valid in JSON but cannot be encoded as UTF-8.
    return json.dumps(value, ensure_ascii=False).encode(errors="replace").decode()
