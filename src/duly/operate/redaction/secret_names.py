"""Detection of field names that hold secrets.

A name is split into words (snake, camel, kebab, dots, digits) and is secret if a word, or adjacent
words together, are: `dbPassword`, `x-api-key`, `APIKey`; not `monkey` or `author`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import lru_cache

MAX_NAME = 500
"""Longer names are not parsed; they count as secret."""

EVERY = "*"
"""Wildcard for every name: used when the secret names of an action are not known."""

# Personal data (a birthday, a social security number) is not covered: each action declares which
# of it is hidden from operators.
_WORDS = (
    "auth authorisation authorization bearer cookie credential cvc cvv jwt mnemonic oauth otp "
    "passcode passphrase passwd password pin pwd secret token totp"
)
_PAIRS = (
    "access key, account key, admin pass, amz signature, api key, backup code, card number, "
    "connection string, credit card, db pass, encryption key, host key, license key, mail pass, "
    "master key, private key, recovery code, root pass, security code, seed phrase, service key, "
    "session id, session key, shared key, signing key, smtp pass, ssh key, user pass, "
    "verification code, webhook key"
)
# Token counts of language models and token types are not secrets.
_HARMLESS = (
    "cached tokens, completion tokens, input tokens, max tokens, min tokens, output tokens, "
    "prompt tokens, total tokens, token budget, token count, token limit, token type, token usage"
)
_NAMES = frozenset(_WORDS.split()) | {pair.replace(" ", "") for pair in _PAIRS.split(", ")}
_NO_SECRETS = tuple(pair.replace(" ", "") for pair in _HARMLESS.split(", "))
# Also secret at the end of a compound word: `dbpassword`, `accesstoken`.
_ENDINGS = ("apikey", "cookie", "credential", "passphrase", "passwd", "password", "secret", "token")
_RUN = 8
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LETTERS = re.compile(r"[^\W\d_]+|\d+")


def is_secret(name: str, extra: frozenset[str] = frozenset()) -> bool:
    """Return whether a name denotes a secret, by its words rather than by substrings."""
    return len(name) > MAX_NAME or EVERY in extra or _is_secret_name(name, extra)


def joined(extra: Collection[str]) -> frozenset[str]:
    """Return names in lower case, as given and without separators, each also in the singular."""
    given = [name.lower() for name in ((extra,) if isinstance(extra, str) else extra)]
    bare = ["".join(_LETTERS.findall(name)) for name in given]
    return frozenset(form for name in given + bare if name for form in (name, _singular(name)))


@lru_cache(maxsize=4096)
def _is_secret_name(name: str, extra: frozenset[str]) -> bool:
    if name.lower() in extra:
        return True
    # Both splits: case separates the words of `dbPassword` but breaks up `db_pAsSwOrD`.
    return any(
        _has_secret([word.lower() for word in pattern.findall(name)], extra)
        for pattern in (_CAMEL, _LETTERS)
    )


def _has_secret(words: list[str], extra: frozenset[str]) -> bool:
    """Return whether adjacent words together form a secret's name."""
    if words == ["pass"]:
        return True
    single = [_singular(word) for word in words]
    harmless = {
        place
        for start, end in _runs(len(words))
        if "".join(words[start:end]) in _NO_SECRETS
        for place in range(start, end)
    }
    for start, end in _runs(len(words)):
        run, singular = "".join(words[start:end]), "".join(single[start:end])
        if run in extra or singular in extra:
            return True
        if not harmless.isdisjoint(range(start, end)):
            continue
        if singular in _NAMES or run.startswith("password"):
            return True
        if end - start == 1 and singular.endswith(_ENDINGS) and not run.endswith(_NO_SECRETS):
            return True
    return False


def _runs(count: int) -> Iterator[tuple[int, int]]:
    for start in range(count):
        for end in range(start + 1, min(start + _RUN, count) + 1):
            yield start, end
    if count > _RUN:
        yield 0, count


def _singular(word: str) -> str:
    return word[:-1] if word.endswith("s") and not word.endswith("ss") else word
