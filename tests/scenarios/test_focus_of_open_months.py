"""Two months are open: each charge is in the file of one of them, and stays in that month once both are closed."""

from __future__ import annotations

import csv
import io
from collections import defaultdict
from datetime import date
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest

from billing.catalog import version_terms
from billing.invoicing import manual_lines
from billing.queries.usage_series import Interval, usage_series
from billing.rules.money import Money
from portal.core.tenants.models import Corrections, Tenant
from tests.api.door import door
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, ingest
from tests.paying import pays
from tests.scenarios.test_focus import Row, checked, read
from tests.stories import closed
from tests.terms import TWO_DOLLARS, a_version
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db

OPEN = "2026-06-01"  # when it is
APRIL, MAY = "2026-04", "2026-05"


def a_lab(**fields: Any) -> Tenant:
    """At 2.00 an hour. March is invoiced; in April Ben used 3 hours, and in May 5."""
    cluster = a_cluster(complete_through="2026-09-01")
    plan = fields.pop("plan", None) or a_plan("standard")
    fields = {"accounts": [(cluster, "vision")], "corrections": Corrections.NEXT_INVOICE, **fields}
    lab = a_tenant("vision-lab", plan=plan, **fields)
    ingest(cluster, a_job(source_key="march"))
    closed("2026-03", lab)
    ingest(
        cluster,
        a_job(started="2026-04-05 10:00", ended="2026-04-05 13:00"),
        a_job(started="2026-05-06 10:00", ended="2026-05-06 15:00"),
    )
    return lab


def files() -> dict[str, list[Row]]:
    """Of all tenants."""
    tenants = Tenant.objects.order_by("slug")
    return {month: checked(read(*tenants, month=month, now=OPEN)[1]) for month in (APRIL, MAY)}


def sums(charges: dict[str, list[Row]], *names: str) -> dict[str, dict[tuple[str, ...], Decimal]]:
    """By month and by these columns what the charges come to; what comes to nothing is left out."""
    totals: dict[str, dict[tuple[str, ...], Decimal]] = {}
    for month, rows in charges.items():
        of_month: dict[tuple[str, ...], Decimal] = defaultdict(Decimal)
        for row in rows:
            of_month[tuple(row[name] for name in names)] += Decimal(row["BilledCost"])
        totals[month] = {key: total for key, total in of_month.items() if total}
    return totals


def total(rows: list[Row]) -> Decimal:
    return sum((Decimal(row["BilledCost"]) for row in rows), Decimal(0))


def by_hand(lab: Tenant, text: str = "Setup") -> None:
    net = Money.of("25.00", "USD")
    manual_lines.add_manual_line(
        tenant=lab, description=text, net=net, reason="agreed", by="op", on=date(2026, 5, 2)
    )


SUBJECT = ("BillingAccountId", "ChargeCategory", "ChargeDescription", "ChargeClass", "x_LineType")


def test_the_files_of_two_open_months_add_up_to_the_usage_and_to_the_invoices_later() -> None:
    lab = a_lab(tax_rate=Decimal(19))

    charges = files()

    use = {
        month: [row for row in rows if row["ChargeCategory"] == "Usage"] for month, rows in charges.items()
    }
    assert {month: total(rows) for month, rows in use.items()} == {APRIL: 6, MAY: 10}
    series = usage_series(
        lab,
        first=date(2026, 4, 1),
        end=date(2026, 6, 1),
        interval=Interval.MONTH,
        grouping=[],
        project=None,
        filters={},
    )
    assert [Fraction(total(rows)) for rows in use.values()] == [one.whole.cost[0].amount for one in series]
    before = sums(charges, *SUBJECT)
    assert {month: total(rows) for month, rows in charges.items()} == {
        APRIL: Decimal("7.14"),
        MAY: Decimal("11.90"),
    }
    for month in (APRIL, MAY):
        closed(month, lab)
    assert sums(files(), *SUBJECT) == before


def test_corrections_fees_in_advance_discounts_and_lines_by_hand_are_in_one_file() -> None:
    version = a_version(TWO_DOLLARS, allowance="1")
    version_terms.set_fee(version=version, name="Support", amount=Decimal("30.00"), in_advance=True)
    version_terms.set_discount(
        version=version, name="Friends", valid_from=date(2026, 1, 1), percent=Decimal(10)
    )
    lab = a_lab(plan=version.plan, plan_from=date(2026, 3, 1))
    longer = a_job(source_key="march", ended="2026-03-02 14:00")
    june = a_job(started="2026-06-01 08:00", ended="2026-06-01 09:00")
    ingest(a_cluster(), longer, june)
    by_hand(lab)

    before = sums(files(), "ChargeDescription", "ChargePeriodStart", "ChargeClass")

    assert before == {
        APRIL: {
            ("GPU time", "2026-04-05T10:00:00Z", ""): Decimal("4.00"),
            ("GPU time", "2026-03-02T10:00:00Z", "Correction"): Decimal("6.00"),
            ("Friends", "2026-03-01T00:00:00Z", "Correction"): Decimal("-0.60"),
            ("Friends", "2026-04-01T00:00:00Z", ""): Decimal("-0.40"),
            ("Support", "2026-05-01T00:00:00Z", ""): Decimal("30.00"),
            ("Friends", "2026-05-01T00:00:00Z", ""): Decimal("-3.00"),
            ("Setup", "2026-04-01T00:00:00Z", ""): Decimal("25.00"),
        },
        MAY: {
            ("GPU time", "2026-05-06T10:00:00Z", ""): Decimal("8.00"),
            ("Friends", "2026-05-01T00:00:00Z", ""): Decimal("-0.80"),
            ("Support", "2026-06-01T00:00:00Z", ""): Decimal("30.00"),
            ("Friends", "2026-06-01T00:00:00Z", ""): Decimal("-3.00"),
        },
    }
    for month in (APRIL, MAY):
        closed(month, lab)
    assert sums(files(), "ChargeDescription", "ChargePeriodStart", "ChargeClass") == before


