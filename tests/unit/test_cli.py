"""Tests of the command: output, streams and exit codes."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from duly.cli import main

DULY = Path(sys.executable).with_name("duly")
AFTER = "--after=2026-03-27T12:00:00Z"


def duly(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(main, arguments, env={"DULY_ZONES": None, **variables})


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the installed command as a process without a terminal."""
    return subprocess.run(
        words,
        env={"PATH": os.environ["PATH"], **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_explain() -> None:
    result = duly("explain", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "3", AFTER)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [
        "Every day at 02:30, Europe/Berlin",
        "  Sat 2026-03-28 02:30:00 +0100  2026-03-28 01:30:00Z",
        (
            "  Sun 2026-03-29 03:00:00 +0200  2026-03-29 01:00:00Z"
            "  (02:30 does not exist that day, moved to here)"
        ),
        "  Mon 2026-03-30 02:30:00 +0200  2026-03-30 00:30:00Z",
    ]


def test_explain_as_a_process() -> None:
    done = run(str(DULY), "explain", "@daily", "-n1", AFTER)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "Every day at 00:00, UTC\n  Sat 2026-03-28 00:00:00 +0000  2026-03-28 00:00:00Z\n"
    )


def test_a_mistake_as_a_process() -> None:
    done = run(str(DULY), "explain", "0 9 * * MOM")
    assert (done.returncode, done.stdout) == (2, "")
    first, second, message = done.stderr.splitlines()
    assert first.index("MOM") == second.index("^")
    assert second.strip() == "^^^"
    assert message.startswith("error: day of week: 'MOM' at position 8")


def test_the_zone_of_the_host_is_ignored() -> None:
    done = run(
        *(str(DULY), "explain", "0 9 * * *", "-n1", "--after", "2026-07-01T00:00:00Z"),
        TZ="America/New_York",
    )
    assert "09:00:00 +0000  2026-07-01 09:00:00Z" in done.stdout


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--gap", "shift"], "2026-03-29 01:30:00Z"),
        (["--gap", "skip"], "2026-03-30 00:30:00Z"),
        (["--gap", "next_valid"], "2026-03-29 01:00:00Z"),
    ],
)
def test_gap(options: list[str], line: str) -> None:
    after = "--after=2026-03-28T12:00:00Z"
    result = duly("explain", "30 2 * * *", "--tz", "Europe/Berlin", "-n", "1", after, *options)
    assert line in result.stdout


@pytest.mark.parametrize(
    ("fold", "times"),
    [("first", ["00:30"]), ("second", ["01:30"]), ("both", ["00:30", "01:30"])],
)
def test_fold(fold: str, times: list[str]) -> None:
    after = "--after=2026-10-24T12:00:00Z"
    result = duly("explain", "30 2 * * *", "--tz=Europe/Berlin", "-n2", after, "--fold", fold)
    assert re.findall(r"2026-10-25 (\d\d:\d\d):00Z", result.stdout) == times


def test_seconds() -> None:
    result = duly("explain", "*/10 * * * * *", "--seconds", "-n1", AFTER)
    assert "2026-03-27 12:00:10Z" in result.stdout


JSON = {
    '{"kind": "cron", "expression": "0 9 * * 1", "tz": "Asia/Tokyo"}': (
        "At 09:00 on Monday, Asia/Tokyo",
        "  Mon 2026-03-30 09:00:00 +0900  2026-03-30 00:00:00Z",
    ),
    '{"kind": "weekly", "days": {"mon": "09:00"}, "tz": "Asia/Tokyo"}': (
        "Monday at 09:00, Asia/Tokyo",
        "  Mon 2026-03-30 09:00:00 +0900  2026-03-30 00:00:00Z",
    ),
    '{"kind": "every", "minutes": 90, "start_at": "2026-03-27T00:00:00Z"}': (
        "Every 1 hour 30 minutes",
        "  Fri 2026-03-27 13:30:00 +0000  2026-03-27 13:30:00Z",
    ),
    '{"kind": "once", "at": "2026-12-24T18:00:00+01:00"}': (
        "Once, on Thursday 24 December 2026 at 17:00 UTC",
        "  Thu 2026-12-24 17:00:00 +0000  2026-12-24 17:00:00Z",
    ),
}


