"""Operators whose commands are real processes: they can be at work together, and be killed."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from portal.env import ROOT

PATIENCE = 300  # seconds until an operator is given up

# Loads the product once, then does each command in a process of its own, as a shell would. `task NAME JSON` does what a
# worker does for that task.
SHELL = """
import json, os, sys, traceback
import django
django.setup()
from django.core.management import call_command
from django.utils.module_loading import import_string
from billing.invoicing import month_close
from billing.rating import ingest
print("ready", flush=True)
for line in sys.stdin:
    pid = os.fork()
    if not pid:
        try:
            words = json.loads(line)
            if words[0] == "task":
                import_string(words[1])(**json.loads(words[2] if words[2:] else "{}"))
            else:
                call_command(*words, stdout=open(os.devnull, "w"))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


class Operator:
    """`with Operator(database_url) as op: op.does("prove")`"""

    def __init__(self, database_url: str) -> None:
        environ = os.environ | {"DJANGO_SETTINGS_MODULE": "portal.settings", "DATABASE_URL": database_url}
        self._shell = subprocess.Popen(
            [sys.executable, "-c", SHELL],
            env=environ, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._watch = threading.Timer(PATIENCE, self._shell.kill)
        self._watch.start()

    def __enter__(self) -> Self:
        assert self._line() == "ready"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._watch.cancel()
        self._shell.kill()
        self._shell.communicate()

    def begins(self, *command: object) -> int:
        """Start the command; its process id."""
        assert self._shell.stdin is not None
        self._shell.stdin.write(json.dumps([str(word) for word in command]) + "\n")
        self._shell.stdin.flush()
        return int(self._line())

    def ends(self) -> int:
        """Wait for the command; its exit code, negative for a signal."""
        return int(self._line())

    def does(self, *command: object) -> float:
        """Run the command to its end; the seconds that it took."""
        began = time.monotonic()
        self.begins(*command)
        assert self.ends() == 0
        return time.monotonic() - began

    def is_killed_doing(
        self,
        *command: object,
        count: Callable[[], int],
        at: int,
        after: float = 0,
        codes: tuple[int, ...] = (0,),
    ) -> bool:
        """Kill -9 the command's process that many seconds after `count` came to `at`.

        False if it was done by then, with one of these exit codes. Rows are waited for, since seconds differ between
        machines.
        """
        pid = self.begins(*command)
        while count() < at and Path(f"/proc/{pid}").exists():
            time.sleep(0.002)
        time.sleep(after)
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        code = self.ends()
        assert code in (*codes, -signal.SIGKILL)
        return code == -signal.SIGKILL

    def _line(self) -> str:
        assert self._shell.stdout is not None
        line = self._shell.stdout.readline().strip()
        assert line, "the operator's shell is gone"
        return line


def accounting(path: Path, *, rows: int, accounts: int) -> Path:
    """An sacct export of March and April 2024, always the same: short and long jobs, some of which still run."""
    dice = random.Random(20_240_301)
    lines = ["JobIDRaw|JobID|User|Account|Partition|Submit|Start|End|ElapsedRaw|Suspended|State|AllocTRES"]
    month = 31 * 86_400
    for job in range(1, rows + 1):
        start = dice.randrange(month)
        length = dice.choice((0, 37, 600, 5_000, 90_000, 500_000))
        running = dice.random() < 0.01
        gpus, model = dice.randrange(5), dice.choice(("a100", "h100"))
        suspended = dice.randrange(length // 4 + 1) if dice.random() < 0.05 and not running else 0
        lines.append(
            f"{job}|{job}|user{job % 17}|acc{job % accounts:02d}|gpu|{_at(start)}|{_at(start)}"
            f"|{'Unknown' if running else _at(start + length)}|{length}|{suspended // 3600:02d}:"
            f"{suspended // 60 % 60:02d}:{suspended % 60:02d}|{'RUNNING' if running else 'COMPLETED'}"
            f"|cpu={dice.randrange(1, 65)},mem={dice.randrange(1, 257)}G,gres/gpu={gpus},gres/gpu:{model}={gpus}"
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def _at(second: int) -> str:
    moment = time.gmtime(1_709_251_200 + second)  # 2024-03-01
    return time.strftime("%Y-%m-%dT%H:%M:%S", moment)
