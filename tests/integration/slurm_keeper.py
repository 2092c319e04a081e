"""Keeps the Slurm labs of one test run, in a process of its own: `slurm_keeper.py SCRIPT`, a plan on standard input.

It starts them one after the other beside whatever is tested meanwhile, writes into a lab's file how each step went,
and purges them all when its standard input closes: when the tests are over, or when their process is gone, however
it went.
"""

import json
import os
import select
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

STEPS = ("install", "start", "jobs")


def main() -> None:
    script = sys.argv[1]
    labs = json.loads(sys.stdin.readline())
    for lab in labs:
        for step in lab["steps"]:
            if select.select([sys.stdin], [], [], 0)[0] or not run(script, step, lab):
                break
    sys.stdin.read()
    for lab in labs:
        subprocess.run(
            [script, "purge", lab["dir"]], env=environ(lab), stdin=subprocess.DEVNULL, capture_output=True
        )
        shutil.rmtree(lab["dir"], ignore_errors=True)


def run(script: str, step: str, lab: dict[str, Any]) -> bool:
    done = subprocess.run(
        [script, step, lab["dir"]], env=environ(lab), stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
    )  # fmt: skip
    try:
        with Path(lab["progress"]).open("a", encoding="utf-8") as file:
            file.write(json.dumps([step, done.returncode, done.stdout[-2000:]]) + "\n")
    except OSError:  # who waits for it is gone, and so is its directory
        return False
    return done.returncode == 0


def environ(lab: dict[str, Any]) -> dict[str, str]:
    own: dict[str, str] = lab["environ"]
    return os.environ | own


if __name__ == "__main__":
    main()
