"""A price in use comes to something else on all of its days: no rated row changes, documents bill the difference."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction

from billing.catalog import plans, third_party_payers
from billing.catalog.plans import PlanError
from billing.models import Invoice, PlanVersion, Price, PriceCorrection, RatedJob, Wallet, WalletDay
from billing.queries import job_parts, jobs
from billing.rating import reratings
from billing.rules.meters import PerUnit, PriceModel
from billing.rules.money import TOKENS
from billing.rules.tiers import Graduated
from billing.wallets import booking
from clusters.models import Cluster
from portal.core.outbox import outbox
from portal.core.outbox.models import OutboxMessage
from portal.core.tenants.models import Corrections, Tenant
from tests import evidence
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.configuring_terms import SELLER, apply, refused
from tests.history import history
from tests.on_terms import a_lab, billed, used
from tests.stories import close, closed, invoice_of, lines_of, prove, total
from tests.terms import GRADUATED, STEPS, TENS, TWO_DOLLARS, VOLUME, a_version

pytestmark = pytest.mark.django_db

WHY = "the contract says so"


def correct(version: PlanVersion, model: PriceModel, place: int = 0) -> Price:
    price = version.prices.order_by("position")[place]
    return plans.correct_price(price=price, model=model, reason=WHY)


def dollars(amount: str) -> PerUnit:
    return PerUnit(Decimal(amount))


def rated_rows() -> list[Any]:
    """Every rated row, with where it lies and who wrote it: what is rewritten is another."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tableoid, ctid::text, xmin::text, id FROM billing_ratedusage ORDER BY id")
        return list(cursor.fetchall())


def verify(invoice: Invoice, at: Path) -> None:
    at.mkdir()
    evidence.agrees(evidence.bundle(invoice), at)


@pytest.fixture
def standard() -> PlanVersion:
    return a_version(TWO_DOLLARS)


@pytest.fixture
def lab(standard: PlanVersion) -> tuple[Cluster, Tenant]:
    return a_lab(standard)


def test_a_dearer_price_is_billed_with_the_next_invoice_and_no_rated_row_is_written(
    standard: PlanVersion, lab: tuple[Cluster, Tenant], tmp_path: Path
) -> None:
    cluster, tenant = lab
    used(cluster, 10, day="2026-03-10")
    closed("2026-03", tenant)
    used(cluster, 4, day="2026-04-10")
    before = rated_rows()

    correct(standard, dollars("2.50"))
    closed("2026-04", tenant)

    assert rated_rows() == before
    assert not OutboxMessage.objects.filter(task="billing.tasks.rate_tenants").exists()
    assert billed(tenant, "2026-03") == [("2026-03", "GPU time", "20.00")]
    assert billed(tenant, "2026-04") == [
        ("2026-04", "GPU time", "10.00"),
        ("2026-03", "GPU time, price corrected from $2.00 to $2.50", "5.00"),
    ]
    prove()
    for month in ("2026-03", "2026-04"):
        verify(invoice_of(tenant, month), tmp_path / month)


def test_a_cheaper_price_is_credited(
    standard: PlanVersion, lab: tuple[Cluster, Tenant], tmp_path: Path
) -> None:
    cluster, tenant = lab
    tenant.corrections = Corrections.CREDIT_NOTE
    tenant.save()
    used(cluster, 10, day="2026-03-10")
    closed("2026-03", tenant)

    correct(standard, dollars("1.50"))
    closed("2026-04", tenant)

    (note,) = Invoice.objects.issued().filter(kind="credit-note")
    assert (note.original, total(note)) == (invoice_of(tenant, "2026-03"), "-5.00")
    assert [line.description for line in lines_of(note)] == ["GPU time, price corrected from $2.00 to $1.50"]
    prove()
    verify(note, tmp_path / "note")


def test_use_that_comes_late_stands_beside_the_correction_at_the_price_of_now(
    standard: PlanVersion, lab: tuple[Cluster, Tenant], tmp_path: Path
) -> None:
    cluster, tenant = lab
    used(cluster, 10, day="2026-03-10")
    closed("2026-03", tenant)
    used(cluster, 2, day="2026-03-11")
    correct(standard, dollars("2.50"))
    closed("2026-04", tenant)

    corrections = [line for line in lines_of(invoice_of(tenant, "2026-04")) if line.correction]
    assert [(int(line.seconds_num), line.unit_price, line.amount) for line in corrections] == [
        (0, Decimal("2.50"), 500),
        (7200, Decimal("2.50"), 500),
    ]
    prove()
    verify(invoice_of(tenant, "2026-04"), tmp_path / "april")


