"""How busy the devices of Slurm's jobs were, where DCGM's exporter is told which job is on which device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from clusters.connectors.base import Connected
from clusters.connectors.clocks import Clocks
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.counters import ByParts, Tallies
from clusters.connectors.prometheus.coverage import HOUR, whole_hours
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.metrics import Metric
from clusters.connectors.prometheus.options import PrometheusOptions, Scope
from clusters.connectors.prometheus.samples import Samples, left_out
from clusters.connectors.prometheus.usage_fetch import SETTLE

JOB = "hpc_job"


@dataclass(frozen=True, slots=True)
class JobHour:
    """One job in one hour of UTC. Device-seconds: one device of DCGM, also where that is a slice.

    On a device that jobs share, each has the whole device's use, for DCGM cannot tell them apart.
    """

    job_id: str  # as Slurm numbers it, SLURM_JOB_ID: "8012944", of array jobs each task's own
    hour: int  # epoch second at which the hour begins, a multiple of 3600
    busy: Decimal  # at most nine decimals, at most `covered`
    covered: int  # at most 3600 a device; when within the hour the job began is not known here
    metric: str


class JobTelemetry(Connected):
    """Reads what DCGM tells of jobs. `options` gives the matcher, the utilisation's metric and divisor; its scope is
    "off" or not, for no average stands in for a job. `clock` gives epoch seconds, for signatures and to be compared.

    After `hours`, `told_until` is the epoch second up to which all whole hours were read, and `notes` are sentences
    for the operator; `clocks` are known before its first row.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        login: PrometheusLogin,
        options: PrometheusOptions | None = None,
        clock: Callable[[], int],
    ) -> None:
        self.options = options or PrometheusOptions()
        self.client = PrometheusClient(endpoint, login, clock=clock, parameters=self.options.parameters)
        self.complete_through: int | None = None
        self.notes: list[str] = []
        self.clocks: Clocks | None = None

    def hours(self, *, since: int, until: int) -> Iterator[JobHour]:
        """Each job in each hour of UTC that ends in (since, until], epoch seconds, in order of hours.

        The last ten minutes of Prometheus's own time are left for a later pass. Reading again tells the same, or what
        came late too. Some hours are held in memory at a time. Raises `ConnectorError`: then what was given is true,
        and the rest is not known.
        """
        self.complete_through, self.notes = None, []
        if self.options.utilisation.scope is Scope.OFF:
            return
        self.clocks = self.client.clocks()
        hours = whole_hours(since, min(until, self.clocks.theirs - SETTLE))
        readers = [self._samples(metric) for metric in self.options.utilisation.metrics]
        has_rows = False
        for rows in ByParts(self.client, hours, partial(self._part, readers)):
            has_rows = has_rows or bool(rows)
            yield from rows
        self.complete_through = hours.stop if hours else None
        self._note(readers, hours, has_rows=has_rows)

    def close(self) -> None:
        self.client.close()

    def _samples(self, metric: Metric) -> Samples:
        matchers = (f'{JOB}!=""', self.options.busy_matcher)
        return Samples(self.client, metric, matchers=matchers, others=(JOB,))

    def _part(self, readers: list[Samples], hours: range) -> list[JobHour]:
        """A job is told of by the first metric that has it in that hour."""
        job_hours: dict[tuple[int, str], JobHour] = {}
        for samples in readers:
            if not samples.exists(hours):
                continue
            series = samples.read(hours)
            intervals = samples.interval(series)
            by_job: dict[tuple[int, str], Tallies] = {}
            for one in series:
                for hour, tally in one.hours.items():
                    by_job.setdefault((hour, one.labels[JOB]), Tallies()).add(one, tally)
            for (hour, job), tallies in by_job.items():
                if (hour, job) not in job_hours:
                    busy, covered = tallies.worked(samples.metric, intervals, seconds=HOUR)
                    job_hours[hour, job] = JobHour(job, hour, busy, covered, samples.metric.name)
        return [row for _, row in sorted(job_hours.items())]

    def _note(self, readers: list[Samples], hours: range, *, has_rows: bool) -> None:
        for samples in readers:
            if samples.left_out:
                self.notes.append(left_out(samples))
        if hours and not has_rows:
            self.notes.append(
                f"{self.client.http.address} has no metric of DCGM with the label {JOB}: start dcgm-exporter with "
                "--hpc-job-mapping-dir, and let Slurm's prolog and epilog write the jobs there."
            )