@pytest.mark.parametrize("text", JSON)
def test_json_of_all_kinds(text: str) -> None:
    result = duly("explain", text, "-n", "1", AFTER)
    assert (result.exit_code, result.stderr) == (0, "")
    assert tuple(result.stdout.splitlines()) == JSON[text]


def test_no_next_time_is_an_answer() -> None:
    result = duly("explain", '{"kind": "once", "at": "2026-01-01T00:00:00Z"}', AFTER)
    assert (result.exit_code, result.stdout.splitlines()[1:]) == (0, ["  no next time"])


def test_explain_without_times() -> None:
    result = duly("explain", "0 9 * * MON", "-n", "0", AFTER)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == "At 09:00 on Monday, UTC"
    assert "2026" not in result.stdout


def test_five_times_by_default_from_now_on() -> None:
    result = duly("explain", "* * * * *")
    assert len(result.stdout.splitlines()) == 6


NOTE = "  note: H, spread and a missing start belong to each schedule; shown for a stand-in (--key)"


@pytest.mark.parametrize(
    "trigger",
    ["H * * * *", '{"kind": "every", "minutes": 5}', '{"kind": "every", "days": 1, "spread": 9}'],
)
def test_triggers_that_depend_on_the_schedule_have_a_note(trigger: str) -> None:
    assert duly("explain", trigger, "-n1", AFTER).stdout.splitlines()[-1] == NOTE
    assert NOTE not in duly("explain", trigger, "-n1", AFTER, "--key", "mine").stdout


def test_a_key_decides_h() -> None:
    result = duly("explain", "H * * * *", "-n1", AFTER, "--key", "user:ada/digest")
    assert "2026-03-27 12:43:00Z" in result.stdout  # by sha256 alone, see test_cron.py


MISTAKES = [
    (["61 * * * *"], "  61 * * * *\n  ^^\nerror: minute: '61'"),
    ([""], "  \n  ^\nerror: expression: ''"),
    (["* * *"], "  * * *\n       ^\nerror: expression: ''"),
    (["0 0 31 2 *"], "  0 0 31 2 *\n      ^^\nerror: day of month: '31'"),
    (["*/10 * * * * *"], "  */10 * * * * *\n               ^\nerror: expression: '*'"),
    (["@reboot"], "  @reboot\n  ^^^^^^^\nerror: expression: '@reboot'"),
    (['{"kind": }'], "  {\"kind\": }\n           ^\nerror: trigger: '}'"),
    (['{"kind": "lunar"}'], "error: kind: 'lunar'"),
    (['{"kind": "weekly", "days": {"mon": "9:00"}}'], "error: mon: '9:00'"),
    (["@daily", "--tz", "Europe/Berlim"], "error: tz: 'Europe/Berlim'"),
    (["@daily", "--gap", "x"], "error: gap: 'x'"),
    (["@daily", "--fold", "x"], "error: fold: 'x'"),
    (["@daily", "--after", "tomorrow"], "error: --after: 'tomorrow'"),
    (["@daily", "--after", "2026-03-07T00:00:00"], "error: --after: '2026-03-07T00:00:00'"),
    (
        ["@daily", "--after", "1960-01-01T00:00:00Z"],
        "error: 1960-01-01T00:00:00+00:00 is outside",
    ),
    (['{"kind": "every", "days": 1}', "--tz", "UTC"], "error: --tz with a JSON trigger"),
]


