"""`make language`: list names and sentences that may not be plain engineering English.

Reads Python and Markdown files, prints `path:line: pattern: text` for each match and a count for
each pattern. A match is only advice, so the exit status is always 0.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

FOLDERS = ("src", "tests", "docs", "benchmarks")
SENTENCES = {"docstring", "comment", "message", "document"}


class Pattern(NamedTuple):
    """Words to look for in texts of some kinds, and what to write instead."""

    name: str
    kinds: set[str]
    words: str
    advice: str


IMAGES = r"\b(glass|glances?|wish(es)?|reigns?|deeds?|heirs?|patience|farewell)\b"
PERSONS = r"\b(nobody|somebody|whoever|whatever)\b"
PATTERNS = (
    Pattern("image", SENTENCES | {"name"}, IMAGES, "use the technical term: request, next holder"),
    Pattern("speech", SENTENCES | {"name"}, r"\b(said|told)\b", "name the act: logged, reported"),
    Pattern("person", SENTENCES, PERSONS, "name the process or user, or use 'no' and 'any'"),
    Pattern("question", {"docstring"}, r"\A(What|Who|Whether|How)\b", "start with a verb or noun"),
    Pattern("quantity", {"constant"}, r"\b(most|few|near)\b", "name the quantity and its unit"),
    Pattern("milliseconds", {"message"}, r"(\d|\{\}) ms\b", "print s, min or h"),
    Pattern("bound", SENTENCES, r"\bmay\b[^.;]*\bat (most|least)\b", "use 'must be at most'"),
    Pattern("away", SENTENCES, r"\b(leaves?|left|leaving)\b[^.;]* away\b", "use 'omit'"),
)


def findings(text: str, suffix: str) -> list[tuple[int, str, str]]:
    """Return line, pattern and text of the matches in a `.py` or `.md` file."""
    found = []
    for start, kind, words in _python(text) if suffix == ".py" else _markdown(text):
        for pattern in PATTERNS:
            match = re.search(pattern.words, words, re.IGNORECASE)
            if match is not None and kind in pattern.kinds:
                offset = words.count("\n", 0, match.start())
                found.append((start + offset, pattern.name, words.splitlines()[offset].strip()))
    return sorted(found)


def _python(source: str) -> Iterator[tuple[int, str, str]]:
    for node in ast.walk(ast.parse(source)):
        line = getattr(node, "lineno", 1)
        match node:
            case ast.Expr(value=ast.Constant(value=str(words))):
                yield line, "docstring", words
            case ast.Raise(exc=ast.expr() as message) | ast.Assert(msg=ast.expr() as message):
                yield line, "message", _literal(message)
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield line, *_named(name)
            case ast.ClassDef(name=name) | ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                yield line, *_named(name)
            case _:
                pass
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], "comment", token.string


def _named(name: str) -> tuple[str, str]:
    words = re.sub(r"_|(?<=[a-z])(?=[A-Z])", " ", name)
    return "constant" if name.isupper() else "name", words


def _literal(node: ast.AST) -> str:
    """Return the string literals of an expression, with `{}` for inserted values."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.FormattedValue):
        return "{}"
    between = "" if isinstance(node, ast.JoinedStr) else " "
    return between.join(map(_literal, ast.iter_child_nodes(node)))


def _markdown(text: str) -> Iterator[tuple[int, str, str]]:
    is_code = False
    for number, line in enumerate(text.splitlines(), start=1):
        is_code ^= line.lstrip().startswith("```")
        if not is_code:
            yield number, "document", line


def main() -> None:
    """Print the matches in the files and folders given as arguments, by default in all."""
    places = [Path(each) for each in sys.argv[1:] or FOLDERS]
    counts: Counter[str] = Counter()
    for file in sorted(f for place in places for f in (place, *place.rglob("*"))):
        if file.is_file() and file.suffix in (".py", ".md"):
            for line, name, words in findings(file.read_text(), file.suffix):
                counts[name] += 1
                print(f"{file}:{line}: {name}: {words}")
    for pattern in PATTERNS:
        print(f"{counts[pattern.name]:>6}  {pattern.name:<13} {pattern.advice}")


if __name__ == "__main__":
    main()
