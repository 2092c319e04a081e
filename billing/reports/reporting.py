"""Making a report: one statement, two with the most expensive jobs, whose sums become exact fractions here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from django.db import connection

from billing.catalog import plans
from billing.models import Price
from billing.queries.costs import Tags, tags
from billing.reports.capacity import capacity_of, doubts
from billing.reports.messages import SENTENCES
from billing.reports.naming import load_runs, named
from billing.reports.shapes import ZERO, By, Capacity, Job, Report, Row, Source, Split, Standing
from billing.sealed_months import all_tenants_rows
from billing.sealed_months.all_tenants_rows import MOST_RECORDS
from clusters import absent_records, usage_reports
from clusters.models import Cluster
from portal.core.one_sight import one_sight
from portal.core.tenants.models import Tenant
from portal.errors import CodedError
from portal.sql_files import Statements

sql = Statements(__file__, "report.sql")

MOST_PODS = 1_000  # told one by one, unless said otherwise
HOUR = 3600
UNPRICED = "Some usage has no price yet: it has GPU-hours but no cost, and blocks its tenant's close."
SCALED = (
    "Some usage is priced by tiers or packages. Its cost here is at the price of the first unit; the invoice applies "
    "the tiers."
)
Key = tuple[Any, ...]


class ReportError(CodedError):
    """The report cannot be made; the message says what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True)
class Sums:
    """What the statements answered for one grouping: seconds and units by price, so that money follows its price.

    Numbers may be decimal texts, as JSON has them.
    """

    rows: Sequence[Sequence[Any]]  # of SUMS, without the grouping
    top_jobs: Sequence[Sequence[Any]]  # of TOP_JOBS


@dataclass(frozen=True, slots=True)
class Whole:
    """What everybody's use of a cluster is held against."""

    ledger: Fraction  # GPU-seconds that runs held
    capacity: Capacity | None  # None where nothing is known of it


@dataclass(frozen=True, slots=True)
class _SumsQuery:
    bys: Sequence[By]
    since: int
    until: int
    cluster: int | None
    tenant: int | None
    limit: int
    top_jobs: int
    by_use: bool

    @property
    def own(self) -> bool:
        """Inside a tenant's scope."""
        return self.cluster is None

    @property
    def values(self) -> dict[str, Any]:
        return {
            "since": self.since,
            "until": self.until,
            "bys": [by.value for by in self.bys],
            "cluster": self.cluster,
            "tenant": self.tenant,
            "limit": self.limit,
            "top_jobs": self.top_jobs,
            "by_use": self.by_use,
        }


def of_cluster(
    cluster: Cluster,
    *,
    since: int,
    until: int,
    by: By,
    tenant: Tenant | None = None,
    limit: int = MOST_PODS,
    top_jobs: int = 0,
    most_in_files: int = MOST_RECORDS,
) -> Report:
    """What was held of the cluster in [since, until), epoch seconds: everybody's use, or one tenant's.

    GPU-seconds that no price covers, that a plan waives and that nobody owns are rows without money, so everybody's
    rows add up to what the ledger holds, to the second; a note says so if they ever did not. Of pods the `limit`
    most expensive are rows, the others one more. Raises ReportError for a period that is none, and RowsInFilesError
    where files cannot be read, or have more records of the cluster and these days than `most_in_files`.
    """
    query = _SumsQuery(
        [by], since, until, cluster.pk, tenant.pk if tenant else None, limit, top_jobs, plans.by_use()
    )
    with (
        one_sight(),  # or an import beside it would look like a difference
        all_tenants_rows.cluster_usage([cluster.pk], since=since, until=until, most=most_in_files),
    ):
        sums = _load_sums(query)[by]
        whole = whole_of(cluster, since=since, until=until) if tenant is None else None
        return report_of_cluster(sums, whole, by=by, since=since, until=until)


def sums_of_cluster(
    cluster: Cluster, *, since: int, until: int, bys: Sequence[By], limit: int, top_jobs: int, by_use: bool
) -> dict[By, Sums]:
    """What reports of everybody's use by each of `bys` are made of. One or two queries.

    The caller has read dropped months: see `all_tenants_rows`; `by_use` is what `plans.by_use` says.
    """
    return _load_sums(_SumsQuery(bys, since, until, cluster.pk, None, limit, top_jobs, by_use))


