"""Op issues nothing in nobody's name, and nothing without having confirmed it."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from billing.invoicing import month_close
from billing.invoicing.month_close import Outcome, TenantClose
from billing.models import Invoice, InvoiceSeries, Seller
from portal.core.tenants.models import Tenant
from portal.ops.management.commands import close_period
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest

pytestmark = pytest.mark.django_db


@pytest.fixture
def lab() -> Tenant:
    """Two GPU-hours in March, at 2.00."""
    cluster = a_cluster()
    lab = a_tenant(plan=a_plan(prices=[("gpu-hour", {}, "2.00", LONG_AGO)]), accounts=[(cluster, "vision")])
    ingest(
        cluster,
        a_job(account="vision", started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        as_of="2026-04-02",
    )
    return lab


def close(lab: Tenant, *, preview: bool = False) -> TenantClose:
    (outcome,) = month_close.close_month(
        tenants=[lab], year=2026, month=3, moment=at("2026-04-02"), preview=preview
    )
    return outcome


@pytest.mark.parametrize("preview", [True, False])
def test_without_a_seller_nothing_is_issued_and_the_preview_says_so(lab: Tenant, *, preview: bool) -> None:
    Seller.objects.all().delete()
    outcome = close(lab, preview=preview)
    assert outcome.outcome is Outcome.BLOCKED
    assert [block.code for block in outcome.blocks] == ["no-seller"]
    assert outcome.reason == (
        "Nobody is entered as the seller: enter name and address in the administration under Sellers, or as [seller] "
        "in a file for apply."
    )
    assert not Invoice.objects.exclude(number=None).exists()
    assert not InvoiceSeries.objects.exists()  # no number is used up
    a_seller()
    assert close(lab).outcome is Outcome.ISSUED


@pytest.mark.parametrize(
    ("fields", "lacks"),
    [
        ({"address": " "}, "The seller has no address: enter it"),
        ({"country": "DE"}, "The seller has no VAT id (or tax number, as registration): enter it"),
        ({"address": "", "country": "FR"}, "The seller has no address and no VAT id"),
    ],
)
def test_a_seller_who_lacks_what_the_law_wants_issues_nothing(
    lab: Tenant, fields: dict[str, str], lacks: str
) -> None:
    Seller.objects.update(**fields)
    assert close(lab).reason.startswith(lacks)


@pytest.mark.parametrize(
    "fields",
    [
        {"country": "DE", "vat_id": "DE811234565"},
        {"country": "DE", "registration": "Steuernummer 22/815/08154"},
        {"country": "US"},
    ],
)
def test_a_seller_who_has_it_issues(lab: Tenant, fields: dict[str, str]) -> None:
    Seller.objects.update(**fields)
    assert close(lab).outcome is Outcome.ISSUED


def test_a_month_without_anything_to_bill_needs_no_seller() -> None:
    idle = a_tenant(plan=a_plan(prices=[("gpu-hour", {}, "2.00", LONG_AGO)]))
    Seller.objects.all().delete()
    assert close(idle).outcome is Outcome.NOTHING


class Terminal(StringIO):
    """A person who answers."""

    def isatty(self) -> bool:
        return True


def test_close_period_asks_on_a_terminal_and_a_script_says_yes(
    lab: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    del lab
    monkeypatch.setattr(close_period.Command, "_called_from_command_line", True)
    monkeypatch.setattr("portal.ops.schema.refuse_unmigrated", lambda: None)

    def run(answer: StringIO, **options: Any) -> str:
        monkeypatch.setattr("sys.stdin", answer)
        stderr = StringIO()
        call_command(
            "close_period", "2026-03", as_of="2026-04-02", stdout=StringIO(), stderr=stderr, **options
        )
        return stderr.getvalue()

    with pytest.raises(SystemExit) as refused:
        run(StringIO())
    assert refused.value.code == 2
    with pytest.raises(SystemExit) as refused:
        run(Terminal("n\n"))
    assert refused.value.code == 1
    run(StringIO(), dry_run=True)
    assert not Invoice.objects.exclude(number=None).exists()
    assert "2026-03: 1 of 1 tenants have invoices, 4.00 USD in all. Issue them? [y/N]" in run(
        Terminal("yes\n")
    )
    assert Invoice.objects.get().number == "INV-2026-0001"
    assert run(StringIO(), yes=True) == ""