def test_what_another_tenant_used_is_in_the_month_of_who_pays() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    plan = a_plan("standard")
    faculty = a_tenant("faculty", plan=plan, accounts=[(cluster, "faculty")])
    lab = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    pays(faculty, lab, "2026-04-01")
    ingest(
        cluster,
        a_job(account="faculty", started="2026-04-05 10:00", ended="2026-04-05 11:00"),
        a_job(started="2026-04-05 10:00", ended="2026-04-05 13:00"),
        a_job(account="faculty", started="2026-05-05 10:00", ended="2026-05-05 12:00"),
        a_job(started="2026-05-06 10:00", ended="2026-05-06 15:00"),
    )

    before = sums(files(), "BillingAccountId", "SubAccountName")

    assert before == {
        APRIL: {
            ("tenants/faculty", "faculty"): Decimal(2),
            ("tenants/faculty", "Vision Lab: vision"): Decimal(6),
        },
        MAY: {
            ("tenants/faculty", "faculty"): Decimal(4),
            ("tenants/faculty", "Vision Lab: vision"): Decimal(10),
        },
    }
    for month in (APRIL, MAY):
        closed(month, faculty)
        closed(month, lab)
    assert sums(files(), "BillingAccountId", "SubAccountName") == before


def test_two_open_periods_that_begin_in_one_month_are_both_in_its_file() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    lab = a_tenant("vision-lab", plan=a_plan("standard"), accounts=[(cluster, "vision")], anchor_day=3)
    ingest(cluster, a_job(started="2026-04-05 10:00", ended="2026-04-05 13:00"))
    Tenant.objects.update(anchor_day=20)
    lab.refresh_from_db()
    ingest(
        cluster,
        a_job(started="2026-05-06 10:00", ended="2026-05-06 15:00"),
        a_job(started="2026-05-21 10:00", ended="2026-05-21 11:00"),
    )

    assert sums(files(), "BillingPeriodStart") == {
        APRIL: {("2026-04-03T00:00:00Z",): Decimal(6)},
        MAY: {("2026-05-03T00:00:00Z",): Decimal(10), ("2026-05-20T00:00:00Z",): Decimal(2)},
    }


def test_a_line_by_hand_is_not_in_months_that_were_never_closed_since_they_cost_nothing() -> None:
    cluster = a_cluster(complete_through="2026-09-01")
    plan = a_plan("standard", prices=[("gpu-hour", {}, "2.00", date(2026, 5, 1))], charges=("gpu",))
    lab = a_tenant("vision-lab", plan=plan, accounts=[(cluster, "vision")])
    by_hand(lab)
    ingest(cluster, a_job(started="2026-04-05 10:00", ended="2026-04-05 13:00"))
    assert sums(files(), "ChargeDescription") == {APRIL: {("Setup",): 25}, MAY: {}}
    ingest(cluster, a_job(started="2026-05-06 10:00", ended="2026-05-06 15:00"))

    assert lab.periods.filter(closed_at=None).count() == 2
    assert sums(files(), "ChargeDescription") == {APRIL: {}, MAY: {("GPU time",): 10, ("Setup",): 25}}


def test_the_page_and_the_api_say_the_same_as_csv_and_parquet() -> None:
    import pyarrow.parquet as pq

    lab = a_lab()
    ann = a_person("ann@vision.example", lab)
    client, key = signed_in(ann), door(ann, lab)
    for month, amount in ((APRIL, Decimal(6)), (MAY, Decimal(10))):
        content = bytes(client.get(f"/t/vision-lab/exports/focus?period={month}").getvalue())
        rows = list(csv.DictReader(io.StringIO(content.decode())))
        assert (total(rows), {row["x_Status"] for row in rows}) == (amount, {"preliminary"})
        assert key.get(f"/exports/focus?period={month}").raw == content
        parquet = key.get(f"/exports/focus?period={month}&format=parquet").raw
        assert sum(pq.read_table(io.BytesIO(parquet)).column("BilledCost").to_pylist()) == amount
