"""An invoice that took something off for an earlier month is credited up to its total, and no month is paid twice."""

from __future__ import annotations

import random
from collections.abc import Mapping
from datetime import date
from decimal import Decimal

import pytest

from billing.catalog import version_terms
from billing.invoicing import credit_note_previews, credit_notes
from billing.invoicing.credit_notes import CreditError
from billing.models import DocumentKind, Invoice, InvoiceLine, LineKind
from billing.receivables import settlement
from billing.rules.money import Money
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import LATER, a_cluster, a_job, a_plan, a_tenant, ingest
from tests.stories import closed, invoice_of, printed, prove
from tests.terms import TWO_DOLLARS, a_version

pytestmark = pytest.mark.django_db

MONTHS = ("2026-03", "2026-04", "2026-05", "2026-06")


def ran(gpu_hours: int, month: str, account: str = "vision", key: str = "1") -> None:
    """The month's job with that key held so many GPUs for an hour, whatever was known of it before."""
    ingest(
        a_cluster(complete_through="2026-09-01"),
        a_job(
            source_key=f"{account}/{month}/{key}",
            account=account,
            gpus=gpu_hours,
            started=f"{month}-02 10:00",
            ended=f"{month}-02 11:00",
        ),
    )


def a_lab(
    policy: str = Corrections.NEXT_INVOICE, *, april: int = 240, taxes: tuple[int, int] = (0, 0)
) -> Tenant:
    """48.00 for March, of which April's invoice takes 40.00 off; April's own usage costs 480.00."""
    lab = a_tenant(
        plan=a_plan(), accounts=[(a_cluster(complete_through="2026-09-01"), "vision")], corrections=policy
    )
    for month, gpu_hours, tax in zip(MONTHS, (24, april), taxes, strict=False):
        Tenant.objects.update(tax_rate=tax)
        ran(gpu_hours, month)
        if month == "2026-04":
            ran(4, "2026-03")
        closed(month, Tenant.objects.get())
    return lab


def credit(invoice: Invoice, net: str | None = None, position: int | None = None) -> Invoice:
    money = Money.of(net, "USD") if net else None
    return credit_notes.issue_credit_note(
        invoice=invoice, reason="Slow.", by="op", on=date(2026, 8, 1), net=money, position=position
    )


def due(invoice: Invoice) -> str:
    return settlement.load_balance(invoice=invoice, on=date(2026, 8, 1)).due.text


def test_an_invoice_that_took_something_off_is_credited_for_what_it_came_to() -> None:
    april = invoice_of(a_lab(), "2026-04")
    assert [row[-1] for row in printed(april)] == ["480.00", "-40.00"]

    preview = credit_note_previews.preview_credit(invoice=april, on=date(2026, 8, 1), moment=LATER)
    assert preview.credited.text == "440.00"
    stays = "Of its charges 40.00 before tax stay, since it took off as much for earlier periods: "
    assert preview.sentence.endswith(f"{stays}to give them back, too, add a line by hand.")
    for too_much in ("440.01", "450", "481"):
        with pytest.raises(CreditError, match=r"Only 440\.00 USD are left to credit, before tax"):
            credit(april, too_much)
    part = credit_note_previews.preview_credit(
        invoice=april, on=date(2026, 8, 1), moment=LATER, net=Money.of("100", "USD")
    )
    assert "before tax stay" not in part.sentence
    assert credit(april, "100").total == -100_00
    assert credit(april).total == -340_00
    assert due(april) == "0.00"
    with pytest.raises(CreditError, match="Nothing is left to credit"):
        credit(april)
    assert credit(invoice_of(april.tenant, "2026-03")).total == -8_00  # April took the rest off
    prove()


def test_a_line_is_credited_no_further_than_its_invoice() -> None:
    april = invoice_of(a_lab(), "2026-04")
    assert credit(april, position=1).total == -440_00
    with pytest.raises(CreditError, match="Nothing is left to credit"):
        credit(april, position=2)


def test_an_invoice_of_nothing_cannot_be_credited() -> None:
    april = invoice_of(a_lab(april=20), "2026-04")
    assert april.total == 0
    with pytest.raises(CreditError, match="Nothing is left to credit"):
        credit(april)


def test_a_minimum_that_late_usage_replaced_is_credited_with_what_stands_in_its_place() -> None:
    """A minimum of 50.00 less 10 %: 45.00 for March; then 25 GPU-hours of March come late."""
    version = a_version(TWO_DOLLARS)
    version_terms.set_commitment(version=version, name="Minimum", amount=Decimal(50))
    version_terms.set_discount(
        version=version, name="Ten per cent", percent=Decimal(10), valid_from=date(2026, 3, 1)
    )
    lab = a_tenant(
        plan=version.plan,
        plan_from=date(2026, 3, 1),
        accounts=[(a_cluster(complete_through="2026-09-01"), "vision")],
        corrections=Corrections.CREDIT_NOTE,
    )
    closed("2026-03", lab)
    ran(25, "2026-03")
    ran(50, "2026-04")
    closed("2026-04", lab)

    april = invoice_of(lab, "2026-04")
    assert credit(april).total == -april.total == -90_00
    prove()


