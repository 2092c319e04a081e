"""Nothing that a test process started outlives it, however it ends.

Whatever it starts carries a mark in its environment. A keeper waits for the end of a pipe that the test process holds
and the kernel closes for it, and then ends all that carries the mark, and what stands in its directories. It holds the
lock of their slot too, so that no other process takes them before it is done.
`python keepers.py DIRECTORY ...` is the keeper; it uses the standard library alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "CLUSTERTAB_TEST_HOME"  # of the test process that started it
OWN = "CLUSTERTAB_TEST_KEEPER"  # carried by what ends by itself when its test process is gone


def outliving() -> dict[str, str]:
    """The environment of what cleans up after a test process, and therefore outlives it."""
    return {name: value for name, value in os.environ.items() if name != MARK} | {OWN: "1"}


def keep(*directories: Path, lock: int) -> None:
    """Mark what this process starts from now on, and have it ended when this process is over.

    The first directory is this process's own and is deleted; whatever stands in any of them is ended too. Who has the
    open lock may use them: we and the keeper, whoever ends last.
    """
    command = [sys.executable, __file__, *map(str, directories)]
    keeper = subprocess.Popen(
        command, stdin=subprocess.PIPE, start_new_session=True, env=outliving(), pass_fds=(lock,)
    )
    _pipes.append(keeper)
    os.environ.pop(OWN, None)
    os.environ[MARK] = str(directories[0])


_pipes: list[subprocess.Popen[bytes]] = []  # kept open until this process ends


def release() -> None:
    """This process is about to end; wait until everything is tidy."""
    while _pipes:
        keeper = _pipes.pop()
        assert keeper.stdin is not None
        keeper.stdin.close()
        keeper.wait(60)


@dataclass(frozen=True, slots=True)
class Process:
    parent: int
    began: str  # in ticks of the machine's clock: with the id it names a process for ever
    environ: frozenset[bytes]
    directory: Path

    def is_in(self, directories: Collection[Path]) -> bool:
        return any(self.directory.is_relative_to(directory) for directory in directories)


def processes() -> dict[int, Process]:
    """All that we may look at, but for this one."""
    table = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            environ = frozenset((entry / "environ").read_bytes().split(b"\0"))
            state = (entry / "stat").read_text().rpartition(")")[2].split()
            directory = (entry / "cwd").readlink()
        except OSError:
            continue  # it has ended, or is not ours
        table[int(entry.name)] = Process(int(state[1]), state[19], environ, directory)
    return table


def with_children(first: set[int], among: Mapping[int, Process]) -> set[int]:
    """These and all that they started: a server may write over its environment, and is known by its parent then."""
    pids = set(first)
    while more := {pid for pid, process in among.items() if process.parent in pids} - pids:
        pids |= more
    return pids


def orphans(directories: Sequence[Path]) -> set[int]:
    """What is to be ended after the test process of these directories."""
    mark, own = f"{MARK}={directories[0]}".encode(), f"{OWN}=1".encode()
    among = {pid: process for pid, process in processes().items() if own not in process.environ}
    return with_children(
        {pid for pid, process in among.items() if mark in process.environ or process.is_in(directories)},
        among,
    )


def main(directories: Sequence[Path]) -> None:
    sys.stdin.buffer.read()
    end = time.monotonic() + 30
    while (pids := orphans(directories)) and time.monotonic() < end:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
    shutil.rmtree(directories[0], ignore_errors=True)


if __name__ == "__main__":
    main([Path(word) for word in sys.argv[1:]])
