"""File descriptors: the limit of a process, the share for connections, and running out of them."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from duly import InvalidInput
from duly.settings import Settings
from duly.web.serving.descriptors import RESERVED_DESCRIPTORS, connection_limit
from tests.integration.http.listening import Client

ROOT = Path(__file__).parents[3]


def limited(limits: str, *words: str) -> list[str]:
    """Return a command line that runs Python under a limit of file descriptors."""
    return ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", sys.executable, *words]


@pytest.mark.parametrize(
    ("descriptors", "connections"),
    [(None, 1_000), (50, 8), (144, 8), (256, 64), (1_024, 448), (65_536, 1_000)],
)
def test_connections_get_half_of_the_unreserved_descriptors(
    descriptors: int | None, connections: int
) -> None:
    assert connection_limit(Settings(), descriptors) == connections


def test_a_setting_overrides_it_within_the_descriptors() -> None:
    chosen = Settings(max_connections=900)
    assert connection_limit(chosen, None) == 900
    assert connection_limit(chosen, 900 + RESERVED_DESCRIPTORS) == 900
    with pytest.raises(InvalidInput, match=r"DULY_MAX_CONNECTIONS\) is 900; .* 1027 descriptors"):
        connection_limit(chosen, 899 + RESERVED_DESCRIPTORS)


RAISE = "from duly.web.serving.descriptors import raise_descriptor_limit as r; print(r(), r())"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("ulimit -Sn 256; ulimit -Hn 512", "512 512"),
        ("ulimit -n 256", "256 256"),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one(limits: str, expected: str) -> None:
    done = subprocess.run(
        limited(limits, "-c", RAISE), capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert done.stdout.strip() == expected


@contextmanager
def starving(log: Path) -> Iterator[int]:
    """Run a server that can use up its own descriptors; yield its port."""
    with log.open("w") as errors:
        process = subprocess.Popen(
            limited("ulimit -n 64", "-m", "tests.integration.http.starved"),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    assert process.stdout is not None
    try:
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.communicate(timeout=30)


def test_a_server_without_descriptors_retries_and_logs_it_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with starving(log) as port, ExitStack() as stack:
        first = stack.enter_context(closing(Client(port)))
        for tries in (3, 6, 9):
            assert first.ask("/take", "keep-alive")[0] == 200
            second = stack.enter_context(
                closing(Client(port))
            )  # the system takes it; the server cannot
            # The server keeps retrying, and meanwhile answers clients that are connected.
            while int(first.ask("/", "keep-alive")[2]) < tries:
                assert log.stat().st_size < 10_000
            assert first.ask("/give", "keep-alive")[0] == 200
            assert second.ask("/")[0] == 200
    assert log.read_text().count("http.accept_failed") == 1
    assert len(log.read_text().splitlines()) == 1
