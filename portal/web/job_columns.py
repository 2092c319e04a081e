"""The columns of the list of jobs: which there are, the usual ones, and a choice as it stands in the address."""

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
from portal.web.form_input import Option


@dataclass(frozen=True, slots=True)
class Column:
    label: str
    text: Callable[[Job, ZoneInfo], str]
    style: str = ""  # classes of its cells; without one, a long text is cut off


@dataclass(frozen=True, slots=True)
class Heading:
    """A column of the list at hand, named in the reader's language."""

    name: str
    label: str

    @property
    def is_number(self) -> bool:
        return COLUMNS[self.name].style == "ct-num"


@dataclass(frozen=True, slots=True)
class JobCell:
    name: str
    label: str
    text: str
    style: str


def _gpus(job: Job, zone: ZoneInfo) -> str:
    del zone
    row = job.row
    return say.gpus(row.gpus, row.gpu_model, row.mig_profile, Fraction(row.share_num, row.share_den))


def _moment(label: str, second: Callable[[Job], int | None]) -> Column:
    return Column(label, lambda job, zone: say.at_second(second(job), zone), style="ct-nowrap")


COLUMNS: Final[Mapping[str, Column]] = {
    "name": Column(gettext_noop("Name"), lambda job, _zone: job.row.name),
    "user": Column(gettext_noop("User"), lambda job, _zone: job.row.user),
    "project": Column(
        gettext_noop("Project"), lambda job, _zone: job.row.project.name, style="text-secondary"
    ),
    "account": Column(gettext_noop("Account"), lambda job, _zone: job.row.account),
    "cluster": Column(gettext_noop("Cluster"), lambda job, _zone: job.row.cluster),
    "queue": Column(gettext_noop("Queue"), lambda job, _zone: job.row.queue),
    "qos": Column(gettext_noop("QOS"), lambda job, _zone: job.row.qos),
    "gpus": Column(gettext_noop("GPUs"), _gpus, style="ct-nowrap"),
    "submitted": _moment(gettext_noop("Submitted"), lambda job: job.submitted),
    "started": _moment(gettext_noop("Started"), lambda job: job.started),
    "ended": _moment(gettext_noop("Ended"), lambda job: job.ended),
    "waited": Column(gettext_noop("Waited"), lambda job, _zone: _duration(waited(job)), style="ct-num"),
    "duration": Column(gettext_noop("Duration"), lambda job, _zone: _duration(job.duration), style="ct-num"),
    "state": Column(gettext_noop("State"), lambda job, _zone: job.state),
    "gpu-hours": Column(
        gettext_noop("GPU-hours"),
        lambda job, _zone: say.hours(job.gpu_seconds) if job.row.gpus else "",
        style="ct-num",
    ),
}
"""Between the job's number and its cost, which always stand."""

USUAL: Final = ("name", "user", "project", "gpus", "started", "duration", "state", "gpu-hours")


def _duration(seconds: int | None) -> str:
    return "" if seconds is None else say.duration(seconds)


def read_columns(query: QueryDict) -> Sequence[str]:
    """Those that the address names, in the order of COLUMNS; else the usual ones."""
    return [name for name in COLUMNS if name in query.getlist("col")] or USUAL


def column_options(names: Sequence[str]) -> list[Option]:
    return [
        Option(value=name, label=_(column.label), selected=name in names) for name, column in COLUMNS.items()
    ]


def headings(names: Sequence[str]) -> list[Heading]:
    return [Heading(name, _(COLUMNS[name].label)) for name in names]


def cells(job: Job, columns: Sequence[Heading], zone: ZoneInfo) -> list[JobCell]:
    return [
        JobCell(
            name=column.name,
            label=column.label,
            text=COLUMNS[column.name].text(job, zone) or say.NOTHING,
            style=COLUMNS[column.name].style,
        )
        for column in columns
    ]