@pytest.mark.parametrize(("arguments", "start"), MISTAKES)
def test_mistakes_go_to_stderr_with_exit_code_2(arguments: list[str], start: str) -> None:
    result = duly("explain", *arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(start)


@pytest.mark.parametrize("count", ["-1", "10001", "x"])
def test_the_number_of_times_is_bounded(count: str) -> None:
    result = duly("explain", "@daily", "-n", count)
    assert (result.exit_code, result.stdout) == (2, "")


def test_zones_can_be_restricted() -> None:
    result = duly("explain", "@daily", "--tz", "Asia/Tokyo", DULY_ZONES="utc")
    assert result.exit_code == 2
    assert "tz: 'Asia/Tokyo' is not allowed; allowed: UTC only" in result.stderr
    assert duly("explain", "@daily", DULY_ZONES="utc").exit_code == 0
    assert duly("explain", "@daily", "--tz", "Asia/Tokyo", DULY_ZONES="any").exit_code == 0


def test_a_bad_setting_is_named() -> None:
    result = duly("explain", "@daily", DULY_ZONES="some")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "DULY_ZONES" in result.stderr


TITLES = [
    "Rules people write",
    "When clocks change",
    "One rule, many schedules",
    "Mistakes are named",
    "A hundred thousand rows at once",
    "Users' schedules on a SQLite file",
    "Jobs, and a worker that runs them",
]
JOBS = [
    "office.count_rows processing: {percent:40,message:400 of 1,000 rows}",
    "office.send succeeded 3 {message:17}",
    "office.count_rows succeeded 1 1000",
    "office.print_all cancelled 1",
    "1 queued 0",
    "2 processing 1",
    "3 failed 1 ConnectionError: busy (key [redacted])",
    "4 retrying 1 ConnectionError: busy (key [redacted])",
    "5 queued 1",
    "6 processing 2",
    "7 failed 2 ConnectionError: busy (key [redacted])",
    "8 retrying 2 ConnectionError: busy (key [redacted])",
    "9 queued 2",
    "10 processing 3",
    "11 succeeded 3",
    "{to: ada@example.org, api_key: [redacted]}",
]


def test_demo() -> None:
    result = duly("demo")
    assert (result.exit_code, result.stderr) == (0, "")
    assert [title for title in TITLES if title not in result.stdout] == []
    assert "100,000 next times of 96 distinct rules" in result.stdout
    lines = [" ".join(line.replace('"', "").split()) for line in result.stdout.splitlines()]
    assert [line for line in JOBS if line not in lines] == []
    assert "demo-key" not in result.stdout
    assert "/readyz answers 200; everything is stopped now." in result.stdout
    assert "sk-demo" not in result.stdout


@pytest.mark.parametrize("stdin", ["</dev/null", "<&-"])
def test_demo_as_a_process_ends_by_itself(stdin: str) -> None:
    """The demo also ends without a terminal and without standard input."""
    done = run("sh", "-c", f"exec {shlex.quote(str(DULY))} demo {stdin}")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.rstrip().endswith("everything is stopped now.")
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize("arguments", [[], ["explain"], ["demo"]], ids=str)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(arguments: list[str], flag: str) -> None:
    result = duly(*arguments, flag)
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")


def examples(*arguments: str) -> list[list[str]]:
    """Return the commands in a help text."""
    lines = duly(*arguments, "--help").stdout.splitlines()
    return [shlex.split(line)[1:] for line in lines if line.startswith("    duly ")]


@pytest.mark.parametrize(("command", "count"), [([], 4), (["explain"], 6)], ids=str)
def test_examples_in_help_work(command: list[str], count: int) -> None:
    shown = examples(*command)
    assert len(shown) == count
    for arguments in shown:
        assert duly(*arguments).exit_code == 0


def test_settings_are_in_help() -> None:
    assert "DULY_ZONES=utc" in duly("explain", "--help").stdout


def test_version() -> None:
    result = duly("--version")
    assert re.fullmatch(r"duly, version \d+\.\d+\.\d+\n", result.stdout)


def test_no_command_shows_help() -> None:
    result = duly()
    assert "explain" in result.output
    assert result.exit_code == 2
