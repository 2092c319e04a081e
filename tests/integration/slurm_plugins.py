"""The plugins and the daemon of `deploy/slurm/` on a lab's Slurm, as an operator installs them."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from portal.env import ROOT
from tests.integration.agents import oldest_python
from tests.integration.slurm_lab import Lab, until

FILES = ROOT / "deploy" / "slurm"
DAEMON = FILES / "clustertab_slurm.py"
CLI_FILTER, JOB_SUBMIT = "CliFilterPlugins=cli_filter/lua", "JobSubmitPlugins=lua"
# Users of the lab's own root have other numbers there than here.
USERS_OF = """
import pwd, runpy, sys
rows = [line.split(":") for line in open(sys.argv[1])]
users = {int(row[2]): pwd.struct_passwd([*row[:2], int(row[2]), int(row[3]), *row[4:]]) for row in rows}
pwd.getpwuid = users.__getitem__
pwd.getpwnam = {user.pw_name: user for user in users.values()}.__getitem__
sys.argv[:] = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Daemon:
    """clustertab_slurm.py beside a lab. It can be killed, stopped and started again."""

    def __init__(self, lab: Lab, url: str, secret: str, sections: Mapping[str, Mapping[str, Any]]) -> None:
        self.lab, self.home = lab, lab.dir / "clustertab"
        self.home.mkdir(exist_ok=True)
        self.home.chmod(0o755)
        key = self.home / "key"
        key.touch(0o600)
        key.write_text(secret + "\n")
        self.sections = {"portal": {"url": url, "key_file": key}} | {
            name: self._paths(name) | dict(values) for name, values in sections.items()
        }
        self.process: subprocess.Popen[bytes] | None = None

    def _paths(self, section: str) -> dict[str, Any]:
        paths = {"ask": ("socket", "ask.sock"), "blocked": ("file", "blocked-accounts")}
        name, file = paths.get(section, ("state_file", "queue.json"))
        return {name: self.home / file}

    @property
    def config(self) -> Path:
        return self.home / "clustertab-slurm.conf"

    @property
    def log(self) -> str:
        return (self.home / "log").read_text()

    def write(self, **ask: str) -> None:
        """The configuration, with other settings of [ask] than before."""
        if ask:
            self.sections["ask"] = {**self.sections["ask"], **ask}
        lines = [
            line
            for section, values in self.sections.items()
            for line in (f"[{section}]", *(f"{name} = {value}" for name, value in values.items()))
        ]
        self.config.write_text("\n".join(lines) + "\n")
        self.config.chmod(0o644)

    def command(self, *options: str) -> list[str]:
        command = [str(DAEMON), "--config", str(self.config), *options]
        if not self.lab.suite:
            return [oldest_python(), "-W", "error", *command]
        root = Path(os.environ.get("SLURM_LAB_ROOTS", "/var/cache/slurm-lab")) / self.lab.suite
        return [oldest_python(), "-W", "error", "-c", USERS_OF, str(root / "etc" / "passwd"), *command]

    def start(self) -> None:
        self.write()
        checked = subprocess.run(
            self.command("--check"), env=self.lab.environ, capture_output=True, text=True
        )
        assert checked.returncode == 0, checked.stderr
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(self.command(), env=self.lab.environ, stdout=log, stderr=log)
        if "ask" in self.sections:
            until(self._answers)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log
        ask = ["curl", "-s", "--unix-socket", str(self.home / "ask.sock"), "-d", "key=1", "http://x/ask"]
        return subprocess.run(ask, capture_output=True, text=True).stdout.startswith("yes")

    def sends(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@contextmanager
def plugins(lab: Lab, *lines: str) -> Iterator[Path]:
    """Within the block slurm.conf has these lines, and the plugins lie beside it; their directory of files."""
    etc, home = lab.dir / "etc", lab.dir / "clustertab"
    local = etc / "slurm.local"
    for name in ("cli_filter.lua", "job_submit.lua"):
        text = (FILES / name).read_text()
        text = text.replace("/etc/clustertab-slurm", str(home)).replace("/run/clustertab-slurm", str(home))
        (etc / name).write_text(text)
        (etc / name).chmod(0o644)
    local.write_text("".join(f"{line}\n" for line in lines))
    try:
        _restart(lab)
        yield home
    finally:
        local.unlink()
        _restart(lab)
        for name in ("cli_filter.lua", "job_submit.lua"):
            (etc / name).unlink()
        shutil.rmtree(home, ignore_errors=True)


def _restart(lab: Lab) -> None:
    lab.stop("slurmctld")
    lab.start()


@contextmanager
def a_daemon(lab: Lab, url: str, secret: str, **sections: Mapping[str, Any]) -> Iterator[Daemon]:
    daemon = Daemon(lab, url, secret, sections)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.kill()


class Attempt:
    """What became of a submission: exit code, number of the job, what ClusterTab says to the user, how long it took."""

    def __init__(self, lab: Lab, user: str, *options: object, script: str = "sleep 300") -> None:
        command = ["env", f"SLURM_LAB_AS={user}"]
        if not lab.suite:
            command += ["setpriv", "--reuid", user, "--regid", user, "--init-groups"]
        command += [
            "sbatch",
            "--parsable",
            "-D",
            str(lab.dir / "work"),
            "-o",
            "/dev/null",
            *map(str, options),
        ]
        began = time.monotonic()
        done = subprocess.run(
            command,
            env=lab.environ,
            input=f"#!/bin/bash\n{script}\n",
            capture_output=True,
            text=True,
            timeout=120,
        )
        self.seconds = time.monotonic() - began
        self.code, self.stderr = done.returncode, done.stderr
        self.job = done.stdout.strip().partition(";")[0]

    @property
    def message(self) -> str:
        """What ClusterTab says to the user."""
        return "\n".join(re.findall(r"ClusterTab(?:: | does not answer: ).*", self.stderr))


def field(lab: Lab, job: str, name: str) -> str:
    """One field of `scontrol show job`."""
    text = lab.slurm("scontrol", "show", "job", job)
    match = re.search(rf"^\s*{name}=(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else ""
