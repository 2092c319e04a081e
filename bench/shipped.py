"""`python -m bench.shipped MODULE …` runs a module as the image has it: what only developers have is not there.

structlog loads `rich` and greenlets where it finds them, and Celery loads Pygments and psutil: 4 MiB. A process that
compiles what it imports keeps 15 to 20 MiB of the compiler's memory, and in the image everything is compiled.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
from functools import cache

from portal.env import ROOT

LACKING = ("rich", "pygments", "greenlet", "psutil")
OURS = ("portal", "billing", "clusters")


@cache
def compiled() -> dict[str, str]:
    """The environment of a process that finds all of it compiled: a minute the first time, then seconds."""
    bytecode = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(ROOT / "var" / "bytecode")}
    command = [sys.executable, "-m", "compileall", "-qq", sysconfig.get_path("purelib"), *OURS]
    # Some libraries bring files for other versions of Python: those it leaves out, and says so by its exit code.
    subprocess.run(command, cwd=ROOT, env={**os.environ, **bytecode}, check=False)
    return bytecode


if __name__ == "__main__":
    for name in LACKING:
        sys.modules[name] = None  # type: ignore[assignment]  # so importing it fails
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
