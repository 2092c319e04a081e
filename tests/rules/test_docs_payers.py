"""The figures of docs/explanation/amounts.md of who pays, computed again by a close."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.rules.money import Money
from tests import builders, stories
from tests.documentation import number, table
from tests.on_terms import used
from tests.paying import pays
from tests.terms import TWO_DOLLARS, a_version


@pytest.mark.django_db
def test_a_payer_from_11_april() -> None:
    rows = {row["paid by"]: row for row in table("explanation/amounts.md", "A payer from 11 April")}
    cluster = builders.a_cluster(complete_through="2026-06-01")
    version = a_version(TWO_DOLLARS, allowance="30")
    version_terms.set_fee(version=version, name="Base fee", amount=Decimal(300), in_advance=False)
    tenants = {
        "Vision Lab": builders.a_tenant(
            plan=version.plan, plan_from=date(2026, 4, 1), accounts=[(cluster, "vision")]
        ),
        "Physics": builders.a_tenant("physics", name="Physics"),
    }
    pays(tenants["Physics"], tenants["Vision Lab"], "2026-04-11")
    for row, day in zip(rows.values(), ("2026-04-05", "2026-04-20"), strict=True):
        used(cluster, int(row["GPU-hours used"]), day=day)
    stories.close("2026-04")
    for name, row in rows.items():
        invoice = stories.invoice_of(tenants[name], "2026-04")
        use, fee = stories.lines_of(invoice)
        amounts = [Money.from_minor(units, "USD") for units in (use.amount, fee.amount, invoice.total)]
        assert amounts == [Money(number(row[column]), "USD") for column in ("use", "base fee", "comes to")]
        assert int(use.terms["included"]) == number(row["included"]) * 3600
        assert fee.terms["seconds"] == number(row["days of April"].split()[0]) * 86_400
