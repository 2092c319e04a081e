"""What the embedded PostgreSQL and Redis have in common.

A peer belongs to a home directory, not to the process that happened to start it. Every process
that uses it holds a shared lock on `users`; the last one out stops it. The kernel gives locks
back however their holder ends, so a `kill -9` anywhere leaves nothing that a next start cannot use.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from portal.dev.embedded.host import (
    EmbeddedError,
    account,
    explain,
    is_full,
    private_directory,
    processes_at,
    unprivileged,
)
from portal.instance import full_disk, run_directory
from portal.ops.movement import Movement, Reading, cpu_seconds, log_size

STOP_SECONDS = 30


@dataclass
class Peer(ABC):
    """A server process of our own under `home`. Use as `with peer:`; nesting and sharing are fine."""

    home: Path
    users: IO[bytes] | None = field(default=None, init=False, repr=False)
    child: subprocess.Popen[bytes] | None = field(default=None, init=False, repr=False)

    name: str = field(default="", init=False)
    program: tuple[str, ...] = field(default=(), init=False)  # what /proc may say it runs
    socket_name: str = field(default="", init=False)

    @property
    def base(self) -> Path:
        return self.home / self.name

    @property
    def data(self) -> Path:
        """Where the server's process stands, which is how it is recognised."""
        return self.base / "data"

    @property
    def log(self) -> Path:
        return self.base / "log"

    @property
    def run(self) -> Path:
        return run_directory(self.base, self.socket_name)

    @property
    def socket(self) -> Path:
        return self.run / self.socket_name

    @abstractmethod
    def url(self) -> str:
        """Its address, without starting it."""

    @abstractmethod
    def prepare(self) -> None:
        """Make what a first start needs; called under the lock, with the server down."""

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def ready(self) -> bool: ...

    def main_process(self) -> int | None:
        """The process to signal, if it lives."""
        return next(iter(self.processes()), None)

    def configuration(self) -> bytes:
        """What the server reads on its standard input."""
        return b""

    def __enter__(self) -> Self:
        private_directory(self.base)
        with self.locked():
            if self.users is None:
                self.users = (self.base / "users").open("ab")
                fcntl.flock(self.users, fcntl.LOCK_SH)
            try:
                self.ensure()
            except BaseException:
                self.users.close()
                self.users = None
                raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.users is None:
            return
        with self.locked():
            try:
                fcntl.flock(self.users, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.stop()
            except BlockingIOError:
                if self.child is not None:
                    self.child.returncode = 0  # somebody else still uses it, and will stop it
            finally:
                self.users.close()
                self.users = None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """One process at a time starts or stops the peer."""
        with (self.base / "lock").open("ab") as lock:
            self._take(lock)
            yield

    def processes(self) -> list[int]:
        return processes_at(self.data, self.program)

    def ensure(self) -> None:
        """Start the server unless it answers; after a crash, sweep away what it left."""
        if self._answers():
            return
        self._sweep()
        private_directory(self.run)
        try:
            self.prepare()
            self._launch()
        except OSError as error:
            raise EmbeddedError(explain(error, self.home, self.name)) from error

    def stop(self) -> None:
        """Stop in an orderly way; one that does not is killed, which its own recovery copes with."""
        if (pid := self.main_process()) is not None:
            _signal(pid, signal.SIGINT)
        if not _gone_within(self.processes, STOP_SECONDS):
            self._sweep()
        self._reap()
        if self.run.parent != self.base:
            shutil.rmtree(self.run, ignore_errors=True)

    def _sweep(self) -> None:
        """No process and no socket of an earlier life may be in the way of the next one."""
        _gone_within(self.processes, 5 if self.main_process() is None else 0)
        for pid in self.processes():
            _signal(pid, signal.SIGKILL)
        if not _gone_within(self.processes, 10):
            raise EmbeddedError(f"An old {self.name} process of {self.home} does not end.")
        self._reap()
        for left in self.run.glob(f"{self.socket_name}*"):
            left.unlink(missing_ok=True)

    def _reap(self) -> None:
        """Bury the process if it was ours; init does it for the others."""
        if self.child is not None:
            self.child.wait()
            self.child = None

    def _launch(self) -> None:
        self.log.touch(mode=0o600)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [*unprivileged(), *self.command()],
                cwd=self.data,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,  # a Ctrl-C is for us; we stop it when its users are done
                **account(),
            )
            if process.stdin is not None:
                with process.stdin as stdin:
                    stdin.write(self.configuration())
        movement = Movement(self._reading)
        while not self.ready():
            if process.poll() is not None or movement.has_ended():
                raise EmbeddedError(self._failure())
            time.sleep(0.01)
        self.child = process

    def _answers(self) -> bool:
        """Whether a server that runs comes to answer: recovery after a crash may take its time."""
        movement = Movement(self._reading)
        while self.main_process() is not None and not movement.has_ended():
            if self.ready():
                return True
            time.sleep(0.02)
        return False

    def _take(self, lock: IO[bytes]) -> None:
        """The lock, however long its holder works on starting or stopping the server."""
        movement = Movement(self._reading)
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if movement.has_ended():
                    raise EmbeddedError(
                        f"Another process has been starting {self.base} for too long."
                    ) from None
                time.sleep(0.02)

    def _reading(self) -> Reading:
        """Also of the programs that set the server up, which run beside its data."""
        working = {*self.processes(), *processes_at(self.base, ("initdb", *self.program))}
        return Reading(cpu_seconds(working), log_size(self.log))

    def _failure(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines() or ["nothing in its log"]
        if is_full(self.base, "\n".join(lines[-20:])):
            return full_disk(self.home)
        return f"The embedded {self.name} does not start: {lines[-1]} (all of it: {self.log})"


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _gone_within(processes: Callable[[], list[int]], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while processes():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
