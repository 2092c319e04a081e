"""What a Prometheus is read for: the usage of the Kubernetes cluster that it watches, and how busy the devices of
Slurm's jobs were, where DCGM's exporter knows which job is on which device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from types import MappingProxyType

from clusters.connectors.base import Connected, ConnectorError, Reading, Row, UsageFact
from clusters.connectors.clocks import Clocks
from clusters.connectors.http import Endpoint
from clusters.connectors.prometheus.catalog import Metric, SampledSeries
from clusters.connectors.prometheus.client import PrometheusClient
from clusters.connectors.prometheus.coverage import HOUR, incomplete_hours, merged, whole_hours
from clusters.connectors.prometheus.energy import PodEnergy
from clusters.connectors.prometheus.login import PrometheusLogin
from clusters.connectors.prometheus.options import PrometheusOptions, Scope
from clusters.connectors.prometheus.pod_use import PodUse
from clusters.connectors.prometheus.queries import Queries
from clusters.connectors.prometheus.sampled_usage import SampledUsage
from clusters.connectors.prometheus.samples import ByParts, Samples, Tallies, left_out
from clusters.connectors.prometheus.token_options import TokenOptions
from clusters.connectors.prometheus.tokens import TokenSums
from clusters.connectors.prometheus.usage_fetch import SETTLE, UsageFetch
from clusters.connectors.prometheus.utilisation import Telemetry
from clusters.connectors.prometheus.volumes import VolumeSums
from clusters.connectors.sums import MeterUnits, StoredSums, none_stored


class PrometheusConnector(Connected):
    """A `Connector`. `clock` gives epoch seconds, to sign and to be compared: windows end by Prometheus's own time.

    `api` is "v1"; `release` stays "", since not every backend tells one.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        login: PrometheusLogin,
        options: PrometheusOptions | None = None,
        clock: Callable[[], int],
        meters: MeterUnits = MappingProxyType({}),
        stored: StoredSums = none_stored,
    ) -> None:
        self.options = options or PrometheusOptions()
        self.meters = meters
        self.stored = stored
        self.client = PrometheusClient(endpoint, login, clock=clock, parameters=self.options.parameters)
        self.reading = Reading()
        self.api = "v1"
        self.release = ""

    def usage(self, *, since: int, until: int, open_keys: Collection[str]) -> Iterator[Row]:
        """As the protocol says, but for pods that wait for a node: they hold nothing and are not told.

        The last ten minutes of Prometheus's own time are left for a later pull. After the facts comes how busy their
        devices were, for each hour of UTC that ends in the time read: also of pods that ended in it before `since`,
        whose facts an earlier pull gave. Facts are held in memory, and the telemetry of some hours at a time.
        """
        self.reading = Reading()
        self.reading.clocks = clocks = self.client.clocks()
        window = {"since": since, "until": until, "now": clocks.theirs}
        try:
            if self.options.sampled is not None:
                yield from self._sampled(self.options.sampled, open_keys=open_keys, **window)
            elif self.options.pods:
                yield from self._pods(open_keys=open_keys, **window)
            else:
                self.reading.unasked = sorted(open_keys)
            if self.options.tokens is not None:
                yield from self._tokens(self.options.tokens, **window)
        except ConnectorError:
            self.reading.complete_through = None  # the pods may be read whole, and what comes behind them not
            raise
        finally:
            self.client.close()

    def _pods(self, *, since: int, until: int, open_keys: Collection[str], now: int) -> Iterator[Row]:
        fetch = UsageFetch(self.client, Queries(self.options))
        telemetry = Telemetry(self.client, self.options)
        energy = PodEnergy(self.client, self.options) if self.options.energy else None
        use = (
            PodUse(self.client, fetch.queries, self.options.use, self.meters, self.stored)
            if self.options.use is not None
            else None
        )
        facts: dict[str, UsageFact] = {}
        try:
            for row in fetch.ended(since=since, until=until, open_keys=open_keys, now=now):
                _keep(facts, row)
                yield row
            for row in fetch.running:
                _keep(facts, row)
            through = fetch.complete_through
            facts = {fact.source_key: fact for fact in fetch.earlier} | facts
            hours = whole_hours(since, through) if through else range(0)
            busy = telemetry.rows(facts.values(), hours)
            yield from fetch.running
            yield from busy
            if energy is not None:
                yield from energy.rows(facts.values(), hours)
            if use is not None:
                yield from use.rows(facts.values(), hours)
            incomplete = incomplete_hours(fetch.gaps, since, through) if through is not None else []
            if self.options.volumes:
                volumes = VolumeSums(self.client, fetch.queries, self.meters, self.stored)
                unseen = [one.begins for one in incomplete]
                if since % HOUR:  # nobody looked whether there are gaps before it
                    unseen.append(since - since % HOUR)
                yield from volumes.rows(hours, incomplete=unseen)
            self.reading.complete_through = through
            self.reading.missing, self.reading.unasked = fetch.missing, fetch.unasked
            self.reading.nodes = fetch.nodes
            self.reading.incomplete = incomplete
        finally:
            self.reading.notes = fetch.notes.sentences(
                fetch.gaps, label=self.options.account_label, remarks=self.client.remarks
            )
            self.reading.notes += telemetry.gaps.sentences()
            self.reading.notes += energy.notes() if energy is not None else ()
            self.reading.notes += use.notes() if use is not None else ()

    def _sampled(
        self, series: SampledSeries, *, since: int, until: int, open_keys: Collection[str], now: int
    ) -> Iterator[Row]:
        """What users held, hour by hour; each has ended. Of open runs, which only pods make, nothing is told."""
        fetch = SampledUsage(self.client, self.options, series)
        try:
            yield from fetch.rows(since=since, until=until, now=now)
            self.reading.complete_through = fetch.complete_through
            self.reading.unasked = sorted(open_keys)
            self.reading.incomplete = fetch.incomplete
        finally:
            self.reading.notes = fetch.notes()

    def _tokens(self, tokens: TokenOptions, *, since: int, until: int, now: int) -> Iterator[Row]:
        """Sums of whole hours; what is proved of the rest of the connection is proved no further than these are."""
        fetch = TokenSums(self.client, self.options, tokens, self.meters)
        yield from fetch.rows(since=since, until=until, now=now)
        through, proved = fetch.complete_through, self.reading.complete_through
        if through is not None and (proved is not None or not self._reads_more):
            self.reading.complete_through = through if proved is None else min(through, proved)
        self.reading.incomplete = merged(self.reading.incomplete, fetch.incomplete)
        self.reading.notes += fetch.notes()

    @property
    def _reads_more(self) -> bool:
        return self.options.pods or self.options.sampled is not None

    def close(self) -> None:
        self.client.close()


def _keep(facts: dict[str, UsageFact], row: Row) -> None:
    if isinstance(row, UsageFact):
        facts[row.source_key] = row


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

        The last ten minutes of Prometheus's own time are left for a later pull. Reading again tells the same, or what
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
