"""The columns of the list of jobs that a person can choose, and the choice as it stands in the address."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final
from zoneinfo import ZoneInfo

from django.http import QueryDict
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.queries.job_lists import waited
from billing.queries.jobs import Job
from portal.web import format as say
from portal.web.badges import job_badge
from portal.web.form_input import Option


@dataclass(frozen=True, slots=True)
class Column:
    label: str
    text: Callable[[Job, ZoneInfo], str]
    is_number: bool = False


@dataclass(frozen=True, kw_only=True)
class JobCell:
    label: str
    text: str
    is_number: bool


def _gpus(job: Job, zone: ZoneInfo) -> str:
    del zone
    row = job.row
    return say.gpus(row.gpus, row.gpu_model, row.mig_profile, Fraction(row.share_num, row.share_den))


COLUMNS: Final[Mapping[str, Column]] = {
    "name": Column(gettext_noop("Name"), lambda job, _zone: job.row.name),
    "user": Column(gettext_noop("User"), lambda job, _zone: job.row.user),
    "project": Column(gettext_noop("Project"), lambda job, _zone: job.row.project.name),
    "account": Column(gettext_noop("Account"), lambda job, _zone: job.row.account),
    "cluster": Column(gettext_noop("Cluster"), lambda job, _zone: job.row.cluster),
    "queue": Column(gettext_noop("Queue"), lambda job, _zone: job.row.queue),
    "qos": Column(gettext_noop("QOS"), lambda job, _zone: job.row.qos),
    "gpus": Column(gettext_noop("GPUs"), _gpus),
    "submitted": Column(gettext_noop("Submitted"), lambda job, zone: say.at_second(job.row.submitted, zone)),
    "started": Column(gettext_noop("Started"), lambda job, zone: say.at_second(job.row.started, zone)),
    "ended": Column(gettext_noop("Ended"), lambda job, zone: say.at_second(job.row.ended, zone)),
    "waited": Column(gettext_noop("Waited"), lambda job, _zone: _duration(waited(job.row)), is_number=True),
    "duration": Column(gettext_noop("Duration"), lambda job, _zone: _duration(job.duration), is_number=True),
    "state": Column(gettext_noop("State"), lambda job, _zone: job_badge(job.row.state).label),
    "gpu-hours": Column(
        gettext_noop("GPU-hours"),
        lambda job, _zone: say.hours(job.gpu_seconds) if job.row.gpus else "",
        is_number=True,
    ),
}
"""Between the job's number and its cost, which always stand."""

USUAL: Final = ("name", "user", "project", "gpus", "started", "duration", "state", "gpu-hours")


def _duration(seconds: int | None) -> str:
    return "" if seconds is None else say.duration(seconds)


def read_columns(query: QueryDict) -> list[str]:
    """Those that the address names, in the order of COLUMNS; empty: the usual ones."""
    names = [name for name in COLUMNS if name in query.getlist("col")]
    return [] if tuple(names) == USUAL else names


def column_options(names: Sequence[str]) -> list[Option]:
    return [
        Option(value=name, label=_(column.label), selected=name in (names or USUAL))
        for name, column in COLUMNS.items()
    ]


def cells(job: Job, names: Sequence[str], zone: ZoneInfo) -> list[JobCell]:
    return [
        JobCell(
            label=_(COLUMNS[name].label),
            text=COLUMNS[name].text(job, zone) or say.NOTHING,
            is_number=COLUMNS[name].is_number,
        )
        for name in names
    ]
