"""Op previews a close: what differs from last month, and all that is in whose way."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command

from billing.models import Invoice
from portal.core.tenants.models import Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest, own
from tests.stories import close, closed

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision() -> Tenant:
    """March: 2 hours of one project and 1 of another at 2.00; April: 3 hours of the first. Taxed at 10 %."""
    cluster = a_cluster(complete_through="2026-06-01")
    tenant = a_tenant("vision-lab", plan=a_plan(), accounts=[(cluster, "vision")], tax_rate=10)
    own(tenant, cluster, "thesis", project="Thesis")
    ingest(
        cluster,
        a_job(started="2026-03-02 10:00", ended="2026-03-02 12:00"),
        a_job(started="2026-03-02 10:00", ended="2026-03-02 11:00", account="thesis"),
        a_job(started="2026-04-02 10:00", ended="2026-04-02 13:00"),
    )
    closed("2026-03", tenant)
    return tenant


def printed(capsys: pytest.CaptureFixture[str], code: int, **options: object) -> str:
    if code:
        with pytest.raises(SystemExit) as end:
            call_command("close_period", "2026-04", dry_run=True, **options)
        assert end.value.code == code
    else:
        call_command("close_period", "2026-04", dry_run=True, **options)
    return capsys.readouterr().out


def test_a_preview_says_what_differs_from_last_month_in_all_and_by_line(
    vision: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    assert printed(capsys, 0).splitlines() == [
        "Preview of 2026-04: nothing was kept.",
        "  vision-lab: would be issued $6.60 ($0.00, 0 % on March 2026)",
        "      Thesis, GPU time: $2.00 -> $0.00 (-$2.00, -100 %)",
        "      vision, GPU time: $4.00 -> $6.00 (+$2.00, +50 %)",
    ]
    assert not Invoice.objects.exclude(number="INV-2026-0001").exists()

    ingest(a_cluster(), a_job(started="2026-04-03 10:00", ended="2026-04-03 11:00", account="thesis"))
    (entry,) = json.loads(printed(capsys, 0, json=True))["tenants"]
    assert entry["change"] == {
        "since": "March 2026",
        "number": "INV-2026-0001",
        "currency": "USD",
        "before": "6.60",
        "now": "8.80",
        "difference": "2.20",
        "percent": "+33.3",
        "lines": [
            {
                "project": "vision",
                "description": "GPU time",
                "before": "4.00",
                "now": "6.00",
                "difference": "2.00",
                "percent": "+50",
            }
        ],
    }


def test_a_month_without_use_is_told_as_all_that_is_gone_and_a_first_invoice_has_nothing_beside_it(
    vision: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    a_tenant("audio-lab", plan=vision.subscriptions.get().plan, accounts=[(a_cluster(), "audio")])
    ingest(a_cluster(), a_job(account="audio", started="2026-04-02 10:00", ended="2026-04-02 11:00"))
    call_command("close_period", "2026-04")
    capsys.readouterr()
    call_command("close_period", "2026-05", dry_run=True)
    assert capsys.readouterr().out.splitlines()[1:] == [
        "  audio-lab: nothing to bill (-$2.00, -100 % on April 2026)",
        "      audio, GPU time: $2.00 -> $0.00 (-$2.00, -100 %)",
        "  vision-lab: nothing to bill (-$6.60, -100 % on April 2026)",
        "      vision, GPU time: $6.00 -> $0.00 (-$6.00, -100 %)",
    ]


def test_all_that_is_in_the_way_is_told_by_what_stops_whom(
    vision: Tenant, capsys: pytest.CaptureFixture[str]
) -> None:
    a_cluster().__class__.objects.update(complete_through="2026-04-15T00:00:00Z")
    a_tenant("audio-lab", accounts=[(a_cluster(), "audio")])  # on no plan
    ingest(a_cluster(), a_job(account="audio", started="2026-03-02 10:00", ended="2026-03-02 11:00"))

    lines = printed(capsys, 1).splitlines()

    assert lines[-4:] == [
        "In the way of 2 of 2 tenants:",
        "  earlier-open: audio-lab",
        "  incomplete: audio-lab, vision-lab",
        "  unpriced: audio-lab",
    ]
    assert lines[1] == (
        "  audio-lab: blocked. March 2026 has usage and is not closed: close it first. No price covers 1.00 "
        "GPU-hours on a100: give the tenant a plan, or its plan a price, and close again. April 2026 ends "
        "2026-05-01 00:00 UTC, but gpu1 is complete through 2026-04-15 00:00 UTC. Import the rest, or give a "
        "reason with --accept-incomplete."
    )


def test_corrections_of_earlier_months_are_one_line_of_what_differs(vision: Tenant) -> None:
    ingest(a_cluster(), a_job(started="2026-03-05 10:00", ended="2026-03-05 11:00"))
    (previewed,) = close("2026-04", vision, preview=True)
    assert previewed.change is not None
    assert [(name, pair.difference.text, pair.percent) for name, pair in previewed.change.lines.items()] == [
        (("", "Corrections of earlier periods"), "2.00", ""),
        (("Thesis", "GPU time"), "-2.00", "-100"),
        (("vision", "GPU time"), "2.00", "+50"),
    ]
