"""`python -m bench.shipped MODULE …` runs a module as the image has it: what only developers have is not there.

structlog loads `rich` and greenlets where it finds them, and Celery loads Pygments and psutil: 4 MiB.
"""

from __future__ import annotations

import runpy
import sys

LACKING = ("rich", "pygments", "greenlet", "psutil")


if __name__ == "__main__":
    for name in LACKING:
        sys.modules[name] = None  # type: ignore[assignment]  # so importing it fails
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
