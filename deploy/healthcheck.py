"""Whether a process here does its work, for probes and health checks: exits 0 if so, else 1 with a sentence.

usage: python -m deploy.healthcheck web|live|scheduler|worker KIND

`web`: pages can be served. `live`: the web process answers, whatever database and Redis do. `worker`: the one on this
host with that `--hostname KIND@%h`.
"""

from __future__ import annotations

import http.client
import os
import socket
import sys
import time
from pathlib import Path

LONGEST_SILENCE = 60  # seconds; the scheduler wakes every five


def web() -> str:
    """The page that says whether database and Redis answer."""
    return _page("/readyz")


def live() -> str:
    """The page that asks no other server: a slow database is no reason to restart the pages."""
    return _page("/healthz")


def _page(path: str) -> str:
    """What is wrong with the answer to a request under a name that is served."""
    served = (os.environ.get("ALLOWED_HOSTS") or "127.0.0.1").split(",")[0].strip()
    host = "127.0.0.1" if served == "*" else served.removeprefix(".")
    connection = http.client.HTTPConnection("127.0.0.1", int(os.environ.get("PORT", "8000")), timeout=5)
    try:
        connection.request("GET", path, headers={"Host": host})
        answer = connection.getresponse()
        return "" if answer.status == 200 else f"{path} answers {answer.status}: {answer.read(200)!r}"
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


def worker(kind: str) -> str:
    """A ping through Redis, to this worker alone: without Django, which would take three times the CPU."""
    from celery import Celery
    from kombu.exceptions import OperationalError
    from redis import RedisError

    from portal.env import broker

    name = f"{kind}@{socket.gethostname()}"
    options = {"socket_connect_timeout": 2, "socket_timeout": 5}
    with Celery(broker=broker(os.environ["REDIS_URL"]), broker_transport_options=options) as celery:
        try:
            answers = celery.control.ping(destination=[name], timeout=3)
        except (OperationalError, RedisError) as error:
            return f"Redis does not answer: {error}"
    return "" if answers else f"{name} does not answer"


CHECKS = {"web": web, "live": live, "scheduler": scheduler, "worker": worker}

if __name__ == "__main__":
    sys.exit(CHECKS[sys.argv[1]](*sys.argv[2:]) or 0)
