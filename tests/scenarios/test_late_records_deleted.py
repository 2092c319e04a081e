"""A late record of a dropped month is deleted behind the program's back: its files cannot tell, the proofs do."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from billing.models import MonthProof, RatedUsage
from billing.proof import checks, months
from billing.rating import ingest as usage_ingest
from billing.sealed_months import drop
from clusters.connectors.base import Reading, Row
from clusters.models import Cluster
from tests.builders import a_job, at, ingest
from tests.owner import as_owner
from tests.scenarios.test_late_records import CHANGED, LONGER, NEW, dropped
from tests.sealed_march import MARCH, NOW, enter_march
from tests.stories import close, prove

pytestmark = pytest.mark.django_db

NIGHT = at("2031-07-10 02:00")
NOBODYS_NEW = a_job(
    job_id="8", account="nobody", started="2026-03-06 10:00", ended="2026-03-06 11:00", source_key="job-8"
)
FACTS = {"of a tenant": LONGER, "of nobody": CHANGED["of nobody"], "new": NEW, "new, of nobody": NOBODYS_NEW}


@pytest.fixture(autouse=True)
def march(settings: Any, tmp_path: Path) -> None:
    """Billed, sealed and dropped; a job of it went on in April."""
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    enter_march()
    for month, on in (("2026-04", "2026-05-03"), ("2026-05", "2026-06-03")):
        ingest(Cluster.objects.get(), as_of=on)
        close(month, on=on)
    dropped(MARCH)


def late(*rows: Row) -> Any:
    return usage_ingest.ingest(
        cluster=Cluster.objects.get(), rows=rows, reading=Reading(), source="late", moment=at("2031-07-01")
    ).stored


def delete(*keys: str, also_rated: bool = False) -> None:
    with as_owner() as owner:
        if also_rated:
            owner.execute("ALTER TABLE billing_ratedusage DISABLE TRIGGER USER")
            for table in ("billing_ratedusage", "billing_ratedjob"):
                owner.execute(
                    f"DELETE FROM {table} WHERE record_id IN"
                    " (SELECT id FROM clusters_usagerecord WHERE source_key = ANY (%s))",
                    [list(keys)],
                )
            owner.execute("ALTER TABLE billing_ratedusage ENABLE TRIGGER USER")
        owner.execute("DELETE FROM clusters_usagerecord WHERE source_key = ANY (%s)", [list(keys)])


def nights(count: int, *, first: datetime = NIGHT) -> dict[date, list[str]]:
    """What each month whose turn it was in these nights is said to have wrong."""
    turns = [months.prove_next(moment=first + timedelta(days=night)) for night in range(count)]
    return {proof.month: proof.broken for proof in turns if proof is not None}


def broken() -> list[str]:
    return [text for check in checks.prove(moment=NOW).checks for text in check.broken]


@pytest.mark.parametrize("name", FACTS)
@pytest.mark.parametrize(
    "also_rated", [False, True], ids=["the record alone", "and all that was rated of it"]
)
def test_a_late_record_that_is_gone_is_named_by_the_night_and_by_the_proof(
    name: str, also_rated: bool
) -> None:
    fact = FACTS[name]
    late(fact, a_job(job_id="99", started="2026-03-07 10:00", ended="2026-03-07 11:00"))
    assert nights(3)[MARCH] == []
    delete(fact.source_key, also_rated=also_rated)
    text = f"the late usage record {fact.source_key} of gpu1 is gone: bring it back from a backup"
    found = nights(3, first=NIGHT + timedelta(days=10))
    assert text in found[MARCH]
    assert f"2026-03: {text}" in broken()
    assert MonthProof.objects.get(month=MARCH).broken == found[MARCH]


def test_rated_usage_of_a_late_record_that_is_gone_is_named_by_the_night() -> None:
    late(LONGER)
    with as_owner() as owner:
        owner.execute("ALTER TABLE billing_ratedusage DISABLE TRIGGER USER")
        owner.execute("DELETE FROM billing_ratedusage")
        owner.execute("ALTER TABLE billing_ratedusage ENABLE TRIGGER USER")
    [text] = [text for text in nights(3)[MARCH] if "held" in text]
    assert "job 1 of gpu1/vision" in text


def test_a_dropped_month_without_late_records_has_no_night() -> None:
    assert MARCH not in nights(3)


def test_a_month_that_is_loaded_back_is_proved_anew_whatever_was_gone() -> None:
    fact = FACTS["of nobody"]
    late(fact)
    prove()
    delete(fact.source_key)
    assert MARCH in nights(3)
    drop.load_back(month=MARCH)
    prove()
    assert late(fact).revised == 1
    prove()
    assert nights(3, first=NIGHT + timedelta(days=10))[MARCH] == []


def test_what_the_night_named_is_named_no_more_once_the_rows_are_back() -> None:
    late(NEW)
    with as_owner() as owner:
        owner.execute(
            "CREATE TEMP TABLE away AS SELECT * FROM clusters_usagerecord WHERE source_key = %s",
            [NEW.source_key],
        )
    rated = RatedUsage.objects.count()
    delete(NEW.source_key)
    assert nights(3)[MARCH]
    with as_owner() as owner:
        owner.execute("SELECT set_config('app.late_months', '{674}', true)")
        owner.execute("INSERT INTO clusters_usagerecord SELECT * FROM away; DROP TABLE away")
    assert RatedUsage.objects.count() == rated
    prove()
    assert MonthProof.objects.get(month=MARCH).broken == []