@pytest.mark.parametrize(
    "models",
    [
        pytest.param((TWO_DOLLARS, GRADUATED, TWO_DOLLARS), id="tiers-and-back"),
        pytest.param((GRADUATED, Graduated(STEPS[1:]), VOLUME), id="other-tiers", marks=pytest.mark.peers),
        pytest.param((VOLUME, TENS, dollars("0")), id="packages-then-free"),
        pytest.param((dollars("0"), TWO_DOLLARS, TENS), id="free-then-not", marks=pytest.mark.peers),
    ],
)
def test_any_price_can_come_to_any_other(models: tuple[PriceModel, ...], tmp_path: Path) -> None:
    """Two projects' worth of months, each closed under what the price came to then."""
    version = a_version(models[0])
    cluster, tenant = a_lab(version)
    tenant.corrections = Corrections.NEXT_INVOICE
    tenant.save()
    used(cluster, 130, day="2026-03-10")
    for month, model in zip(("2026-03", "2026-04", "2026-05"), models, strict=True):
        used(cluster, 700, day=f"{month}-12")
        before = rated_rows()
        correct(version, model)
        assert rated_rows() == before
        closed(month, tenant)
        prove()
        for invoice in Invoice.objects.issued():
            verify(invoice, tmp_path / f"{month}-{invoice.pk}")


def test_the_job_page_shows_what_was_invoiced_and_what_the_correction_adds(
    standard: PlanVersion, lab: tuple[Cluster, Tenant]
) -> None:
    cluster, tenant = lab
    used(cluster, 10, day="2026-03-10")
    closed("2026-03", tenant)
    correct(standard, dollars("2.50"))
    correct(standard, dollars("3"))

    def pieces() -> list[tuple[str, str, str]]:
        job, parts = jobs.job(tenant, RatedJob.objects.get().record_id)
        assert job.cost is not None
        assert job.cost.amount == sum(piece.cost.amount for piece in parts if piece.cost)
        return [
            (f"{piece.tag.unit_price.normalize():f}", f"{piece.cost.rounded().text}", piece.invoice)
            for piece in parts
            if piece.tag and piece.cost
        ]

    march = invoice_of(tenant, "2026-03").number or ""
    assert pieces() == [("2", "20.00", march), ("2.5", "5.00", ""), ("3", "5.00", "")]
    closed("2026-04", tenant)
    april = invoice_of(tenant, "2026-04").number or ""
    assert pieces() == [("2", "20.00", march), ("2.5", "5.00", april), ("3", "5.00", april)]


def test_lists_of_the_most_expensive_jobs_follow_at_once() -> None:
    version = a_version((TWO_DOLLARS, {"gpu_model": ["a100"]}), (dollars("3"), {"gpu_model": ["h100"]}))
    cluster, tenant = a_lab(version)
    used(cluster, 4, day="2026-03-10", gpu_model="a100")
    used(cluster, 3, day="2026-03-11", gpu_model="h100")
    period = tenant.periods.get(start__month=3, start__day=1)

    def models() -> list[str]:
        return [job.row.gpu_model for job in job_parts.top_jobs(tenant, period, limit=8)]

    assert models() == ["h100", "a100"]
    correct(version, dollars("4"))
    assert models() == ["a100", "h100"]
    assert not OutboxMessage.objects.filter(task="billing.tasks.rate_tenants").exists()


def test_jobs_of_several_prices_are_placed_anew_by_rating_that_writes_no_rated_row() -> None:
    version = plans.new_version(
        plan=plans.set_plan(name="standard", currency="USD"),
        effective_from=date(2026, 1, 1),
        charges=["gpu", "cpu"],
    )
    for meter in ("gpu-hour", "cpu-core-hour"):
        plans.set_price(
            version=version, meter=meter, where={}, model=TWO_DOLLARS, valid_from=date(2026, 1, 1)
        )
    cluster, tenant = a_lab(version)
    ingest(
        cluster,
        a_job(account="vision", gpus=4, cpu_milli=2000, started="2026-03-10 10:00", ended="2026-03-10 11:00"),
    )
    (job,) = RatedJob.objects.all()
    assert job.cost_price_id is None
    before = rated_rows()

    correct(version, dollars("3"))

    (message,) = OutboxMessage.objects.filter(task="billing.tasks.rate_tenants")
    assert message.kwargs == {"tenant_ids": [tenant.pk], "order_only": True}
    assert reratings.find_tenants([tenant.pk]) == set()  # a close does not wait for it
    assert outbox.consume(message.pk)
    assert rated_rows() == before
    assert RatedJob.objects.get().cost_units == job.cost_units + 4


def test_asked_again_nothing_changes_and_the_history_says_who_and_why(
    standard: PlanVersion, lab: object
) -> None:
    used(lab[0], 10)  # type: ignore[index]
    correct(standard, dollars("2.50"))
    correct(standard, dollars("2.50"))
    assert [(row.unit_price, row.reason) for row in PriceCorrection.objects.all()] == [(Decimal(2), WHY)]
    assert [row[-1] for row in history(Price, "unit_price")] == [Decimal(2), Decimal("2.5")]


