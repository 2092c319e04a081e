"""The sums that must always hold, computed apart from the code that keeps them.

allocated = billed + waived + pending + unassigned, per cluster and resource, in resource-seconds:
allocated comes from the usage records, unassigned from the gaps of ownership, the others from rated
usage and the invoices that cover it; what a plan does not charge, but for GPUs, from the plans of whoever
owned it then, since it has no rated rows. `pending` holds unpriced usage too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date
from fractions import Fraction

from django.db import connection, transaction
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
from billing.proof.line_amounts import lines_that_cost_something_else
from billing.proof.names import mark, named
from billing.rules.meters import SECONDS_PER_HOUR
from billing.rules.money import Money, decimal_text
from billing.rules.tax import tax_on
from billing.wallets import replay
from clusters import temp_tables, usage
from portal.core.outbox.models import OutboxMessage
from portal.sql_files import Statements

sql = Statements(__file__, "checks.sql")
IDENTITIES = Statements(__file__, "identities.sql").by_name

SLICE = 50_000  # records looked at in one statement

RERATING = ("billing.tasks.rate_accounts", "billing.tasks.rate_tenants")
"""Until they are done, what is rated is not what is owned and priced now."""

PARTS = ("allocated", "billed", "waived", "pending", "unassigned")


@dataclass(slots=True)
class Sums:
    """The parts of one cluster's resource, exact resource-seconds."""

    parts: dict[str, Fraction] = field(default_factory=lambda: dict.fromkeys(PARTS, Fraction(0)))
    unpriced: Fraction = Fraction(0)  # of pending

    def add(self, part: str, value: Fraction) -> None:
        """Count resource-seconds as one of the parts; what has no price yet is pending."""
        if part == "unpriced":
            self.unpriced += value
        self.parts["pending" if part == "unpriced" else part] += value

    @property
    def difference(self) -> Fraction:
        """allocated − (billed + waived + pending + unassigned); 0 where the sum closes."""
        return 2 * self.parts["allocated"] - sum(self.parts.values(), Fraction(0))


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

    @property
    def holds(self) -> bool:
        return all(not s.difference for s in self.sums.values()) and not any(c.broken for c in self.checks)


def prove(*, month: date | None = None, progress: Callable[[int], None] | None = None) -> Proof:
    """All sums of a UTC month, or of all time. One snapshot of the database; changes nothing."""
    with snapshot() as cursor:
        sums, jobs, rated = sums_of_jobs(cursor, month=month, progress=progress)
        quarantined = usage.quarantined_rows()
        for cluster in quarantined:
            for resource in Resource:
                if not resource.is_measure:
                    sums.setdefault((cluster, resource.value), Sums())  # shown with zeros
        cursor.execute(sql.ALL_RATED_ROWS)
        orphans = cursor.fetchone()[0] - rated
        if orphans:
            jobs.append(f"{orphans:,} rated rows belong to no job that is known")
        checks = [
            Check("every job is rated for whom it was, in full", jobs[:10]),
            Check("every usage record has its account and cluster", usage.orphans()),
            _lines_equal_rated(),
            _lines_cost_what_they_say(),
            _wallet_days_cost_what_was_used(),
            _wallets_hold_what_their_days_leave(),
            _taxes_are_their_rates(),
            *(Check(name, _texts(statement)) for name, statement in IDENTITIES.items()),
        ]
        checks = [Check(check.name, named(check.broken)) for check in checks]
        return Proof(
            dict(sorted(sums.items())),
            quarantined,
            checks,
            changes_to_rate(),
        )


def changes_to_rate() -> int:
    """Changes of ownership or prices whose usage waits in the outbox to be rated again."""
    return OutboxMessage.objects.undone().filter(task__in=RERATING).count()


@contextmanager
def snapshot() -> Iterator[CursorWrapper]:
    """A cursor for which the database stands still, as it was at its first statement."""
    with transaction.atomic(), connection.cursor() as cursor:
        if not connection.savepoint_ids:
            cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        yield cursor


def sums_of_jobs(
    cursor: CursorWrapper,
    *,
    month: date | None = None,
    within: tuple[int, int] = usage.ALL_IDS,
    progress: Callable[[int], None] | None = None,
) -> tuple[dict[tuple[str, str], Sums], list[str], int]:
    """Of the records of an id range: the sums in a UTC month, where a job is not rated as held, how many rated rows."""
    sums: dict[tuple[str, str], Sums] = defaultdict(Sums)
    jobs: list[str] = []
    rated = 0
    temp_tables.prepare(cursor, "PROVE")
    cursor.execute(sql.CHARGED_TIME)
    accounts = usage.account_ids()
    for after, last in usage.slices(accounts, size=SLICE, within=within):
        count = usage.load_slice(after, last, accounts)
        cursor.execute(sql.SUMS, {"month": month})
        for cluster, resource, part, num, den in cursor.fetchall():
            sums[cluster, resource].add(part, Fraction(int(num), den))
        jobs += _texts(sql.JOBS)
        cursor.execute(sql.RATED_ROWS)
        rated += cursor.fetchone()[0]
        if progress is not None:
            progress(count)
    return sums, jobs, rated


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


def seconds_text(seconds: Fraction) -> str:
    """Exact resource-seconds: a decimal where it is finite, else a fraction such as 1/7."""
    try:
        return decimal_text(seconds)
    except ValueError:
        return f"{seconds.numerator}/{seconds.denominator}"


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
