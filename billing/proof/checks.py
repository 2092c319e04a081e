"""The sums that must always hold, computed apart from the code that keeps them.

allocated = billed + waived + pending + unassigned, per cluster and resource, in resource-seconds:
allocated comes from the usage records, unassigned from the gaps of ownership, the others from rated
usage and the invoices that cover it; what a plan does not charge, but for GPUs, from the plans of whoever
owned it then, since it has no rated rows. `pending` holds unpriced usage too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from fractions import Fraction

from django.db import connection
from django.db.backends.utils import CursorWrapper
from django.db.models import Sum
from django.db.models.functions import Coalesce

from billing.models import (
    BillingPeriod,
    InvoiceState,
    InvoiceTax,
    PeriodTotal,
    Resource,
    Verdict,
    Wallet,
    WalletBooking,
)
from billing.proof import late, months, records, zones
from billing.proof.line_amounts import lines_that_cost_something_else
from billing.proof.names import mark, named
from billing.proof.records import Held, MonthRecords
from billing.proof.sums import Sums, seconds_text
from billing.rating import reratings
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money
from billing.rules.tax import tax_on
from billing.wallets import replay
from clusters import usage
from portal.core.one_sight import one_sight
from portal.sql_files import Statements

sql = Statements(__file__, "checks.sql")
LOST = "records are those that were proved before, or a sync says that it wrote them"
TERMS = "months whose rows are in files alone are owned, planned and billed as they were"
IDENTITIES = Statements(__file__, "identities.sql").by_name


@dataclass(frozen=True, slots=True)
class Check:
    """An identity between two kept sums; `broken` names up to ten places where it does not hold."""

    name: str
    broken: list[str]


@dataclass(frozen=True, slots=True)
class Proof:
    """Per (cluster, resource) the sums, the rows in quarantine beside, and the other identities."""

    sums: Mapping[tuple[str, str], Sums]
    quarantined: Mapping[str, int]
    checks: list[Check]
    rerating: int  # changes of ownership or prices whose usage waits in the outbox to be rated again
    recomputed: Sequence[date] = field(default=())  # UTC months; of each other one its kept proof stands

    @property
    def holds(self) -> bool:
        return all(not s.difference for s in self.sums.values()) and not any(c.broken for c in self.checks)


def prove(
    *,
    month: date | None = None,
    full: bool = False,
    moment: datetime | None = None,
    progress: Callable[[int], None] | None = None,
) -> Proof:
    """All sums of a UTC month, or of all time, in one snapshot of the database.

    Recomputes the months to which something was written since they were proved, or all of them where `full`, and takes
    the kept proofs of the others. With a `moment` it keeps what it recomputed, as of then; else it writes nothing.
    """
    with months.alone(moment), one_sight() as cursor:
        every = months.survey(cursor, full=full)
        late_records = late.recompute(cursor, late.list_months(cursor)) if every.dropped else {}
        lost = late.list_lost(cursor, every.attached) if every.dropped else {}
        results = months.recompute(cursor, every, progress)
        findings = months.check_summaries(cursor, every.due, whole=full)
        held = [records.of_proof(every.proofs[valid]) for valid in every.valid]
        recomputed = [*results.values(), *late_records.values()]
        held += [result.held for result in recomputed]
        quarantined = usage.quarantined_rows()
        proof = Proof(
            _sums(cursor, held, service=month, clusters=quarantined),
            quarantined,
            [
                *(Check(check.name, named(check.broken)) for check in _checks(recomputed, findings)),
                Check(LOST, [*months.list_lost(every, results), *_with_months(lost)][:10]),
                *_dropped(every),
                Check(zones.NAME, zones.list_different(cursor)),
            ],
            reratings.count_changes(),
            every.due,
        )
        if moment is not None:
            months.keep(cursor, every, results, findings, moment=moment)
            late.keep([every.proofs[dropped] for dropped in every.dropped], late_records, lost)
    return proof


def _with_months(lost: Mapping[date, Sequence[str]]) -> list[str]:
    return [f"{month:%Y-%m}: {text}" for month, texts in lost.items() for text in texts]


def _sums(
    cursor: CursorWrapper, held: Iterable[Held], *, service: date | None, clusters: Iterable[str]
) -> dict[tuple[str, str], Sums]:
    """By cluster and resource, those of all clusters shown: with zeros where nothing was used."""
    names = usage.cluster_names()
    sums = {
        (names.get(cluster, f"cluster {cluster}, which is gone"), resource): row
        for (cluster, resource), row in records.sums_of(
            *held, records.rated_sums(cursor), service=service
        ).items()
    }
    for cluster in clusters:
        for resource in Resource:
            if not resource.is_measure:
                sums.setdefault((cluster, resource.value), Sums())
    return dict(sorted(sums.items()))


def _checks(results: Iterable[MonthRecords], findings: Mapping[str, list[str]]) -> list[Check]:
    """Of the months that were recomputed, and what is compared whole: it costs by periods, invoices and wallets."""
    broken: dict[str, list[str]] = {records.RATED: [], records.ORPHANS: [], records.OWNERS: []}
    unknown = 0
    for result in results:
        unknown += result.unknown
        for name, texts in result.broken.items():
            broken[name] = (broken[name] + texts)[:10]
    if unknown:
        broken[records.RATED].append(records.unknown_text(unknown))
    return [
        *(Check(name, texts) for name, texts in broken.items()),
        _lines_equal_rated(),
        _lines_cost_what_they_say(),
        _wallet_days_cost_what_was_used(),
        _wallets_hold_what_their_days_leave(),
        _taxes_are_their_rates(),
        *(Check(name, texts) for name, texts in findings.items()),
        *(Check(name, _texts(statement)) for name, statement in IDENTITIES.items()),
    ]


def _dropped(every: months.Months) -> list[Check]:
    """Their rows cannot be compared again with who owns them now: rating loads such a month back first."""
    if not every.dropped:
        return []
    return [Check(TERMS, [f"{month:%Y-%m}: load it back" for month in every.other_terms[:10]])]


def tenant_sums(periods: Sequence[BillingPeriod]) -> dict[int, dict[str, dict[str, str]]]:
    """By period, its tenant's resources and verdicts in exact resource-seconds as text: kept with its close."""
    rows = (
        PeriodTotal.objects.filter(tenant__in={p.tenant_id for p in periods}, period__in=periods)
        .values_list("period", "resource", "verdict", "share_den")
        .annotate(sum=Sum("units"))
        .order_by("period", "resource", "verdict", "share_den")
    )
    sums: dict[int, dict[str, dict[str, Fraction]]] = {period.pk: {} for period in periods}
    for period, resource, verdict, share_den, units in rows:
        verdicts = sums[period].setdefault(resource, dict.fromkeys(Verdict.values, Fraction(0)))
        verdicts[verdict] += Fraction(int(units), share_den)
    return {
        period: {
            resource: {verdict: seconds_text(value) for verdict, value in verdicts.items()}
            for resource, verdicts in resources.items()
        }
        for period, resources in sums.items()
    }


