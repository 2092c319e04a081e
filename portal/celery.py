"""The worker's and the scheduler's application: `celery -A portal.celery worker`, `... beat`."""

from __future__ import annotations

import os
from typing import Any

import structlog
from celery import Celery, signals
from celery.beat import Scheduler
from django.conf import settings

from portal.schedule import SCHEDULE

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
# `migrate` makes the checks before any worker starts; here they would load all pages, five MiB of them.
os.environ.setdefault("CELERY_SKIP_CHECKS", "1")

app = Celery("clustertab")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.conf.beat_schedule = SCHEDULE
app.conf.beat_scheduler = "portal.celery:TableScheduler"
app.conf.beat_max_loop_interval = 5
app.autodiscover_tasks()


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


@signals.task_prerun.connect
def _bind(task_id: str, task: Any, **_: Any) -> None:
    structlog.contextvars.bind_contextvars(task_id=task_id, task=task.name)


@signals.task_postrun.connect
def _unbind(**_: Any) -> None:
    structlog.contextvars.unbind_contextvars("task_id", "task")
