"""Days begin at the same second in rating, which the database does, and in periods and terms, which Python makes."""

from __future__ import annotations

import pytest

from billing.catalog import billing_periods
from billing.proof import checks, zones
from tests.builders import a_tenant, at

pytestmark = pytest.mark.django_db


def test_a_zone_whose_law_one_of_both_does_not_know_yet_is_named_by_the_proof(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = a_tenant("vision", timezone="Europe/Berlin")
    billing_periods.ensure(tenant=lab, since=at("2026-10-01"), until=at("2026-11-30"))
    assert checks.prove().holds
    newer = zones._DAYS.replace(  # as if Berlin kept its summer time, and only the database knew
        "day_start(d.day::date, p.timezone)",
        "day_start(d.day::date, p.timezone) - CASE WHEN d.day > '2026-10-25' THEN 3600 ELSE 0 END",
    )
    monkeypatch.setattr(zones, "_DAYS", newer)

    (check,) = [check for check in checks.prove().checks if check.broken]

    assert check.name == zones.NAME
    assert check.broken[0].startswith(
        "Europe/Berlin: 2026-10-26 begins at 2026-10-25 23:00 UTC here, at 22:00 in the database; update"
    )
