"""What a worker holds after a close of everybody and ten PDFs."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from bench import closing, instance, served
from bench.meter import Cost, children, family_cpu, resident
from bench.pages import MOST
from bench.result import Result
from billing.models import CloseProof, InvoiceDocument
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Tenant
from portal.dev.embedded.redis import Redis

DATABASE, DOCUMENTS, PATIENCE = "bench_worker", 10, 300  # seconds
COMMAND = (
    *("portal.celery_command", "--quiet", "worker", "--pool", "threads", "--concurrency", "2"),
    *("--without-gossip", "--without-mingle", "--include", "bench.worker_tasks"),
)


def memory() -> Result:
    """As the demo and docker-compose.yml run it: two threads in one process. Leaves the closed database in use."""
    from portal.celery import app

    instance.copy(closing.READY, DATABASE)
    tenants = Tenant.objects.count()
    with Redis(instance.HOME):
        worker = served.run(*COMMAND, environ={"DATABASE_URL": served.url_of(DATABASE)})
        try:
            began = time.perf_counter()
            app.send_task("bench.worker_tasks.close_january")
            until(lambda: CloseProof.objects.count() == tenants, worker)
            for pk in OutboxMessage.objects.order_by("pk").values_list("pk", flat=True)[:DOCUMENTS]:
                app.send_task("portal.core.outbox.tasks.consume", kwargs={"message_id": pk})
            until(lambda: InvoiceDocument.objects.count() == DOCUMENTS, worker)
            wall, spent = time.perf_counter() - began, family_cpu(worker.pid)
            size = max(resident(pid) for pid in (worker.pid, *children(worker.pid)))
        finally:
            worker.terminate()
            worker.wait()
    cost = Cost(spent, spent, wall, size)
    title = f"memory of a worker after a close and {DOCUMENTS} PDFs"
    result = Result("worker", title, DOCUMENTS, "PDFs", cost, cost, memory=(size, MOST))
    instance.use(closing.RUN)
    instance.drop(DATABASE)
    instance.use(closing.RUN)
    return result


def until(done: Callable[[], bool], worker: subprocess.Popen[bytes], *, every: float = 0.2) -> None:
    """Ask so often, in seconds, until it is done."""
    end = time.monotonic() + PATIENCE
    while not done():
        if time.monotonic() > end or worker.poll() is not None:
            raise AssertionError(f"The worker did not do it: see {instance.HOME}/other.log.")
        time.sleep(every)
