"""The worker's and the scheduler's application: `celery -A portal.celery worker`, `... beat`."""

from __future__ import annotations

import os
from typing import Any

import celery
import structlog
from celery import Celery, signals
from celery.beat import Scheduler
from django.conf import settings

from portal.schedule import SCHEDULE

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# `./run check` makes the checks; here they would load all pages, five MiB of them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")


class Task(celery.Task[Any, Any]):
    """What a task writes into the history says which one it was, and so does what it logs.

    As each may run twice, one that needs files of sealed months from a store runs again once they are fetched.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from clusters.month_file_fetches import with_files
        from portal.core.audit import acting_as  # needs the settings

        names = {"task_id": self.request.id, "task": self.name}
        with structlog.contextvars.bound_contextvars(**names), acting_as(through=f"task {self.name}"):
            run = super().__call__
            return with_files(lambda: run(*args, **kwargs))


app = Celery("clustertab", task_cls=Task)
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = SCHEDULE
app.conf.beat_scheduler = "portal.celery:TableScheduler"
app.conf.beat_max_loop_interval = 5
app.autodiscover_tasks()
app.autodiscover_tasks(["billing.sealed_months", "billing.reports"])  # no applications of their own


class TableScheduler(Scheduler):
    """In memory: the table is the only truth, and there is no file to corrupt or to find read-only.

    Each round touches HEARTBEAT_FILE, if there is one: a health check sees by it that it lives.
    """

    def tick(self, *args: Any, **kwargs: Any) -> float:
        if settings.HEARTBEAT_FILE is not None:
            settings.HEARTBEAT_FILE.touch()
        return float(super().tick(*args, **kwargs))


@signals.setup_logging.connect
def _logs(**_: Any) -> None:
    """The settings have configured logging; Celery leaves it alone because somebody answers here."""


@signals.worker_init.connect
@signals.beat_init.connect
def _need_schema(**_: Any) -> None:
    from portal.ops.schema import refuse_unmigrated

    refuse_unmigrated()


@signals.worker_init.connect
def _look_at_sealed_files(**_: Any) -> None:
    """After the schema: receivers are called in the order in which they were connected."""
    from billing.sealed_months.start import look_at_files

    look_at_files()
