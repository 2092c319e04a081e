"""How the pages are served, in the demo and in containers."""

import os
from pathlib import Path

from gunicorn.workers.base import Worker

MEMORY = "/dev/shm"  # noqa: S108 - a private name is made in it

wsgi_app = "portal.wsgi"
bind = f"{os.environ.get('BIND', '127.0.0.1')}:{os.environ.get('PORT', '8000')}"
worker_class = "gthread"
workers = int(os.environ.get("WEB_CONCURRENCY", "1"))
# Several share what is loaded: forked from a process that has loaded it, each takes some 40 MiB less. One alone would
# have that process beside it for nothing.
preload_app = workers > 1
threads = 8  # as many as the connections that portal/wsgi.py lets a process pool
worker_tmp_dir = MEMORY if Path(MEMORY).is_dir() else None  # heartbeats: on a busy disk they look like a hang
timeout = 60  # seconds
graceful_timeout = 10
max_requests = 20_000
max_requests_jitter = 2_000
accesslog = None  # portal.ops.logs writes one line a request, with its id
errorlog = "-"
loglevel = "warning"
control_socket_disable = True  # it would write below $HOME, which need not exist


def post_worker_init(worker: Worker) -> None:
    """Each process looks at the schema by itself, also one that takes another's place: no connection crosses a fork."""
    if worker.app.app_uri == wsgi_app:  # the bench serves another one
        from billing.sealed_months.start import look_at_files
        from portal.ops.schema import refuse_unmigrated

        # Its code 3 ends all processes. Without a database one waits, and ends alone so that another takes its place,
        # before it looks like a hang: a try takes ten seconds.
        refuse_unmigrated(wait=worker.cfg.timeout - 20)
        look_at_files()