@pytest.mark.parametrize("taxes", [(20, 0), (0, 20), (20, 7), (7, 20)])
def test_with_taxes_of_two_rates_nothing_is_left_to_pay_and_nothing_is_owed_back(
    taxes: tuple[int, int],
) -> None:
    april = invoice_of(a_lab(taxes=taxes), "2026-04")
    assert credit(april, "200").subtotal == -200_00

    credit(april)

    assert due(april) == "0.00"
    prove()


@pytest.mark.parametrize("policy", Corrections.values)
@pytest.mark.parametrize("taxes", [(0, 0), (20, 0), (0, 20)])
def test_usage_that_vanishes_after_its_invoice_was_credited_gives_back_what_was_not(
    policy: str, taxes: tuple[int, int]
) -> None:
    """Of April's 480.00 nearly 440.00 were credited: 40.00 were paid by what March gave back."""
    lab = a_lab(taxes=taxes)
    Tenant.objects.update(corrections=policy)
    april = invoice_of(lab, "2026-04")
    credit(april)

    ran(0, "2026-04")
    ran(100, "2026-05")
    closed("2026-05", lab)
    closed("2026-06", lab)

    assert sum(Invoice.objects.values_list("subtotal", flat=True)) == 8_00 + 200_00
    assert int(due(april).split(".")[0]) >= 0
    with pytest.raises(CreditError, match="Nothing is left to credit"):
        credit(april)
    prove()


def test_a_correction_of_an_invoice_of_which_no_money_is_left_goes_on_the_next_one() -> None:
    """March's 40.00 were taken off with 20 % tax: April's invoice came to 432.00, which are credited without tax."""
    lab = a_lab(taxes=(20, 0))
    Tenant.objects.update(corrections=Corrections.CREDIT_NOTE)
    assert credit(invoice_of(lab, "2026-04")).total == -432_00

    ran(238, "2026-04")
    ran(100, "2026-05")
    closed("2026-05", lab)

    assert [row[-1] for row in printed(invoice_of(lab, "2026-05"))] == ["200.00", "-4.00"]
    prove()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_corrected_and_credited_in_turn_each_month_is_billed_once(seed: int) -> None:
    """Audio Lab has the same usage, known from the beginning, and is credited nothing."""
    dice = random.Random(seed)
    version = a_version(TWO_DOLLARS)
    version_terms.set_discount(
        version=version, name="Ten per cent", percent=Decimal(10), valid_from=date(2026, 3, 1)
    )
    if seed % 2:
        version_terms.set_commitment(version=version, name="Minimum", amount=Decimal(50))
    cluster = a_cluster(complete_through="2026-09-01")
    lab, other = (
        a_tenant(
            slug,
            plan=version.plan,
            plan_from=date(2026, 3, 1),
            accounts=[(cluster, account)],
            corrections=dice.choice(Corrections.values),
        )
        for slug, account in (("vision-lab", "vision"), ("audio-lab", "audio"))
    )
    used: dict[str, int] = {}
    for month in MONTHS:
        Tenant.objects.update(tax_rate=dice.choice([0, 7, 20]))
        _change(dice, used, month)
        closed(month, Tenant.objects.get(pk=lab.pk))
        _credit_some(dice)
    for month in ("2026-07", "2026-08"):
        ran(500, month)
        ran(500, month, "audio")
        closed(month, lab)
    for month, gpu_hours in used.items():
        ran(gpu_hours, month, "audio")
    for month in (*MONTHS, "2026-07", "2026-08"):
        closed(month, other)

    assert _billed(lab) == _billed(other)
    assert sum(Invoice.objects.filter(tenant=lab).values_list("total", flat=True)) >= 0
    for invoice in Invoice.objects.filter(tenant=lab).exclude(kind=DocumentKind.CREDIT_NOTE):
        assert settlement.load_balance(invoice=invoice, on=date(2026, 8, 1)).due.amount >= 0
    prove()


def _change(dice: random.Random, used: dict[str, int], month: str) -> None:
    used[month] = dice.randrange(10, 300)
    for changed in {month, *dice.sample(sorted(used), k=dice.randrange(len(used) + 1))}:
        used[changed] = used[changed] if changed == month else dice.randrange(300)
        ran(used[changed], changed)


def _credit_some(dice: random.Random) -> None:
    """Of some invoices all that is left, a line, or an amount, as far as they may be credited."""
    invoices = Invoice.objects.exclude(kind=DocumentKind.CREDIT_NOTE).order_by("pk")
    for invoice in dice.choices(list(invoices), k=3):
        net, position = dice.choice([(None, None), (None, 1), (f"{dice.randrange(1, 300)}.37", None)])
        try:
            credit(invoice, net, position)
        except CreditError:
            continue


def _billed(tenant: Tenant) -> Mapping[str, int]:
    """By month of use, in cents, without what was credited by hand."""
    sums: dict[str, int] = {}
    lines = InvoiceLine.objects.filter(tenant=tenant).exclude(kind=LineKind.CREDIT)
    for line in lines.select_related("service_period"):
        month = f"{line.service_period.start:%Y-%m}"
        sums[month] = sums.get(month, 0) + line.amount
    return sums
