"""Web, worker, scheduler and what they need before, as children of one process: ended together."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

PR_SET_PDEATHSIG = 1
SETTLE_SECONDS = 1.5  # a Ctrl-C reaches the children by itself; how long to wait before telling them
STOP_SECONDS = 12
RESTARTS = 5  # within RESTART_WINDOW seconds; more is not bad luck
RESTART_WINDOW = 60
LOG_LIMIT = 10 << 20  # bytes, looked at when a child starts


class ChildError(Exception):
    """A child does not stay up; the message is one sentence."""


@dataclass
class Child:
    """One of the processes, kept running and logging to its own file."""

    name: str
    command: list[str]
    environ: Mapping[str, str]
    log: Path
    reports: bool = False  # what it says on standard output is for us; else it goes to the log
    report: str = field(default="", repr=False)
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    deaths: deque[float] = field(default_factory=lambda: deque(maxlen=RESTARTS), repr=False)

    def start(self) -> None:
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".old.log"))
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE if self.reports else log,
                stderr=log,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - this process has one thread
            )
        if self.process.stdout is not None:
            os.set_blocking(self.process.stdout.fileno(), False)

    def lines(self) -> list[str]:
        """What it has reported so far; a line that is not complete yet is none."""
        if self.process is not None and self.process.stdout is not None:
            self.report += (self.process.stdout.read() or b"").decode()
        return self.report.split("\n")[:-1]

    def tend(self) -> None:
        """Start it again if it has died; raises ChildError when that has happened too often."""
        if self.process is None or self.process.poll() is None:
            return
        now = time.monotonic()
        self.deaths.append(now)
        if len(self.deaths) == RESTARTS and now - self.deaths[0] < RESTART_WINDOW:
            raise ChildError(f"The {self.name} does not stay up: {self.last_words()} (all of it: {self.log})")
        time.sleep(0.5)
        self.start()

    def last_words(self) -> str:
        with self.log.open("rb") as log:
            log.seek(max(0, self.log.stat().st_size - 4096))
            lines = log.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "it said nothing"

    def roots(self) -> list[int]:
        """The process, for whoever looks what it and its descendants do."""
        return [] if self.process is None else [self.process.pid]

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None


def stop(children: list[Child]) -> None:
    """End all of them: by themselves, else asked, else killed."""
    if _ended_within(children, SETTLE_SECONDS):
        return
    for child in children:
        if child.running and child.process is not None:
            child.process.terminate()
    if _ended_within(children, STOP_SECONDS):
        return
    for child in children:
        if child.running and child.process is not None:
            child.process.kill()
            child.process.wait()


def _ended_within(children: list[Child], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while any(child.running for child in children):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """In the child, before its program: whoever kills the parent outright ends the children too."""
    if _libc is not None:
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