def whole_of(cluster: Cluster, *, since: int, until: int) -> Whole:
    """Seven queries. Taken in the same sight of the database as the sums."""
    capacity = capacity_of(cluster, since=since, until=until)
    if capacity is not None and (capacity.since, capacity.until) == (since, until):
        return Whole(capacity.whole.allocated, capacity)
    return Whole(sum(usage_reports.allocated(cluster, since=since, until=until).values(), ZERO), capacity)


def report_of_cluster(sums: Sums, whole: Whole | None, *, by: By, since: int, until: int) -> Report:
    """The report that a cluster's sums make at the prices of now; `whole` where they are everybody's."""
    report = _report(sums, by, since, until, own=False)
    if whole is None:
        return report
    notes = [*report.notes, *doubts(whole.capacity, since=since, until=until)]
    if whole.ledger != report.seconds.allocated:
        notes.insert(
            0,
            f"These rows hold {report.seconds.allocated} GPU-seconds, the ledger {whole.ledger}: run `prove`, and "
            "report it.",
        )
    return replace(report, capacity=whole.capacity, notes=notes)


def of_tenant(
    tenant: Tenant, *, since: int, until: int, by: By, limit: int = MOST_PODS, top_jobs: int = 0
) -> Report:
    """What the tenant held of all clusters in [since, until). Runs inside its scope, which shows nothing of others."""
    absent_records.show(absent_records.list_between(since, until), with_hours=True)
    by_use = plans.by_use()
    sums = sums_of_tenant(
        tenant, since=since, until=until, bys=[by], limit=limit, top_jobs=top_jobs, by_use=by_use
    )
    return report_of_sums(sums[by], by=by, since=since, until=until)


def sums_of_tenant(
    tenant: Tenant, *, since: int, until: int, bys: Sequence[By], limit: int, top_jobs: int, by_use: bool
) -> dict[By, Sums]:
    """What the tenant's reports by each of `bys` are made of. Runs inside its scope. One or two queries.

    The caller has months shown whose rows are in files; `by_use` is what `plans.by_use` says.
    """
    return _load_sums(_SumsQuery(bys, since, until, None, tenant.pk, limit, top_jobs, by_use))


def report_of_sums(sums: Sums, *, by: By, since: int, until: int) -> Report:
    """The report that a tenant's sums make at the prices of now. Runs inside its scope."""
    return _report(sums, by, since, until, own=True)


def _load_sums(query: _SumsQuery) -> dict[By, Sums]:
    if query.since >= query.until:
        raise ReportError("period-order")
    rows: dict[str, list[Sequence[Any]]] = defaultdict(list)
    top_jobs: dict[str, list[Sequence[Any]]] = defaultdict(list)
    with connection.cursor() as cursor:
        cursor.execute(sql.MORE_MEMORY)
        cursor.execute(sql.SUMS_OWN if query.own else sql.SUMS, query.values)
        for by, *row in cursor.fetchall():
            rows[by].append(row)
        if query.top_jobs and [*query.bys] != [By.POD]:
            cursor.execute(sql.TOP_JOBS_OWN if query.own else sql.TOP_JOBS, query.values)
            for by, *row in cursor.fetchall():
                top_jobs[by].append(row)
    return {by: Sums(rows[by], top_jobs[by]) for by in query.bys}


def _report(sums: Sums, by: By, since: int, until: int, *, own: bool) -> Report:
    parts = [_Sum.read(by, row) for row in sums.rows]
    jobs = next(int(one.a) for one in parts if one.part == "all")
    groups: dict[tuple[Key, str, str], _Group] = defaultdict(_Group)
    for one in parts:
        if one.part != "all":
            groups[one.key, one.standing, one.currency].parts.append(one)
    prices = tags(one.price for one in parts)
    first = _top_jobs(sums.top_jobs, by, prices, own=own) if sums.top_jobs else {}
    names = named(by, [key for key, _, _ in groups], own=own)
    rows = [
        _row(names[key], Standing(standing), currency, group.parts, prices, first.get((key, currency), ()))
        for (key, standing, currency), group in groups.items()
    ]
    return Report(by, since, until, sorted(rows, key=_weight), jobs, notes=_notes(rows, prices))


