"""A command that serves, watched by what it says."""

import re
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from threading import Condition, Thread

SECONDS_MAX = 60
STOP_SECONDS_MAX = 60


class Served:
    """A process in the background; its lines are kept as they come."""

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
        """What it said so far."""
        with self._changed:
            return "".join(self._lines)

    def wait_for(self, shown: Sequence[str], where: str) -> None:
        """Until every line has been said, in any order; `...` stands for any text."""
        wanted = [_pattern(line) for line in shown if line.strip(". ")]

        def said() -> bool:
            found = "".join(self._lines)
            return self._has_ended or all(pattern.search(found) for pattern in wanted)

        with self._changed:
            self._changed.wait_for(said, SECONDS_MAX)
            found = "".join(self._lines)
        missing = [pattern.pattern for pattern in wanted if not pattern.search(found)]
        assert not missing, f"{where}\nnever said: {missing}\nbut:\n{found}"

    def stop(self) -> int:
        """Ask it to end, and wait; gives its exit status."""
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
    """The port is another one here than the one that a reader gets."""
    words = re.sub(r"(?<=127\.0\.0\.1:)8787\b", "...", line)
    return re.compile("^" + ".*".join(map(re.escape, words.split("..."))) + " *$", re.MULTILINE)
