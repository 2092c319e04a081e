"""What wallets pay on invoices, as plain sums have it: grants that expire, another that pays, and credit notes."""

from __future__ import annotations

import ast
import sys
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path

import pytest
from django.db import transaction
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from billing.invoicing import credit_notes
from billing.models import Invoice, Wallet, WalletGrant, WalletScope
from billing.rules.money import Money
from billing.wallets import grants, wallet_terms
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.builders import LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.paying import pays
from tests.scenarios import oracle_wallets
from tests.scenarios.oracle_wallets import Charge, Pot
from tests.stories import close, invoice_of, prove
from tests.tiers import examples

pytestmark = pytest.mark.django_db

MONTHS = ("2026-03", "2026-04")
FIRST = date(2026, 3, 1)


@dataclass(frozen=True)
class World:
    """Day of March to May and cents of each grant, and when it expires; GPU-hours of a day, by either tenant."""

    grants: tuple[
        tuple[int, int, int | None, int], ...
    ]  # cents, priority, days until it expires, given on that day
    used: tuple[
        tuple[int, int, bool], ...
    ]  # day since 1 March, GPUs for an hour at 2.00, whether the other used it
    credited: tuple[int, ...]  # cents of each month's invoice
    tended: tuple[int, ...]  # days on which time passes
    turned: bool  # the use becomes known in the other order


@st.composite
def worlds(draw: st.DrawFn) -> World:
    lasts = st.none() | st.integers(2, 70)
    grants = st.tuples(st.integers(1, 90_00), st.sampled_from((10, 100)), lasts, st.integers(0, 20))
    used = st.tuples(st.integers(0, 60), st.integers(1, 20), st.booleans())
    return World(
        tuple(draw(st.lists(grants, min_size=1, max_size=4))),
        tuple(draw(st.lists(used, min_size=1, max_size=5))),
        tuple(draw(st.tuples(st.integers(0, 60_00), st.integers(0, 60_00)))),
        tuple(sorted(draw(st.lists(st.integers(0, 33), max_size=3)))),
        draw(st.booleans()),
    )


def a_lab(cluster: Cluster, slug: str, settles: str) -> Tenant:
    plan = a_plan(f"plan of {slug}", "USD", prices=[("gpu-hour", {}, "2.00", LONG_AGO)], settles=settles)
    return a_tenant(slug, name=slug.title(), plan=plan, accounts=[(cluster, slug)])


@pytest.mark.swept
@settings(
    max_examples=examples(8, 100, short=2),
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(worlds())
def test_wallets_pay_on_invoices_what_plain_sums_say(world: World) -> None:
    with transaction.atomic():
        play(world)
        transaction.set_rollback(True)


def play(world: World) -> None:
    """Physics pays for Vision too. Its two months are closed on the 3rd after each, and credited then."""
    cluster = a_cluster(complete_through="2026-09-01")
    physics, vision = a_lab(cluster, "physics", "wallet-first"), a_lab(cluster, "vision", "invoice")
    scheme = wallet_terms.set_scheme(
        tenant=physics, unit="USD", scope=WalletScope.TENANT, overdraft=0, since=at("2026-03-01")
    )
    wallet = Wallet.objects.get(scheme=scheme)
    pays(physics, vision, "2026-03-01")
    pots = [pot(wallet, place, grant) for place, grant in enumerate(world.grants)]
    for day, gpus, other in world.used[:: -1 if world.turned else 1]:
        on = FIRST + timedelta(days=day)
        account = "vision" if other else "physics"
        ingest(cluster, a_job(account=account, gpus=gpus, started=f"{on} 10:00", ended=f"{on} 11:00"))
    for day in world.tended:
        grants.tend(moment=at(f"{FIRST + timedelta(days=day)}"))
    expected, actual = [], []
    for place, month in enumerate(MONTHS):
        close(month)
        used = used_in(world, month)
        if not used:
            continue
        total = sum(cents for _, cents in used)
        credited = min(world.credited[place], total)
        expected += oracle_wallets.paid_first(pots, [Charge(used, credited)])
        actual.append(paid(invoice_of(physics, month), credited, date(2026, int(month[-1]) + 1, 3)))
        gone(pots, date(2026, int(month[-1]) + 1, 3), open_from=date(2026, int(month[-1]) + 1, 1))
    assert actual == expected
    grants.tend(moment=at("2026-05-04"))  # the day after the close that the rest waited for
    gone(pots, date(2026, 5, 4), open_from=date(2026, 5, 1))
    left = {row.key: (row.left, row.expired) for row in WalletGrant.objects.all()}
    assert left == {pot.name: (pot.left, pot.gone) for pot in pots}
    prove()


def pot(wallet: Wallet, place: int, grant: tuple[int, int, int | None, int]) -> Pot:
    cents, priority, lasts, offset = grant
    day = FIRST + timedelta(days=offset)
    expires = None if lasts is None else day + timedelta(days=lasts)
    moment = at(f"{day} 09:00")
    grants.grant(
        wallet=wallet,
        amount=cents,
        key=f"R{place}",
        who="op",
        moment=moment,
        priority=priority,
        expires_on=expires,
    )
    return Pot(f"R{place}", moment, day, priority, expires, cents, left=cents)


def used_in(world: World, month: str) -> tuple[tuple[date, int], ...]:
    by_day: dict[date, int] = {}
    for day, gpus, _ in world.used:
        on = FIRST + timedelta(days=day)
        if f"{on:%Y-%m}" == month:
            by_day[on] = by_day.get(on, 0) + gpus * 2_00
    return tuple(sorted(by_day.items()))


def paid(invoice: Invoice, credited: int, on: date) -> tuple[int, int]:
    first = invoice.prepaid
    if not credited:
        return first, 0
    note = credit_notes.issue_credit_note(
        invoice=invoice, reason="Goodwill.", by="op", on=on, net=Money.from_minor(credited, "USD")
    )
    return first, -note.prepaid


def gone(pots: list[Pot], today: date, *, open_from: date) -> None:
    """Grants that expired three days ago, and before the first period that is open began, have nothing left."""
    for pot in pots:
        if pot.expires is not None and pot.expires + timedelta(days=3) <= today and pot.expires <= open_from:
            pot.gone, pot.left = pot.gone + pot.left, 0


def test_the_oracle_knows_nothing_of_the_product() -> None:
    tree = ast.parse(Path(oracle_wallets.__file__).read_text())
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
