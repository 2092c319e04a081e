"""Every tenant-month of the real clusters under seven plans comes out as plain fractions have it, to the cent.

The plans are per unit, graduated with an allowance, volume, a commitment with overage, packages, a wallet in tokens,
and prices by the hour of the week.

A file is read once. Each plan is then set up by `apply`, all months are closed, what was billed is compared, and
all of that is undone for the next plan.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from statistics import median

import pytest
from django.db import transaction
from django.db.models import Sum

from billing.models import WalletEntry
from tests.configuring_terms import SELLER, apply
from tests.scenarios import oracle
from tests.scenarios.oracle import Job, Plan, Price
from tests.scenarios.oracle_plans import FAU, PHILLY, SUPERCLOUD, UBCCR, Site, plans_of, written
from tests.scenarios.real import data, run

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    "site", [pytest.param(FAU, id="fau"), pytest.param(UBCCR, id="ubccr", marks=pytest.mark.peers)]
)
def test_a_small_cluster_owes_what_plain_fractions_say(site: Site) -> None:
    agree(site)


@pytest.mark.long
def test_the_first_weeks_of_supercloud_owe_what_plain_fractions_say() -> None:
    agree(SUPERCLOUD)


@pytest.mark.long
def test_philly_owes_what_plain_fractions_say() -> None:
    agree(PHILLY)


@pytest.mark.parametrize(
    "site", [pytest.param(FAU, id="fau"), pytest.param(PHILLY, id="philly", marks=pytest.mark.long)]
)
def test_the_borders_of_the_plans_lie_among_what_tenants_use(site: Site) -> None:
    work = oracle.jobs(data(site.file))
    a_dollar = (Price(site.meter, (("", "1"),)),)
    plans = {plan.name: plan for plan in plans_of(site)}

    def hours(plan: Plan) -> list[int]:
        alike = replace(plan, currency="USD", prices=a_dollar, allowance="", commitment=None, discounts=())
        months = oracle.months(plan, site.first, site.last)
        return [cents // 100 for cents in oracle.owed(alike, work, months, site.since).values() if cents]

    used = hours(plans["per-unit"])
    assert sum(row > site.hours / 10 for row in used) > len(used) / 2
    assert max(used) > 3 * site.hours
    together = hours(plans["graduated"])
    assert median(together) < int(plans["graduated"].allowance) < max(together)
    assert min(used) * 2.3 < 2 * site.hours < max(used)


def test_the_oracle_knows_nothing_of_the_product() -> None:
    tree = ast.parse(Path(oracle.__file__).read_text())
    named = {
        alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    named |= {
        (node.module or ".").partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    assert named <= sys.stdlib_module_names


def agree(site: Site) -> None:
    """Every tenant-month under every plan."""
    apply(f'{SELLER}[[cluster]]\nname = "real"\nkind = "import"\ntimezone = "UTC"\n')
    run("import_usage", "real", data(site.file), "--as-of", site.read_through)
    work = oracle.jobs(data(site.file))
    for plan in plans_of(site):
        with undone():
            apply(written(plan, site, work))
            if plan.currency == "TOK":
                wallets_agree(plan, site, work)
            else:
                invoices_agree(plan, site, work)


@contextmanager
def undone() -> Iterator[None]:
    point = transaction.savepoint()
    yield
    transaction.savepoint_rollback(point)


def invoices_agree(plan: Plan, site: Site, work: list[Job]) -> None:
    months = oracle.months(plan, site.first, site.last)
    expected = oracle.owed(plan, work, months, site.since)
    billed: dict[tuple[str, str], int] = {}
    for month in months:
        closed = run("close_period", month.name, "--as-of", site.read_through)["tenants"]
        assert {row["outcome"] for row in closed} <= {"issued", "nothing to bill"}, closed
        for invoice in run("show_invoices", "--month", month.name)["invoices"]:
            billed[invoice["tenant"], month.name] = minor(invoice["total"], plan.currency)
            assert (
                sum(minor(line["amount"], plan.currency) for line in invoice["lines"])
                == (billed[invoice["tenant"], month.name])
            )
    assert {key: whole for key, whole in billed.items() if whole} == {
        key: whole for key, whole in expected.items() if whole
    }, plan.name


def wallets_agree(plan: Plan, site: Site, work: list[Job]) -> None:
    expected = oracle.wallet_days(plan, work)
    used: dict[tuple[str, str], int] = {}
    for (tenant, user, _), amount in expected.items():
        used[tenant, user] = used.get((tenant, user), 0) + amount
    once, monthly = (oracle.smallest(Fraction(text), plan.currency) for text in plan.grants)
    grant_total = once + monthly * sum(
        month.name >= f"{site.since:%Y-%m}" for month in oracle.months(plan, site.first, site.last)
    )

    wallets = run("show_wallets")["wallets"]

    assert {(row["tenant"], row["owner"]): minor(row["balance"], "TOK") for row in wallets} == {
        owner: grant_total - amount for owner, amount in used.items()
    }
    booked = (
        WalletEntry.objects.filter(side="used")
        .values_list("tenant__slug", "wallet__user", "day")
        .annotate(sum=Sum("amount"))
    )
    assert {(tenant, user, day): int(amount) for tenant, user, day, amount in booked} == {
        owner: amount for owner, amount in expected.items() if amount
    }


def minor(text: str, currency: str) -> int:
    exact = Decimal(text) * oracle.MINOR[currency]
    assert exact == int(exact)
    return int(exact)
