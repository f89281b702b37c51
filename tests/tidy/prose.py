"""Checks of all text files, and of the links and commands in documents."""

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from pathlib import PurePosixPath

from tests.tidy.complaints import Complaint, File

LEFTOVER = re.compile(r"(?<![\w-])(?:TODO|FIXME|XXX)(?![\w-])")
MACHINE_PATH = re.compile(r"(?<![\w.~])/(?:work|root|home|Users)/")
REGISTRY = re.compile(
    r"https?://\S*(?:pypi|pythonhosted|npmjs|artifactory|devpi|/simple\b)"
    r"|(?<![\w-])--(?:extra-)?index-url\b|(?<![\w-])--find-links\b"
)
ADR_NAME = re.compile(r"(\d{4})-[a-z]+(?:-[a-z0-9]+)+\.md")
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
FENCE = re.compile(r"^ *(```+|~~~+)")
TARGET_LINE = re.compile(r"^([a-z][a-z-]*):", re.MULTILINE)
MAKE_COMMAND = re.compile(r"^(?:\$ )?make((?: +[\w=\"'.-]+)*)")


def leftovers(file: File) -> Iterator[Complaint]:
    for number, line in file.numbered():
        if LEFTOVER.search(line):
            yield file.complain(number, "a leftover TODO; do it, or open an issue")


def machine_paths(file: File) -> Iterator[Complaint]:
    for number, line in file.numbered():
        if MACHINE_PATH.search(line):
            yield file.complain(number, "an absolute path of one machine; make it relative")


def registry_addresses(file: File) -> Iterator[Complaint]:
    for number, line in file.numbered():
        if REGISTRY.search(line):
            yield file.complain(number, "the URL of a package registry; name the package instead")


def decision_names(file: File) -> Iterator[Complaint]:
    """Check for `docs/adr/NNNN-verb-object.md` with the same number in the heading."""
    match = ADR_NAME.fullmatch(file.path.name)
    if match is None:
        yield file.complain(1, "name the decision NNNN-verb-object.md")
    elif not file.text.startswith(f"# {match[1]} "):
        yield file.complain(1, f"the heading of this decision must start with '# {match[1]} '")


def decision_numbers(names: list[str]) -> Iterator[Complaint]:
    """Check that numbers count up from 0001 without gaps or duplicates."""
    for expected, name in enumerate(sorted(names), start=1):
        if not name.startswith(f"{expected:04}-"):
            yield Complaint(f"docs/adr/{name}", 1, f"expected decision {expected:04} here")
            return


def links(
    file: File, documents: dict[PurePosixPath, str], files: AbstractSet[str]
) -> Iterator[Complaint]:
    """Check that each relative link leads to an existing file and heading."""
    for number, line in _outside_fences(file):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:", target):
                continue
            path_text, _, anchor = target.partition("#")
            path = _resolve(file.path.parent / path_text) if path_text else file.path
            if str(path) not in files and not any(f.startswith(f"{path}/") for f in files):
                yield file.complain(number, f"link to {target!r}: no such file")
            elif anchor and path in documents and anchor not in _anchors(documents[path]):
                yield file.complain(number, f"link to {target!r}: no such heading")


def make_targets(file: File, makefile: str) -> Iterator[Complaint]:
    """Check that each `make x` in code of a document is a target of the Makefile."""
    known = set(TARGET_LINE.findall(makefile))
    for number, code in _code(file):
        match = MAKE_COMMAND.match(code.strip())
        for word in match[1].split() if match else ():
            if re.fullmatch(r"[a-z][a-z-]*", word) and word not in known:
                yield file.complain(number, f"make {word}: the Makefile has no such target")


def _resolve(path: PurePosixPath) -> PurePosixPath:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts and parts[-1] != "..":
            parts.pop()
        else:
            parts.append(part)
    return PurePosixPath(*parts)


def _anchors(text: str) -> set[str]:
    file = File(PurePosixPath("headings"), text)
    headings = [line.lstrip("#") for _, line in _outside_fences(file) if re.match(r"#+ ", line)]
    return {re.sub(r"[^\w\- ]", "", h.strip().lower()).replace(" ", "-") for h in headings}


def _lines(file: File) -> Iterator[tuple[int, str, bool]]:
    """Yield each line with its number and whether it is inside a code fence."""
    fence = ""
    for number, line in file.numbered():
        match = FENCE.match(line)
        if match and not fence:
            fence = match[1]
        elif match and match[1].startswith(fence):
            fence = ""
        else:
            yield number, line, bool(fence)


def _outside_fences(file: File) -> Iterator[tuple[int, str]]:
    return ((number, line) for number, line, fenced in _lines(file) if not fenced)


def _code(file: File) -> Iterator[tuple[int, str]]:
    for number, line, fenced in _lines(file):
        if fenced:
            yield number, line
        else:
            yield from ((number, span) for span in re.findall(r"`([^`]+)`", line))
