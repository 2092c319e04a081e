"""What an open period has come to: the figure of its page is what its close would say at that moment."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from decimal import Decimal

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from billing.catalog import version_terms
from billing.invoicing import credit_notes, manual_lines
from billing.models import BillingPeriod, PlanVersion
from billing.queries import overview as reading
from billing.queries.accrued_charges import accrued
from billing.queries.costs import per_currency
from billing.queries.spending import spending
from billing.rules.money import Money
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from portal.languages import in_language
from tests import builders, stories
from tests.terms import GRADUATED, TENS, TWO_DOLLARS, VOLUME, a_version
from tests.web.clock import stand_at
from tests.web.house import page
from tests.web.test_overview import words

pytestmark = pytest.mark.django_db

Make = Callable[[], PlanVersion]


def with_fee(version: PlanVersion, *, in_advance: bool = False) -> PlanVersion:
    version_terms.set_fee(
        version=version, name="Platform fee", amount=Decimal("50.00"), in_advance=in_advance
    )
    return version


def with_commitment(version: PlanVersion, factor: str = "1") -> PlanVersion:
    version_terms.set_commitment(version=version, amount=Decimal(1000), overage_factor=Decimal(factor))
    return version


def with_discount(version: PlanVersion) -> PlanVersion:
    version_terms.set_discount(
        version=version, name="Friends", valid_from=builders.LONG_AGO, percent=Decimal(10)
    )
    return version


PLANS: dict[str, Make] = {
    "per unit": lambda: a_version(TWO_DOLLARS),
    "graduated": lambda: a_version(GRADUATED),
    "volume": lambda: a_version(VOLUME),
    "package": lambda: a_version(TENS),
    "allowance": lambda: a_version(
        (GRADUATED, {"gpu_model": ["a100"]}), (TWO_DOLLARS, {"gpu_model": ["h100"]}), allowance="40"
    ),
    "fee": lambda: with_fee(a_version(TWO_DOLLARS)),
    "fee in advance": lambda: with_fee(a_version(TWO_DOLLARS), in_advance=True),
    "commitment": lambda: with_commitment(a_version(TWO_DOLLARS)),
    "overage": lambda: with_commitment(a_version(VOLUME), "1.5"),
    "all of it": lambda: with_commitment(with_discount(with_fee(a_version(GRADUATED, allowance="10")))),
}


def a_lab(version: PlanVersion) -> tuple[Cluster, Tenant]:
    """Two projects on the plan since March began."""
    cluster = builders.a_cluster()
    lab = builders.a_tenant(
        plan=version.plan, plan_from=date(2026, 3, 1), accounts=[(cluster, "vision"), (cluster, "robots")]
    )
    return cluster, lab


def half_of_march(cluster: Cluster, gpus: int = 10, model: str = "a100") -> None:
    """An hour of so many GPUs each day, and one of them that runs since noon of the 14th; read through that day."""
    days = [
        builders.a_job(
            gpus=gpus, gpu_model=model, started=f"2026-03-{n:02} 10:00", ended=f"2026-03-{n:02} 11:00"
        )
        for n in range(1, 15)
    ]
    running = builders.a_job(
        job_id="running",
        gpu_model=model,
        started="2026-03-14 12:00",
        ended=None,
        seen_until="2026-03-15 00:00",
        state="RUNNING",
    )
    builders.ingest(cluster, *days, running, as_of="2026-03-15")


def march(lab: Tenant) -> BillingPeriod:
    return lab.periods.get(start=builders.at("2026-03-01"))


def previewed(lab: Tenant, month: str = "2026-03") -> Money:
    """What a close would say, before tax: these tenants pay none."""
    (outcome,) = stories.close(month, lab, accept="it is only previewed", preview=True)
    assert outcome.total is not None, outcome
    return sum((related_document.total for related_document in outcome.related_documents), outcome.total)


def shown(lab: Tenant) -> list[Money]:
    """What the page says of March: by the statement, or by prices of single units."""
    charges = accrued(tenant=lab, period=march(lab))
    if charges is not None:
        return charges.due
    with tenant_scope(lab):
        return reading.overview(lab, march(lab), None, today=date(2026, 3, 15)).spend


@pytest.mark.parametrize("plan", PLANS)
def test_what_has_accrued_is_what_a_close_would_say_now(plan: str) -> None:
    cluster, lab = a_lab(PLANS[plan]())
    half_of_march(cluster)
    builders.ingest(cluster, builders.a_job(account="robots", gpu_model="h100", gpus=7))
    assert shown(lab) == [previewed(lab)]


def test_late_usage_an_advance_fee_and_a_line_by_hand_add_up_to_the_next_invoice() -> None:
    cluster, lab = a_lab(PLANS["fee in advance"]())
    half_of_march(cluster)
    stories.close("2026-03", lab, accept="early")  # 152 hours at 2.00, the fees of March and of April
    assert stories.total(stories.invoice_of(lab, "2026-03")) == "404.00"
    builders.ingest(
        cluster,
        builders.a_job(started="2026-03-20 10:00", ended="2026-03-20 15:00"),
        builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"),
        as_of="2026-04-04",
    )
    net = Money.from_minor(2500, "USD")
    manual_lines.add_manual_line(
        tenant=lab, description="Support", net=net, reason="agreed", by="op", on=date(2026, 4, 3)
    )
    april = lab.periods.get(start=builders.at("2026-04-01"))
    charges = accrued(tenant=lab, period=april)
    assert charges is not None
    assert [amount.text for amount in charges.sums] == ["52.00"]
    assert [(name, amount.text) for name, amount in charges.extras] == [
        ("Billed already", "-50.00"),
        ("Earlier periods, not billed yet", "10.00"),
        ("Fees billed in advance", "50.00"),
        ("Lines added by hand", "25.00"),
    ]
    with in_language("de"):
        german = accrued(tenant=lab, period=april)
    assert german is not None
    assert [name for name, _ in german.extras] == [
        "Bereits abgerechnet",
        "Frühere Zeiträume, noch nicht abgerechnet",
        "Im Voraus berechnete Gebühren",
        "Von Hand ergänzte Positionen",
    ]
    assert charges.due == [previewed(lab, "2026-04")]
    assert charges.due[0].text == "87.00"
    assert not lab.periods.filter(start__gt=april.start).exists()  # looking made no period


def test_what_was_credited_by_hand_and_is_not_taken_back_again_is_in_the_next_invoice() -> None:
    """50 hours of March are billed, 30.00 of their 100.00 are credited, and then it turns out that it were 10 hours."""
    cluster, lab = a_lab(a_version(TWO_DOLLARS))
    builders.ingest(
        cluster, builders.a_job(source_key="7", started="2026-03-02 10:00", ended="2026-03-04 12:00")
    )
    stories.closed("2026-03", lab, accept="all of it is there")
    credit_notes.issue_credit_note(
        invoice=stories.invoice_of(lab, "2026-03"), reason="Goodwill", by="op", on=date(2026, 4, 5),
        net=Money.of("30.00", "USD"),
    )  # fmt: skip
    builders.ingest(
        cluster, builders.a_job(source_key="7", started="2026-03-02 10:00", ended="2026-03-02 20:00")
    )
    april = lab.periods.filter(start=builders.at("2026-04-01"))
    builders.ingest(cluster, builders.a_job(gpus=100, started="2026-04-20 10:00", ended="2026-04-20 11:00"))
    charges = accrued(tenant=lab, period=april.get())
    assert charges is not None
    extras = [(name, amount.text) for name, amount in charges.extras]
    assert extras == [("Earlier periods, not billed yet", "-80.00"), ("Credited before", "10.00")]
    assert [amount.text for amount in charges.due] == ["130.00"]
    assert charges.due == [previewed(lab, "2026-04")]


def test_fees_of_years_without_use_are_told_and_looking_writes_nothing() -> None:
    """On the plan since 2020, and nothing used before March 2026: 74 months owe a fee that no period is kept for."""
    cluster, lab = builders.a_cluster(), a_lab_since(date(2020, 1, 1), PLANS["all of it"]())
    builders.own(lab, cluster, "vision")
    half_of_march(cluster)
    period = march(lab)
    assert lab.periods.count() <= 2
    with CaptureQueriesContext(connection) as queries:
        charges = accrued(tenant=lab, period=period)
    texts = [query["sql"] or "" for query in queries]  # "": a statement that the connection had prepared
    assert not [text for text in texts if text.startswith(("INSERT", "SAVEPOINT"))]
    assert charges is not None
    (_, earlier) = charges.extras[0]
    # Each month the commitment of 1,000.00 and the fee of 50.00, less 10 %.
    assert (charges.extras[0][0], earlier.text) == ("Earlier periods, not billed yet", "69930.00")
    assert charges.due == [previewed(lab)]


def a_lab_since(day: date, version: PlanVersion) -> Tenant:
    return builders.a_tenant(plan=version.plan, plan_from=day)


def test_ann_reads_tiers_allowance_fee_and_discount_and_what_they_come_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    version = with_discount(with_fee(a_version(GRADUATED, allowance="10")))
    cluster, lab = a_lab(version)
    half_of_march(cluster)  # 152 hours, 10 of them included: 100 × 3.00 + 42 × 2.50
    ann = builders.a_person(tenant=lab)
    stand_at(monkeypatch, "2026-03-15 10:00")
    text = words(page(ann, "/t/vision-lab/"))
    assert "Spend to date $409.50 invoice preview" in text
    assert (
        "Invoice preview Use of this period $405.00 Platform fee $50.00 Friends -$45.50 "
        "Before tax $409.50" in text
    )
    # 246/7 a day at 3.00 for 17 days more: 351.142857 hours, of which 341.142857 are charged.
    assert "Forecast to 31 Mar 2026 about $857.57 Likely range from $701.75 to $1,013.39." in text
    assert "Spend at first unit’s prices, USD Day vision Total 1 Mar $30.00" in text
    assert "14 Mar 2026 $409.50 31 Mar 2026, expected $857.57" in text
    assert "at the first unit’s price" in text  # of jobs, which tiers do not tell one by one


def test_a_price_per_unit_is_carried_on_at_its_price(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, lab = a_lab(PLANS["per unit"]())
    builders.ingest(
        cluster,
        *(
            builders.a_job(gpus=10, started=f"2026-03-{n:02} 10:00", ended=f"2026-03-{n:02} 11:00")
            for n in range(1, 15)
        ),
        as_of="2026-03-15",
    )
    ann = builders.a_person(tenant=lab)
    stand_at(monkeypatch, "2026-03-15 10:00")
    html = page(ann, "/t/vision-lab/")
    text = words(html)
    assert "Spend to date $280.00" in text
    assert "about $620.00 Likely range from $620.00 to $620.00." in text
    assert "at the first unit’s price</span>" not in html
    assert "Invoice preview" not in text


def test_too_few_days_tell_no_band_and_still_fewer_no_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster, lab = a_lab(PLANS["per unit"]())
    ann = builders.a_person(tenant=lab)
    builders.ingest(
        cluster, builders.a_job(started="2026-03-01 10:00", ended="2026-03-01 11:00"), as_of="2026-03-02"
    )
    stand_at(monkeypatch, "2026-03-02 10:00")
    assert "A forecast takes three whole days of use; there is one so far." in words(
        page(ann, "/t/vision-lab/")
    )
    builders.ingest(
        cluster, builders.a_job(started="2026-03-04 10:00", ended="2026-03-04 11:00"), as_of="2026-03-05"
    )
    stand_at(monkeypatch, "2026-03-05 10:00")
    text = words(page(ann, "/t/vision-lab/"))
    assert "about $31.00 Based on your last 4 whole days" in text  # 1.00 a day for 27 days on top of 4.00
    assert "A likely range needs at least seven whole days." in text


def test_case_024_late_usage_before_the_close_refreshes_what_it_would_say() -> None:
    cluster, lab = a_lab(PLANS["graduated"]())
    half_of_march(cluster)
    assert previewed(lab).text == "430.00"  # 100 × 3.00 + 52 × 2.50
    builders.ingest(cluster, builders.a_job(gpus=8, started="2026-03-31 10:00", ended="2026-03-31 11:00"))
    assert shown(lab) == [previewed(lab)] == [Money.from_minor(45_000, "USD")]
    assert stories.closed("2026-03", lab, accept="late").total == Money.from_minor(45_000, "USD")


def test_monitoring_tells_the_same_spend_as_the_page() -> None:
    cluster, lab = a_lab(PLANS["all of it"]())
    half_of_march(cluster)
    charges = accrued(tenant=lab, period=march(lab))
    assert charges is not None
    spend = spending(moment=builders.at("2026-03-15 10:00"))
    assert [(amount.tenant, amount.amount) for amount in spend] == [
        ("vision-lab", per_currency(charges.sums)[0])
    ]


def test_while_a_month_is_open_its_charges_are_in_its_own_preview_alone() -> None:
    cluster, lab = a_lab(with_discount(PLANS["fee in advance"]()))
    half_of_march(cluster)
    builders.ingest(
        cluster,
        builders.a_job(started="2026-04-02 10:00", ended="2026-04-02 11:00"),
        as_of="2026-04-04",
    )
    net = Money.from_minor(2500, "USD")
    manual_lines.add_manual_line(
        tenant=lab, description="Support", net=net, reason="agreed", by="op", on=date(2026, 4, 3)
    )
    april = lab.periods.get(start=builders.at("2026-04-01"))

    of_march, of_april = accrued(tenant=lab, period=march(lab)), accrued(tenant=lab, period=april)

    assert of_march is not None
    assert of_april is not None
    assert [(name, amount.text) for name, amount in of_april.extras] == [
        ("On the invoice before this one", "-45.00"),
        ("Fees billed in advance", "45.00"),
    ]
    assert of_march.due == [previewed(lab)]
    stories.close("2026-03", lab, accept="early")
    assert of_april.due == [previewed(lab, "2026-04")]
