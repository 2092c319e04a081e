"""Whether this container does its work, for `HEALTHCHECK`: exits 0 if so, else 1 with a sentence.

usage: python deploy/healthcheck.py web|scheduler
"""

from __future__ import annotations

import http.client
import os
import sys
import time
from pathlib import Path

LONGEST_SILENCE = 60  # seconds; the scheduler wakes every five


def web() -> str:
    """The page that says whether database and Redis answer, asked for under a name that is served."""
    served = (os.environ.get("ALLOWED_HOSTS") or "127.0.0.1").split(",")[0].strip()
    host = "127.0.0.1" if served == "*" else served.removeprefix(".")
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("PORT", "8000")), timeout=5)
    try:
        connection.request("GET", "/readyz", headers={"Host": host})
        answer = connection.getresponse()
        return "" if answer.status == 200 else f"readyz answers {answer.status}: {answer.read(200)!r}"
    except OSError as error:
        return f"the pages are not served: {error}"
    finally:
        connection.close()


def scheduler() -> str:
    """The file that the scheduler touches whenever it looks for what is due."""
    try:
        silence = time.time() - Path(os.environ["HEARTBEAT_FILE"]).stat().st_mtime
    except (KeyError, OSError) as error:
        return f"the scheduler has not begun: {error!r}"
    return "" if silence < LONGEST_SILENCE else f"the scheduler has been silent for {int(silence)} s"


if __name__ == "__main__":
    complaint = {"web": web, "scheduler": scheduler}[sys.argv[1]]()
    sys.exit(complaint or 0)
