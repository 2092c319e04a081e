"""Every tenant-month of a real cluster comes out as plain fractions have it, whatever its prices came to before.

All months are closed under the plan as it was first. Then its prices come to something else, at random, some times
over, with closes between. In the end documents and wallets say what the last amounts would have said from the start.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection

from billing.models import InvoiceLine, PriceCorrection
from billing.proof import checks
from tests.configuring_terms import SELLER, apply
from tests.scenarios import oracle
from tests.scenarios.oracle import Job, Plan, Price
from tests.scenarios.oracle_plans import FAU, SUPERCLOUD, Site, plans_of, written
from tests.scenarios.real import data, run
from tests.scenarios.test_oracle_of_plans import undone, wallets_agree

pytestmark = pytest.mark.django_db

ROUNDS = 2
CREDITS = SELLER.replace("[seller]\n", '[seller]\ncorrections = "credit-note"\n')


@pytest.mark.peers  # takes long
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 6))])
def test_a_small_cluster_owes_what_its_last_prices_say(seed: int) -> None:
    agree(FAU, random.Random(seed))


@pytest.mark.long
def test_the_first_weeks_of_supercloud_owe_what_the_last_prices_say() -> None:
    agree(SUPERCLOUD, random.Random(0))


def agree(site: Site, dice: random.Random) -> None:
    apply(f'{CREDITS}[[cluster]]\nname = "real"\nkind = "import"\ntimezone = "UTC"\n')
    run("import_usage", "real", data(site.file), "--as-of", site.read_through)
    work = oracle.jobs(data(site.file))
    for plan in plans_of(site):
        with undone():
            apply(written(plan, site, work))
            months = [month.name for month in oracle.months(plan, site.first, site.last)]
            close(plan, site, months)
            rows = rated_rows()
            for _ in range(ROUNDS):
                plan = replace(plan, prices=tuple(corrected(price, dice) for price in plan.prices))  # noqa: PLW2901
                apply(with_reasons(written(plan, site, work)))
                months = [following(months[-1])]
                close(plan, site, months)
                assert rated_rows() == rows, plan.name
            assert PriceCorrection.objects.count() >= ROUNDS, plan.name
            if plan.currency == "TOK":
                wallets_agree(plan, site, work)
            else:
                assert billed(plan, site) == owed(plan, site, work), plan.name
            proof = checks.prove()
            assert proof.holds, [check for check in proof.checks if check.broken]


def close(plan: Plan, site: Site, months: list[str]) -> None:
    """Months that the cluster is not read through are closed all the same: for them there are corrections alone."""
    for month in months:
        if plan.currency == "TOK":
            run("show_wallets")
        else:
            year, number = (int(part) for part in following(following(month)).split("-"))
            run(
                "close_period",
                month,
                "--as-of",
                f"{year}-{number:02d}-01",
                "--accept-incomplete",
                "nothing was used",
            )


def corrected(price: Price, dice: random.Random) -> Price:
    """The price with other amounts, and of tiers with other borders."""

    def times(text: str) -> str:
        return f"{float(text) * dice.choice((0.5, 0.9, 1.1, 1.75)):.6f}"

    if price.model == "package":
        return replace(price, package=(price.package[0], times(price.package[1])))
    up_to = dice.choice((1, 2))
    return replace(
        price,
        tiers=tuple((end and f"{float(end) * up_to:.6f}", times(amount)) for end, amount in price.tiers),
    )


def with_reasons(text: str) -> str:
    return text.replace("[[plan.price]]\n", '[[plan.price]]\ncorrection = "renegotiated"\n')


def following(month: str) -> str:
    year, number = (int(part) for part in month.split("-"))
    return f"{year + number // 12}-{number % 12 + 1:02d}"


def rated_rows() -> list[Any]:
    """How many there are, and where each of them lies, written by whom: a row that is rewritten is another."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT count(*), md5(string_agg(concat(id, tableoid, ctid, xmin), ',' ORDER BY id))"
            " FROM billing_ratedusage"
        )
        return list(cursor.fetchall())


def billed(plan: Plan, site: Site) -> dict[tuple[str, str], int]:
    """By tenant and service month, of those with use, what all documents together say."""
    months = {month.name for month in oracle.months(plan, site.first, site.last)}
    sums: dict[tuple[str, str], int] = defaultdict(int)
    lines = InvoiceLine.objects.filter(invoice__state="issued").select_related("service_period", "tenant")
    for line in lines:
        period = line.service_period
        sums[line.tenant.slug, f"{period.start.astimezone(line.tenant.zone):%Y-%m}"] += line.amount
    return {key: amount for key, amount in sums.items() if amount and key[1] in months}


def owed(plan: Plan, site: Site, work: list[Job]) -> dict[tuple[str, str], int]:
    months = oracle.months(plan, site.first, site.last)
    return {key: amount for key, amount in oracle.owed(plan, work, months, site.since).items() if amount}