def _lines_equal_rated() -> Check:
    difference: dict[tuple[int, int, int, int], Fraction] = defaultdict(Fraction)
    with connection.cursor() as cursor:
        cursor.execute(sql.LINES)
        for payer, period, project, price, num, den in cursor.fetchall():
            difference[payer, period, project, price] += Fraction(int(num), int(den))
    broken = [
        f"{mark('period', period)}, {mark('project', project)}, {mark('price', price)}: "
        f"lines exceed rated usage by {seconds_text(value)} s"
        for (_, period, project, price), value in sorted(
            (key, value) for key, value in difference.items() if value
        )
    ]
    return Check("invoice lines equal the rated usage that they cover", broken[:10])


def _taxes_are_their_rates() -> Check:
    """Each tax of an invoice, less what its credit notes took back of it, is its rate on what is left of its net."""
    tax_sums = (
        InvoiceTax.objects.filter(invoice__state=InvoiceState.ISSUED)
        .values_list(Coalesce("invoice__original", "invoice"), "category", "rate", "invoice__currency")
        .annotate(Sum("net"), Sum("tax"))
        .order_by()
    )
    broken = [
        f"{mark('invoice', invoice)} at {category} {rate}"
        for invoice, category, rate, currency, net, tax in tax_sums
        if tax_on(Money.from_minor(int(net), currency), rate=rate).minor != tax
    ]
    return Check("the taxes of an invoice are their rates on what is billed", broken[:10])


def _lines_cost_what_they_say() -> Check:
    """Per key all lines together cost their seconds at their price, rounded once."""
    broken = lines_that_cost_something_else()
    return Check("invoice lines cost their seconds at their price", broken[:10])


def _wallet_days_cost_what_was_used() -> Check:
    """What is booked on a day is its totals, rounded once; a tenant that is due is behind, which is no mistake."""
    exact: dict[tuple[int, date], Fraction] = defaultdict(Fraction)
    booked: dict[tuple[int, date], tuple[int, str]] = {}
    with connection.cursor() as cursor:
        cursor.execute(sql.WALLET_DAYS)
        for wallet, unit, day, minor, den, amount in cursor.fetchall():
            exact[wallet, day] += Fraction(amount) / den / SECONDS_PER_HOUR
            booked[wallet, day] = minor, unit
    broken = [
        f"{mark('wallet', wallet)} on {day}"
        for (wallet, day), (minor, unit) in sorted(booked.items())
        if Money(exact[wallet, day], unit).rounded().minor != minor
    ]
    return Check("wallets are charged what their days cost", broken[:10])


def _wallets_hold_what_their_days_leave() -> Check:
    """Which grant pays for which day, what caps let be given, and what expired: computed anew from the first day on."""
    behind = WalletBooking.objects.filter(due=True).values("tenant")
    wallets = Wallet.objects.exclude(tenant__in=behind).select_related("scheme", "tenant", "project")
    broken = [
        f"{mark('wallet', wallet.pk)}: {text}"
        for wallet in wallets.order_by("pk").iterator()
        for text in replay.differences(wallet)[:1]
    ]
    return Check("wallets hold what their grants and days leave", broken[:10])


def _texts(statement: str) -> list[str]:
    """One text per place where an identity is broken, ten at most."""
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return [str(row[0]) for row in cursor.fetchmany(10)]
