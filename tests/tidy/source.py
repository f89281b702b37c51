"""Checks of Python source: sizes, names, and calls that are allowed in one module only."""

import ast
import re
from collections.abc import Iterator

from tests.tidy.complaints import Complaint, File, dotted, imported_names

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
LINE_CHARACTERS_MAX = 100
CONSTRUCTOR_PARAMETERS_MAX = 6
DOCSTRING_LINES_MAX = 8

CLOCK_HOME = "src/duly/clock.py"
SETTINGS_HOME = "src/duly/settings.py"
PRINTER_HOME = "src/duly/cli"
# Its docstring shows the whole tree of errors.
ERRORS_HOME = "src/duly/errors.py"

CLOCK_READS = {
    "datetime.date.today",
    "datetime.datetime.now",
    "datetime.datetime.today",
    "datetime.datetime.utcnow",
    "time.localtime",
    "time.time",
    "time.time_ns",
}
ENVIRONMENT_READS = {"os.environ", "os.environb", "os.getenv", "os.putenv"}
SLEEPS = {"anyio.sleep", "asyncio.sleep", "time.sleep"}
SKIPS = {
    "pytest.importorskip",
    "pytest.mark.skip",
    "pytest.mark.skipif",
    "pytest.mark.xfail",
    "pytest.skip",
    "pytest.xfail",
    "unittest.skip",
}
BUCKET_NAMES = {"common", "helper", "helpers", "manager", "misc", "types", "util", "utils"}
# Words that mean nothing anywhere in a name.
EMPTY_WORDS = {"helper", "helpers", "manager", "misc", "util", "utils"}
# Words that mean nothing as the verb of a function, or as the whole name.
EMPTY_VERBS = {"handle", "process"}
EMPTY_NAMES = {"common", "data", "handle", "process"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def file_length(file: File) -> Iterator[Complaint]:
    count = len(file.text.splitlines())
    if count > FILE_LINES_MAX:
        yield file.complain(
            1, f"{count} lines; the limit is {FILE_LINES_MAX}, split the file by topic"
        )


def line_length(file: File) -> Iterator[Complaint]:
    for number, line in file.numbered():
        if len(line) > LINE_CHARACTERS_MAX:
            yield file.complain(
                number, f"{len(line)} characters; the limit is {LINE_CHARACTERS_MAX}"
            )


def function_length(file: File) -> Iterator[Complaint]:
    for node in ast.walk(file.tree()):
        if isinstance(node, Function):
            count = (node.end_lineno or node.lineno) - node.lineno + 1
            if count > FUNCTION_LINES_MAX:
                reason = f"{node.name} has {count} lines; the limit is {FUNCTION_LINES_MAX}"
                yield file.complain(node.lineno, reason)


def constructor_width(file: File) -> Iterator[Complaint]:
    for node in ast.walk(file.tree()):
        if isinstance(node, Function) and node.name == "__init__":
            spec = node.args
            count = len(spec.posonlyargs) + len(spec.args) + len(spec.kwonlyargs) - 1
            if count > CONSTRUCTOR_PARAMETERS_MAX:
                reason = f"__init__ takes {count} parameters; a value object is missing"
                yield file.complain(node.lineno, reason)


def clock_reads(file: File) -> Iterator[Complaint]:
    if str(file.path) != CLOCK_HOME:
        yield from _references(
            file, CLOCK_READS, f"take the time as an argument; only {CLOCK_HOME} reads it"
        )


def environment_reads(file: File) -> Iterator[Complaint]:
    if str(file.path) != SETTINGS_HOME:
        yield from _references(
            file, ENVIRONMENT_READS, f"only {SETTINGS_HOME} reads the environment"
        )


def prints(file: File) -> Iterator[Complaint]:
    if file.is_under(PRINTER_HOME):
        return
    for node in ast.walk(file.tree()):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "print"
        ):
            yield file.complain(
                node.lineno, f"print: only {PRINTER_HOME} prints; return or log instead"
            )


def silent_handlers(file: File) -> Iterator[Complaint]:
    tree = file.tree()
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler) and _catches_all(node.type) and _is_empty(node.body):
            yield file.complain(node.lineno, "catches everything silently; name the exception")
        if (
            isinstance(node, ast.Call)
            and dotted(node.func, names) == "contextlib.suppress"
            and any(_catches_all(argument) for argument in node.args)
        ):
            yield file.complain(node.lineno, "suppresses everything; name the exception")


