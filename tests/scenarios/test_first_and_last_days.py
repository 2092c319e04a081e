"""The first and the last day that can be written: taken and computed right, or refused with a sentence."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from billing.catalog import subscriptions, version_terms
from billing.catalog.plans import PlanError
from billing.models import Wallet
from billing.rules.meters import PerUnit
from billing.wallets import booking, grants
from tests.builders import LATER, LONG_AGO, a_cluster, a_job, a_plan, a_tenant, at, ingest
from tests.configuring_terms import apply, refused
from tests.scenarios.real import run
from tests.stories import closed, invoice_of, prove, total
from tests.terms import a_version

pytestmark = pytest.mark.django_db

ZONES = ["UTC", "America/Los_Angeles", "Asia/Kathmandu", "Pacific/Kiritimati", "Etc/GMT+12"]

SITE = """
[[cluster]]
name = "gpu1"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 1970-01-01
allowance = [{{ name = "Included", hours = "10" }}]
fee = [{{ name = "Access", amount = "93.00" }}, {{ name = "Support", amount = "31.00", in_advance = true }}]
commitment = {{ amount = "50.00" }}
discount = [{{ name = "For ever", percent = "50", until = 9999-12-31 }}]
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
until = 9999-12-31
allowance = "Included"

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
timezone = "{zone}"
plan = "standard"
plan_from = 2026-03-01
accounts = [{{ cluster = "gpu1", account = "vision", since = 1970-01-01, until = 9999-12-31 }}]
[[tenant.wallet]]
for = "tenant"
unit = "USD"
from = 2026-03-01
grants = [{{ every = "month", amount = "5.00", until = 9999-12-31, lasts_days = 36500 }}]
"""


@pytest.mark.parametrize("zone", ZONES)
def test_a_plan_until_the_last_day_there_is_stops_no_close(zone: str) -> None:
    apply(SITE.format(zone=zone))
    cluster = a_cluster()
    ingest(cluster, a_job(gpus=60, started="2026-03-20 10:00", ended="2026-03-20 11:00"), as_of="2026-05-10")
    tenant = Wallet.objects.get().tenant

    assert closed("2026-03", tenant).outcome == "issued"

    # (60 − 10) × 2.00, 93.00 and 31.00 for March, 31.00 for April in advance; half of all that
    assert total(invoice_of(tenant, "2026-03")) == "127.50"
    grants.tend(moment=at("2026-04-20"))
    assert run("show_wallets")["wallets"][0]["balance"] == "10.00"
    prove()
    apply(SITE.format(zone=zone))


@pytest.mark.parametrize("zone", ZONES)
def test_a_discount_and_a_version_from_the_first_day_there_is_stop_no_close(zone: str) -> None:
    first = date(1, 1, 1)
    version = a_version(PerUnit(Decimal("2.00")), effective_from=first)
    version_terms.set_discount(version=version, name="Ever since", valid_from=first, percent=Decimal(50))
    cluster = a_cluster(complete_through="2026-06-01")
    vision = a_tenant(plan=version.plan, accounts=[(cluster, "vision")], timezone=zone)
    ingest(cluster, a_job(gpus=50, started="2026-03-20 10:00", ended="2026-03-20 11:00"))
    closed("2026-03", vision)
    assert total(invoice_of(vision, "2026-03")) == "50.00"


@pytest.mark.parametrize("day", ["0001-01-01", "1969-12-31"])
@pytest.mark.parametrize(
    ("original", "where"),
    [
        ("from = 1970-01-01", 'plan "standard": from'),
        ("plan_from = 2026-03-01", 'tenant "vision-lab": plan_from'),
        ("since = 1970-01-01", 'tenant "vision-lab", account 1: since'),
        ("\nfrom = 2026-03-01", 'tenant "vision-lab", wallet 1: from'),
        ("until = 9999-12-31\nallowance", 'plan "standard", price 1: until'),
    ],
)
def test_days_before_the_first_that_a_file_may_name_are_refused(day: str, original: str, where: str) -> None:
    key, _, rest = original.partition(" = ")
    file = SITE.format(zone="UTC")
    assert original in file
    errors = refused(file.replace(original, f"{key} = {day}{rest[10:]}", 1))
    assert f"{where} is {day}; write a day from 1970-01-01 on." in errors


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+14:00"])
def test_a_moment_beyond_what_every_zone_can_tell_is_refused(moment: str) -> None:
    errors = refused(SITE.format(zone="UTC").replace("plan_from = 2026-03-01", f"plan_from = {moment}"))
    assert any("write a moment from 1970 to 9998" in sentence for sentence in errors), errors


@pytest.mark.parametrize("year", [1, 1969, 9999])
def test_nobody_comes_to_a_plan_where_there_are_no_periods(year: int) -> None:
    vision = a_tenant(plan=a_plan())
    euros = a_plan("euros", "EUR")
    with pytest.raises(PlanError, match=f"in the year {year}: name a day from 1970 to 9998"):
        subscriptions.subscribe(tenant=vision, plan=euros, since=datetime(year, 6, 1, tzinfo=UTC))


def test_a_grant_until_the_last_day_pays_and_never_lapses() -> None:
    cluster = a_cluster()
    tokens = a_plan("tokens", "TOK", prices=[("gpu-hour", {}, "1", LONG_AGO)], settles="wallet")
    tenant = a_tenant(plan=tokens, accounts=[(cluster, "vision")], timezone="Asia/Kathmandu")
    ingest(cluster, a_job(gpus=3))
    booking.book(tenant=tenant, moment=at("2026-03-03"))
    run("grant_credit", "vision-lab", "10", "--reference", "R1", "--expires", "9999-12-31")
    grants.tend(moment=LATER)
    assert run("show_wallets")["wallets"][0]["balance"] == "7.000000"
    prove()