def test_a_price_in_use_changes_in_nothing_else(standard: PlanVersion, lab: tuple[Cluster, Tenant]) -> None:
    used(lab[0], 10)
    price = standard.prices.get()
    with pytest.raises(PlanError, match="as `correction`"):
        plans.set_price(
            version=standard, meter="gpu-hour", where={}, model=dollars("3"), valid_from=price.valid_from
        )
    with pytest.raises(PlanError, match="Say why"):
        plans.correct_price(price=price, model=dollars("3"), reason=" ")
    price.valid_from = date(2026, 2, 1)
    price.unit_price = Decimal(3)
    with pytest.raises(PlanError, match="Nothing else of it can change"):
        plans.save_price(price, correction=WHY)
    assert not PriceCorrection.objects.exists()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE billing_price SET unit_price = 3",
        "UPDATE billing_price SET unit_price = 3, corrected_through = 99999",
        """INSERT INTO billing_pricecorrection (number, price_id, model, scale, unit_price, reason)
        SELECT 99999, id, model, scale, 7, 'no' FROM billing_price;
        UPDATE billing_price SET unit_price = 3, corrected_through = 99999""",
        "UPDATE billing_price SET valid_from = '2026-02-01', corrected_through = 99999",
    ],
)
def test_the_database_refuses_an_amount_that_nothing_keeps(
    standard: PlanVersion, lab: tuple[Cluster, Tenant], statement: str
) -> None:
    used(lab[0], 10)
    refused = pytest.raises(DatabaseError, match="correct its amount")
    with refused, transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


def test_what_a_price_came_to_stays(standard: PlanVersion, lab: tuple[Cluster, Tenant]) -> None:
    used(lab[0], 10)
    correct(standard, dollars("2.50"))
    with pytest.raises(DatabaseError), transaction.atomic():
        PriceCorrection.objects.update(unit_price=1)
    with pytest.raises(DatabaseError), transaction.atomic():
        PriceCorrection.objects.all().delete()


def test_wallets_are_charged_the_difference_day_by_day() -> None:
    plan = a_plan("tokens", TOKENS, prices=[("gpu-hour", {}, "0.5", LONG_AGO)], settles="wallet")
    cluster = a_cluster(complete_through="2026-06-01")
    tenant = a_tenant(plan=plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision")])
    used(cluster, 10, day="2026-03-10")
    used(cluster, 4, day="2026-03-11")
    booking.book(tenant=tenant, moment=at("2026-04-01"))
    before = rated_rows()

    correct(plan.versions.get(), dollars("2"))
    assert booking.book_due(moment=at("2026-04-02")) == 1

    assert [(str(day.day), day.booked) for day in WalletDay.objects.order_by("day")] == [
        ("2026-03-10", 20_000_000),
        ("2026-03-11", 8_000_000),
    ]
    assert Wallet.objects.get().balance == -28_000_000
    assert rated_rows() == before
    assert booking.book_due(moment=at("2026-04-02")) == 0
    prove()


def test_who_pays_for_another_is_billed_the_difference(
    standard: PlanVersion, lab: tuple[Cluster, Tenant]
) -> None:
    cluster, tenant = lab
    payer = a_tenant("uni", plan=standard.plan, plan_from=date(2026, 3, 1))
    third_party_payers.pay_for(tenant=tenant, payer=payer, since=date(2026, 3, 1))
    used(cluster, 10, day="2026-03-10")
    close("2026-03", tenant, payer)
    correct(standard, dollars("2.50"))
    close("2026-04", tenant, payer)
    assert billed(payer, "2026-04") == [
        ("2026-03", "GPU time, price corrected from $2.00 to $2.50", "5.00"),
    ]
    prove()


FILE = """
[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01

[[plan.price]]
meter = "gpu-hour"
unit_price = "{amount}"
{more}
"""


def test_a_file_corrects_a_price_where_it_says_why() -> None:
    apply(SELLER + FILE.format(amount="2", more=""))
    version = PlanVersion.objects.get()
    cluster, tenant = a_lab(version)
    used(cluster, 10, day="2026-03-10")
    closed("2026-03", tenant)
    before = rated_rows()

    (sentence,) = refused(FILE.format(amount="2.50", more=""))
    assert "give the reason as `correction`" in sentence
    text = FILE.format(amount="2.50", more='correction = "as agreed in May"')
    assert (
        apply(text)[0]
        == "plan standard from 2026-01-01, price of gpu-hour for any use from 2026-01-01: unit price 2 -> 2.5"
    )
    assert apply(text) == ["Nothing to change."]

    assert rated_rows() == before
    assert PriceCorrection.objects.get().reason == "as agreed in May"
    closed("2026-04", tenant)
    assert total(invoice_of(tenant, "2026-04")) == "5.00"
