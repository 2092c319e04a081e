"""What the machine allows the embedded servers: directories, accounts, processes, space."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from portal.instance import full_disk

NOBODY = 65534
LITTLE_SPACE = 1 << 20  # bytes


class EmbeddedError(Exception):
    """The peer cannot run here; the message is one sentence for the person at the terminal."""


def private_directory(path: Path) -> None:
    """Make `path` ours alone, or refuse: in a temporary directory a stranger may have been first."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        path_stat = path.lstat()
        if not stat.S_ISDIR(path_stat.st_mode) or path_stat.st_uid not in {os.geteuid(), nobody_if_needed()}:
            raise EmbeddedError(f"{path} is not a directory of ours; remove it.")
        path.chmod(0o700)
        if (user := nobody_if_needed()) is not None:
            os.chown(path, user, -1)
    except OSError as error:
        raise EmbeddedError(explain(error, path, "instance")) from error


def explain(error: OSError, path: Path, name: str) -> str:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return full_disk(path)
    return f"The embedded {name} cannot use {path}: {error.strerror or error}."


def is_full(path: Path, output: str) -> bool:
    """Whether a program that wrote below `path` and said `output` failed for want of space."""
    is_reported = "No space left" in output or "could not extend file" in output
    return is_reported or shutil.disk_usage(path).free < LITTLE_SPACE


@cache
def _namespaces() -> bool:
    tool = shutil.which("unshare")
    probe = [tool or "", "--user", f"--map-user={NOBODY}", "true"]
    return tool is not None and subprocess.run(probe, capture_output=True).returncode == 0


def unprivileged() -> list[str]:
    """PostgreSQL refuses root: a user namespace in which we are nobody, where the kernel allows one."""
    if os.geteuid() != 0 or not _namespaces():
        return []
    return ["unshare", "--user", f"--map-user={NOBODY}", "--"]


def nobody_if_needed() -> int | None:
    """As root without namespaces, the account that owns and runs the servers instead."""
    return NOBODY if os.geteuid() == 0 and not _namespaces() else None


def account() -> dict[str, Any]:
    """That account, as subprocess wants to be told: none of root's groups come along."""
    user = nobody_if_needed()
    return {} if user is None else {"user": user, "group": user, "extra_groups": []}


def processes_at(directory: Path, programs: tuple[str, ...]) -> list[int]:
    """Processes that run one of `programs` in `directory`; zombies have neither and do not count."""
    pids = []
    where = str(directory.resolve())
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            if str((entry / "cwd").readlink()) != where:
                continue
            image = (entry / "exe").readlink().name.removesuffix(" (deleted)")
        except OSError:
            continue
        if image.startswith(programs):
            pids.append(int(entry.name))
    return sorted(pids)