def module_docstring(file: File) -> Iterator[Complaint]:
    docstring = ast.get_docstring(file.tree())
    if docstring is None:
        yield file.complain(1, "no module docstring: state purpose, inputs, outputs, invariants")
    elif len(docstring.splitlines()) > DOCSTRING_LINES_MAX and str(file.path) != ERRORS_HOME:
        yield file.complain(1, f"module docstring over {DOCSTRING_LINES_MAX} lines; docs/ has room")


def bucket_names(file: File) -> Iterator[Complaint]:
    for part in (*file.path.parts[:-1], file.path.stem):
        if part in BUCKET_NAMES:
            yield file.complain(1, f"{part!r} is a bucket name; name the contents instead")


def empty_names(file: File) -> Iterator[Complaint]:
    for line, name, is_function in _own_names(file.tree()):
        words = _words(name)
        if (
            EMPTY_WORDS & set(words)
            or (len(words) == 1 and words[0] in EMPTY_NAMES)
            or (is_function and words[:1] and words[0] in EMPTY_VERBS)
        ):
            yield file.complain(line, f"{name!r} means nothing; use a word of the glossary")
        elif re.search(r"_v\d+$", name):
            yield file.complain(line, f"{name!r}: a second version replaces the first")


def root_imports(file: File) -> Iterator[Complaint]:
    """Refuse imports of the package root: it imports every layer, which hides import cycles."""
    if file.is_under("src/duly/cli") or file.is_under("src/duly/testing"):
        return
    for node in ast.walk(file.tree()):
        if isinstance(node, ast.ImportFrom):
            imported = [node.module]
        elif isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        else:
            continue
        if "duly" in imported:
            yield file.complain(node.lineno, "imports the package root; name the module instead")


def literal_sleeps(file: File) -> Iterator[Complaint]:
    tree = file.tree()
    names = imported_names(tree)
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and dotted(node.func, names) in SLEEPS):
            continue
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        if arguments and _is_literal(arguments[0]) and not _is_zero(arguments[0]):
            yield file.complain(node.lineno, "sleeps for a fixed time; wait for a signal instead")


def skips_without_reason(file: File) -> Iterator[Complaint]:
    tree = file.tree()
    names = imported_names(tree)
    called = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name) or dotted(node, names) not in SKIPS:
            continue
        call = called.get(id(node))
        if call is None or not _gives_reason(call, dotted(node, names)):
            yield file.complain(node.lineno, "a skip or xfail without a reason")


def _references(file: File, banned: set[str], remedy: str) -> Iterator[Complaint]:
    tree = file.tree()
    names = imported_names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name) and dotted(node, names) in banned:
            yield file.complain(node.lineno, f"{dotted(node, names)}: {remedy}")


def _catches_all(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    if isinstance(caught, ast.Tuple):
        return any(_catches_all(element) for element in caught.elts)
    return isinstance(caught, ast.Name) and caught.id in {"BaseException", "Exception"}


def _is_empty(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(statement, ast.Pass | ast.Continue)
        or (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
        for statement in body
    )


def _is_literal(node: ast.expr) -> bool:
    return not any(isinstance(part, ast.Name | ast.Call | ast.Attribute) for part in ast.walk(node))


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0


def _gives_reason(call: ast.Call, name: str) -> bool:
    reasons = [keyword.value for keyword in call.keywords if keyword.arg == "reason"]
    if not reasons and name in {"pytest.skip", "pytest.xfail", "pytest.mark.skip", "unittest.skip"}:
        reasons = call.args[:1]
    return bool(reasons) and not (isinstance(reasons[0], ast.Constant) and not reasons[0].value)


def _own_names(tree: ast.Module) -> Iterator[tuple[int, str, bool]]:
    """Yield each name that a module defines: line, name, and whether it is a function."""
    for node in ast.walk(tree):
        if isinstance(node, Function):
            yield node.lineno, node.name, True
        elif isinstance(node, ast.ClassDef):
            yield node.lineno, node.name, False
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg, False
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id, False


def _words(name: str) -> list[str]:
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