class _Sum(NamedTuple):
    """A row of `report.SUMS`."""

    part: str
    key: Key
    standing: str
    currency: str
    price: int | None
    share_den: int
    source: str
    metric: str
    a: Any
    b: Any

    @classmethod
    def read(cls, by: By, row: Sequence[Any]) -> _Sum:
        part, key, subkey, standing, currency, price, den, source, metric, a, b = row
        return cls(
            part,
            _key(by, key, subkey),
            standing or "",
            currency or "",
            price,
            den or 1,
            source or "",
            metric or "",
            a,
            b,
        )


def _key(by: By, key: str | None, subkey: str | None) -> Key:
    """What names a group: of tenants, projects and pods numbers, else texts; None is what a limit left out."""
    match by:
        case By.TENANT | By.PROJECT | By.POD:
            numbers = tuple(None if part is None else int(part) for part in (key, subkey))
            return numbers[:1] if by is By.TENANT else numbers
        case By.NAMESPACE:
            return key, subkey
        case _:
            return (key,)


@dataclass(slots=True)
class _Group:
    parts: list[_Sum] = field(default_factory=list)


def _row(
    labels: Mapping[str, str] | None,
    standing: Standing,
    currency: str,
    parts: Iterable[_Sum],
    prices: Tags,
    top_jobs: tuple[Job, ...],
) -> Row:
    seconds: dict[str, Fraction] = defaultdict(Fraction)  # by what `Split` calls its parts
    money: dict[str, Fraction] = defaultdict(Fraction)
    other, jobs = ZERO, 0
    sources: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for one in parts:
        if one.part == "jobs":
            jobs = int(one.a)
            continue
        used = _exact(one.a, one.share_den)
        rate = Fraction(prices[one.price].unit_price) / HOUR if one.price is not None else ZERO
        if one.part == "other":
            other += used * rate
            continue
        units = {"allocated": used}
        if one.part == "busy":
            units = {"effective": used, "covered": _exact(one.b, one.share_den)}
            sources[one.source, one.metric] += units["covered"]
        for name, value in units.items():
            seconds[name] += value
            money[name] += value * rate
    return Row(
        labels or {},
        standing,
        currency,
        Split(**seconds),
        Split(**money) if standing is Standing.CHARGED else None,
        other,
        jobs,
        tuple(Source(*of, covered) for of, covered in sorted(sources.items())),
        top_jobs,
        rest=labels is None,
    )


def _top_jobs(
    rows: Sequence[Sequence[Any]], by: By, prices: Tags, *, own: bool
) -> dict[tuple[Key, str], tuple[Job, ...]]:
    """By group and currency, its most expensive jobs, the first first. One query."""
    names = load_runs([row[3] for row in rows], own=own)
    sums: dict[tuple[Key, str], dict[int, list[Fraction]]] = defaultdict(dict)
    for key, subkey, currency, record, _, price, den, units in rows:
        held = _exact(units, den)
        of = sums[_key(by, key, subkey), currency].setdefault(record, [ZERO, ZERO])
        of[0] += held
        of[1] += held * Fraction(prices[price].unit_price) / HOUR
    found: dict[tuple[Key, str], tuple[Job, ...]] = {}
    for group, jobs in sums.items():
        told = []
        for record, (held, cost) in jobs.items():
            run = names[record]
            told.append(Job(run.job_id, run.name, run.account, run.user, held, cost, record))
        found[group] = tuple(told)
    return found


def _notes(rows: Iterable[Row], prices: Tags) -> list[str]:
    """What the figures do not tell. One query."""
    told = []
    if any(row.standing is Standing.UNPRICED for row in rows):
        told.append(UNPRICED)
    if Price.objects.filter(pk__in=list(prices)).exclude(scale={}).exists():
        told.append(SCALED)
    return told


def _weight(row: Row) -> tuple[Any, ...]:
    """Sorts the costly first, then the busy; what a limit left out comes last."""
    return row.rest, -row.cost, -row.seconds.allocated, tuple(row.labels.values()), row.standing, row.currency


def _exact(units: Any, den: int) -> Fraction:
    return Fraction(units or 0) / den
