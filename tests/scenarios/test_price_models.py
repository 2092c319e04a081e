"""Graduated, volume and package prices: each looks at all that a tenant used in the period, and is rounded once."""

from __future__ import annotations

from itertools import permutations

import pytest

from billing.documents.build import document_of
from billing.models import Invoice, Price
from billing.rules.meters import PriceModel
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_tenant, ingest
from tests.configuring_terms import apply, refused
from tests.scenarios.real import run
from tests.stories import closed, invoice_of, lines_of, printed, prove, total
from tests.terms import GRADUATED, TENS, VOLUME, a_plan_of

pytestmark = pytest.mark.django_db


def a_lab(model: PriceModel, *accounts: str) -> tuple[Cluster, Tenant]:
    """A cluster that is read through May, and a tenant on a plan of that one price; each account is a project."""
    cluster = a_cluster(complete_through="2026-06-01")
    names = accounts or ("vision",)
    return cluster, a_tenant(plan=a_plan_of(model), accounts=[(cluster, name) for name in names])


def used(cluster: Cluster, hours: int, account: str = "vision", **fields: str) -> None:
    ingest(cluster, a_job(account=account, gpus=hours, **fields))


@pytest.mark.parametrize(
    ("hours", "graduated", "volume"),
    [
        (100, "300.00", "300.00"),
        (500, "1300.00", "1250.00"),
        (501, "1302.00", "1002.00"),
        (1000, "2300.00", "2000.00"),
    ],
)
def test_case_031_graduated_and_volume_prices(hours: int, graduated: str, volume: str) -> None:
    cluster, vision = a_lab(GRADUATED)
    audio = a_tenant("audio-lab", plan=a_plan_of(VOLUME, name="bulk"), accounts=[(cluster, "audio")])
    used(cluster, hours)
    used(cluster, hours, "audio")

    assert closed("2026-03", vision).total.text == graduated  # type: ignore[union-attr]
    assert closed("2026-03", audio).total.text == volume  # type: ignore[union-attr]
    prove()


def test_case_031_a_second_above_a_bound_counts_in_the_next_tier() -> None:
    cluster, vision = a_lab(VOLUME)
    used(cluster, 100)
    ingest(cluster, a_job(ended="2026-03-02 10:00:01"))
    closed("2026-03", vision)
    assert printed(invoice_of(vision, "2026-03")) == [("2026-03", "vision", "360001/3600", "250.00")]


def test_case_031_the_invoice_says_the_tiers_and_the_cliff_of_a_volume_price() -> None:
    cluster, vision = a_lab(VOLUME)
    used(cluster, 501)
    closed("2026-03", vision)

    (line,) = run("show_invoices")["invoices"][0]["lines"]
    assert (line["quantity"], line["unit_price"], line["amount"]) == ("501", "", "1002.00")
    assert line["detail"] == (
        "volume: all of it at one price, by the total: up to 100 at $3.00, up to 500 at $2.50, above at $2.00. "
        "In the cheaper tier all of it costs less than just below."
    )
    (shown,) = document_of(Invoice.objects.get()).lines
    assert (shown.unit_price, shown.detail) == ("", line["detail"])
    (explained,) = run("explain_invoice", "INV-2026-0001")["lines"]
    assert explained["formula"] == (
        f"501 GPU-hours of all projects, {line['detail']} = $1,002.00, rounded once; on the invoice $1,002.00"
    )


def test_case_032_a_package_is_paid_in_full_once_begun() -> None:
    cluster, vision = a_lab(TENS)
    used(cluster, 10)
    ingest(cluster, a_job(ended="2026-03-02 10:00:01"))
    assert closed("2026-03", vision).total.text == "50.00"  # type: ignore[union-attr]
    (line,) = run("show_invoices")["invoices"][0]["lines"]
    assert line["detail"] == "packages of 10 GPU-hours at $25.00, paid in full once begun"


def test_case_032_no_use_takes_no_package() -> None:
    _, vision = a_lab(TENS)
    assert closed("2026-03", vision).outcome == "nothing to bill"


def test_case_030_projects_share_the_tiers_and_their_lines_add_up() -> None:
    cluster, vision = a_lab(GRADUATED, "audio", "speech", "vision")
    for account in ("audio", "speech", "vision"):
        used(cluster, 100, account)

    closed("2026-03", vision)

    invoice = invoice_of(vision, "2026-03")
    assert printed(invoice) == [  # 100 × 3.00 + 200 × 2.50, over three
        ("2026-03", "audio", "100", "266.67"),
        ("2026-03", "speech", "100", "266.67"),
        ("2026-03", "vision", "100", "266.66"),
    ]
    assert total(invoice) == "800.00"
    assert lines_of(invoice)[0].terms == {
        "price": {
            "model": "graduated",
            "tiers": [
                {"up_to": "100", "unit_price": "3"},
                {"up_to": "500", "unit_price": "2.5"},
                {"up_to": None, "unit_price": "2"},
            ],
        },
        "of": "1080000",
        "included": "0",
        "own": "360000",
        "amount": 80000,
        "share": 26667,
        "billed": 0,
    }
    prove()


def test_case_025_late_use_is_billed_at_the_tier_that_the_month_has_reached() -> None:
    cluster, vision = a_lab(GRADUATED)
    used(cluster, 90)
    closed("2026-03", vision)
    used(cluster, 20)
    used(cluster, 1, started="2026-04-02 10:00", ended="2026-04-02 11:00")

    closed("2026-04", vision)

    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "1", "3.00"),
        ("2026-03", "vision", "20", "55.00"),  # 10 × 3.00 + 10 × 2.50
    ]
    prove()


