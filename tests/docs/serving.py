"""Run a command that serves, and wait for lines of its output."""

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, Thread

SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


class Served:
    """A process in the background, with its output so far."""

    def __init__(self, command: str, folder: Path, environment: dict[str, str]) -> None:
        self._lines: list[str] = []
        self._changed = Condition()
        self._has_ended = False
        self._running = subprocess.Popen(
            ["sh", "-c", f"exec {command}"],  # noqa: S607
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """Return the output so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, shown: Sequence[str], where: str) -> None:
        """Wait until every line has been printed, in any order; `...` matches any text."""
        wanted = [_pattern(line) for line in shown if line.strip(". ")]

        def is_done() -> bool:
            found = "".join(self._lines)
            return self._has_ended or all(pattern.search(found) for pattern in wanted)

        with self._changed:
            self._changed.wait_for(is_done, SECONDS_MAX)
            found = "".join(self._lines)
        missing = [pattern.pattern for pattern in wanted if not pattern.search(found)]
        assert not missing, f"{where}\nnot printed: {missing}\noutput:\n{found}"

    def stop(self) -> int:
        """Stop the process and return its exit status."""
        if self._running.poll() is None:
            self._running.send_signal(signal.SIGTERM)
        try:
            return self._running.wait(STOP_SECONDS_MAX)
        finally:
            self._running.kill()
            self._reader.join()
            assert self._running.stdout is not None
            self._running.stdout.close()

    def _read(self) -> None:
        assert self._running.stdout is not None
        for line in self._running.stdout:
            with self._changed:
                self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()


def _pattern(line: str) -> re.Pattern[str]:
    """Return the pattern of a line; the port may differ from the one in the document."""
    words = re.sub(r"(?<=127\.0\.0\.1:)8787\b", "...", line)
    return re.compile("^" + ".*".join(map(re.escape, words.split("..."))) + " *$", re.MULTILINE)
