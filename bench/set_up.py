"""The first start of the demo, from a fresh copy of the project to a page, and the second one."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from bench.instance import HOME
from bench.meter import Cost, measure, own_cpu
from bench.result import Result
from bench.scale import Scale
from portal.dev.embedded.host import EmbeddedError
from portal.dev.embedded.postgres import Postgres
from portal.dev.embedded.redis import Redis
from portal.env import ROOT

UNTRACKED = (".git", ".venv", ".venv.lock", "var", "__pycache__", ".*_cache", ".hypothesis", "staticfiles")
PLACE = HOME / "set-up"
FIRST, SECOND = 30, 8  # seconds of wall time on two idle cores
STEP = re.compile(r"^([a-z ]+?) +(\d+\.\d) s$", re.MULTILINE)
# What bench.instance sets; the rest may say how packages are fetched here.
OF_THE_BENCH = {
    "CLUSTERTAB_HOME", "DATABASE_URL", "DJANGO_SETTINGS_MODULE", "SECRET_KEY", "CLUSTERTAB_SECRET_KEYS", "LOG_LEVEL",
}  # fmt: skip
GREETING = "ClusterTab is at"


def works(scale: Scale, postmaster: int, names: set[str]) -> Iterator[Result]:
    del scale  # there is one size of it
    if "set-up" not in names:
        return
    project = PLACE / "project"
    shutil.copytree(ROOT, project, ignore=shutil.ignore_patterns(*UNTRACKED))
    for title, within in (("the first start", FIRST), ("the second start", SECOND)):
        cost, steps = _start(project)
        limit = measure(_bare, postmaster)
        yield Result(
            "set-up",
            f"the demo, {title}",
            1,
            "starts",
            cost,
            limit,
            by_wall=True,
            within=within,
            detail=steps,
        )


def _start(project: Path) -> tuple[Cost, str]:
    """Until a page could be served; and the seconds of each step as it tells them. Raises EmbeddedError."""
    environ = {name: value for name, value in os.environ.items() if name not in OF_THE_BENCH}
    output = PLACE / "output"
    begin, used = time.perf_counter(), own_cpu()
    with output.open("wb") as file:
        demo = subprocess.Popen(
            [project / "run", "demo", "--port", "8765"], env=environ, stdout=file, stderr=file
        )
    while demo.poll() is None and GREETING not in output.read_text():
        time.sleep(0.02)
    wall = time.perf_counter() - begin
    demo.terminate()
    demo.wait()  # its own processes have ended then, and count
    text = output.read_text()
    if GREETING not in text:
        raise EmbeddedError(f"The demo does not start: {text.strip().splitlines()[-1]}")
    steps = ", ".join(f"{name} {seconds}" for name, seconds in STEP.findall(text))
    return Cost(own_cpu() - used, own_cpu() - used, wall, 0), steps


def _bare() -> None:
    """The limit: what nobody can do without. Both servers, empty, and one process that has loaded Django."""
    home = PLACE / "bare"
    home.mkdir(exist_ok=True)
    with Postgres(home), Redis(home):
        subprocess.run([sys.executable, "-c", "import django; django.setup()"], cwd=ROOT, check=True)