def test_case_025_late_use_of_one_project_moves_the_shares_of_the_others() -> None:
    cluster, vision = a_lab(GRADUATED, "audio", "vision")
    used(cluster, 100, "audio")
    closed("2026-03", vision)
    used(cluster, 100, "vision")

    closed("2026-04", vision)

    assert printed(
        invoice_of(vision, "2026-04")
    ) == [  # 550.00 in all: 275.00 each, of which 300.00 were billed
        ("2026-03", "audio", "0", "-25.00"),
        ("2026-03", "vision", "100", "275.00"),
    ]
    assert run("show_invoices", "--month", "2026-04")["invoices"][0]["lines"][0]["detail"] == (
        "graduated: up to 100 at $3.00, up to 500 at $2.50, above at $2.00; "
        "its share of 200 GPU-hours of all projects"
    )
    prove()


def test_use_that_was_taken_back_whole_gives_back_the_whole() -> None:
    cluster, vision = a_lab(TENS)
    fields = {"source_key": "7@1", "gpus": 15}
    ingest(cluster, a_job(**fields))
    assert closed("2026-03", vision).total.text == "50.00"  # type: ignore[union-attr]
    ingest(cluster, a_job(**fields, ended="2026-03-02 10:00"))
    used(cluster, 30, started="2026-04-02 10:00", ended="2026-04-02 11:00")

    closed("2026-04", vision)

    assert printed(invoice_of(vision, "2026-04")) == [
        ("2026-04", "vision", "30", "75.00"),
        ("2026-03", "vision", "-15", "-50.00"),
    ]
    prove()


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_in_whatever_order_use_becomes_known_each_project_pays_the_same(order: tuple[int, ...]) -> None:
    """One job is known when March is closed, the second when April is, the third when May is."""
    cluster, vision = a_lab(GRADUATED, "audio", "vision")
    jobs = [("audio", 60), ("vision", 70), ("audio", 400)]
    for place, month in zip(order, ("2026-03", "2026-04", "2026-05"), strict=True):
        account, hours = jobs[place]
        used(cluster, hours, account)
        used(cluster, 1, "vision", started=f"{month}-09 10:00", ended=f"{month}-09 11:00")
        closed(month, vision)
        prove()

    paid: dict[tuple[str, str], int] = {}
    for invoice in Invoice.objects.all():
        for line in lines_of(invoice):
            key = f"{line.service_period.start:%Y-%m}", line.project
            paid[key] = paid.get(key, 0) + line.amount
    assert paid == {  # 1,362.00 for 531 h, of which 460 h are audio's
        ("2026-03", "audio"): 117989,
        ("2026-03", "vision"): 18211,
        ("2026-04", "vision"): 300,
        ("2026-05", "vision"): 300,
    }


SITE = """
[[plan]]
name = "steps"
currency = "EUR"
charges = ["gpu"]
from = 2026-01-01
[[plan.price]]
meter = "gpu-hour"
model = "graduated"
tiers = [{ up_to = 100, unit_price = "3.00" }, { unit_price = "2.50" }]
[[plan.price]]
meter = "gpu-hour"
where = { qos = "spot" }
model = "package"
package = 10
package_price = "25.00"
"""


def test_a_file_says_tiers_and_packages() -> None:
    assert apply(SITE)[-3:] == [
        "plan steps from 2026-01-01: new (charges gpu)",
        (
            "plan steps from 2026-01-01, price of gpu-hour for any use from 2026-01-01: new (unit price 3, "
            "model graduated: up to 100 at €3.00, above at €2.50, place 1)"
        ),
        (
            "plan steps from 2026-01-01, price of gpu-hour qos=spot from 2026-01-01: new (unit price 2.5, "
            "model packages of 10 GPU-hours at €25.00, paid in full once begun, place 2)"
        ),
    ]
    assert apply(SITE) == ["Nothing to change."]


def test_a_used_scale_can_only_be_ended() -> None:
    apply(SITE)
    cluster = a_cluster(complete_through="2026-06-01")
    plan = Price.objects.first().version.plan  # type: ignore[union-attr]
    a_tenant(plan=plan, accounts=[(cluster, "vision")])
    used(cluster, 1)
    (sentence, *_) = refused(SITE.replace("100", "200"))
    assert "Usage has been rated by the price" in sentence


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        ('model = "graduated"', 'model = "stairs"', "allowed: per_unit, graduated, volume, package."),
        (', { unit_price = "2.50" }', "", "The last tier is open: give it no `up_to`."),
        ('tiers = [{ up_to = 100, unit_price = "3.00" }, { unit_price = "2.50" }]', "", "tiers is missing"),
        ("package = 10\n", "", "package is missing."),
        ("package = 10\n", "package = 0\n", "A package holds more than zero units"),
        (
            'unit_price = "3.00"',
            f'unit_price = "{"3" * 101}"',
            f"unit_price is '{'3' * 79}…'; write a number like \"1.10\".",
        ),
        ('unit_price = "3.00"', 'unit_price = "-3.00"', "A price is zero or more, not -3.00."),
        (
            'model = "package"',
            'model = "package"\nunit_price = "1"',
            "unit_price does not go with model package, which needs package and package_price.",
        ),
    ],
)
def test_case_042_a_scale_that_cannot_be_is_refused_with_a_sentence(
    before: str, after: str, sentence: str
) -> None:
    assert any(sentence in error for error in refused(SITE.replace(before, after)))
