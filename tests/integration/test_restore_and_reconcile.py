"""A backup that is older than the last charges is restored while Stripe goes on: nobody is charged twice."""

from __future__ import annotations

import subprocess
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.db import connection

from billing.models import Difference, GatewayEvent, Invoice, Payment, PaymentAttempt
from billing.payments import gateway_access
from billing.payments.gateway_access import CollectionError
from billing.receivables import settlement
from billing.reconciliation import reconciliation_run
from portal.dev.embedded.postgres import binaries
from portal.instance import VERSION
from portal.ops.schema import as_owner
from tests import stories
from tests.builders import a_cluster, a_job, ingest
from tests.collecting import DUE, Scenario, a_scenario, more_labs

pytestmark = pytest.mark.usefixtures("transactional_db")


@pytest.fixture
def dump(database_url: str, tmp_path: Path) -> str:
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version")
        (running_version,) = cursor.fetchone()
    if running_version.split(".")[0] != VERSION:
        pytest.skip("needs the embedded PostgreSQL: pg_dump writes what only its own version reads")
    return str(tmp_path / "clustertab.dump")


def owner_of(database_url: str) -> str:
    """The same database, as its owner."""
    login, _, place = settings.DATABASE_OWNER_URL.partition("@")
    return f"{login}@{database_url.partition('@')[2]}" if place else database_url


def back_up(database_url: str, dump: str) -> None:
    """As docs/how-to/install.md says."""
    options = ("--enable-row-security", "--format=custom", "--no-owner", f"--file={dump}")
    subprocess.run([binaries() / "pg_dump", *options, owner_of(database_url)], check=True)


@contextmanager
def restored(database_url: str, dump: str) -> Iterator[None]:
    """From here on the database is the one of the backup."""
    present = connection.settings_dict["NAME"]
    name = f"{present}_restored"
    connection.close()
    with as_owner(), connection._nodb_cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {name}")
        cursor.execute(f"CREATE DATABASE {name}")
    there = owner_of(database_url).replace(f"/{present}?", f"/{name}?")
    subprocess.run(
        [binaries() / "pg_restore", "--no-owner", "--exit-on-error", "--single-transaction", f"--dbname={there}", dump],
        check=True,
    )  # fmt: skip
    connection.settings_dict["NAME"] = name
    try:
        yield
    finally:
        connection.close()
        connection.settings_dict["NAME"] = present
        with as_owner(), connection._nodb_cursor() as cursor:
            cursor.execute(f"DROP DATABASE {name}")


def charged(scenario: Scenario) -> dict[str, int]:
    """By invoice, how often money was taken for it."""
    return dict(
        Tally(
            intent["metadata"]["ct_number"]
            for intent in scenario.stripe.objects("payment_intent")
            if intent["status"] == "succeeded"
        )
    )


def april(scenario: Scenario) -> None:
    """Everybody used two hours more, and April is closed."""
    cluster = a_cluster()
    names = ["vision", "lab-01", "lab-02", "lab-03"]
    jobs = [
        a_job(job_id=f"april-{name}", account=name, started="2026-04-02 10:00", ended="2026-04-02 12:00")
        for name in names
    ]
    ingest(cluster, *jobs, as_of="2026-05-02")
    stories.close("2026-04", on="2026-05-03")


def test_case_090_what_was_charged_refunded_and_disputed_after_the_backup_is_found_and_charged_once(
    database_url: str, dump: str
) -> None:
    with a_scenario() as scenario:
        scenario.save_card()
        more_labs(scenario, ["lab-01", "lab-02"])
        scenario.collect()  # three invoices of March
        back_up(database_url, dump)

        scenario.wait(days=1)
        more_labs(scenario, ["lab-03"])
        scenario.collect()
        scenario.stripe.dashboard.refund(paid_by("lab-01"), 100)
        scenario.stripe.dashboard.lose_dispute(scenario.stripe.dashboard.dispute(paid_by("lab-02")))
        scenario.wait(days=18)
        april(scenario)
        for _ in range(2):
            scenario.wait(days=10)
            scenario.collect()
        before = charged(scenario)
        assert before == dict.fromkeys([f"INV-2026-000{n}" for n in range(1, 9)], 1)

        with restored(database_url, dump):
            assert (Invoice.objects.count(), Payment.objects.count()) == (3, 3)
            scenario.collect()
            reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op", since=DUE)
            assert paid("INV-2026-0002") == "3.00"  # the refund was found
            assert paid("INV-2026-0003") == "0.00"  # the dispute, too
            # Invoices that are not issued any more: their tenants wait, and Op is told.
            assert set(Difference.objects.filter(resolved_at=None).values_list("kind", flat=True)) == {
                "missing-here",
                "refund-without-note",
            }
            more_labs(scenario, ["lab-03"])
            april(scenario)
            for _ in range(3):
                scenario.collect()
                reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op")
            assert charged(scenario) == before
            assert {number: paid(number) for number in before} == {
                **dict.fromkeys(before, "4.00"),
                "INV-2026-0002": "3.00",
                "INV-2026-0003": "0.00",
            }
            assert [row.kind for row in Difference.objects.filter(resolved_at=None)] == [
                "refund-without-note"
            ]
            assert not GatewayEvent.objects.filter(state="review").exists()
            assert set(PaymentAttempt.objects.values_list("state", flat=True)) == {"succeeded"}
        assert scenario.stripe.violations == []


def test_case_090_a_backup_from_before_the_first_charge_collects_nothing_until_it_is_told_who_it_is(
    database_url: str, dump: str, settings: Any
) -> None:
    with a_scenario() as scenario:
        back_up(database_url, dump)
        scenario.save_card()
        scenario.collect()
        name = str(gateway_access.get_gateway_account().deployment)
        with restored(database_url, dump):
            with pytest.raises(CollectionError, match=f"Set STRIPE_ACCOUNT_LABEL={name} if it was restored"):
                scenario.collect()
            settings.STRIPE_ACCOUNT_LABEL = name
            for _ in range(2):
                scenario.collect()
            assert (scenario.charged, scenario.paid) == ([400], "4.00")
            assert (
                reconciliation_run.run(gateway=scenario.gateway, moment=scenario.now, by="op").counts["found"]
                == 0
            )
            settings.STRIPE_ACCOUNT_LABEL = "00000000-0000-4000-8000-000000000000"
            with pytest.raises(CollectionError, match=f"This database is {name} at Stripe"):
                scenario.collect()
        assert scenario.stripe.violations == []


def paid_by(lab: str) -> str:
    return PaymentAttempt.objects.get(tenant__slug=lab).external_id or ""


def paid(number: str) -> str:
    invoice = Invoice.objects.get(number=number)
    return settlement.load_balance(invoice=invoice, on=invoice.issued_on or invoice.due_on).paid.text  # type: ignore[arg-type]
