"""Erasing people while months are dropped: no name is called erased that revisions in the database still have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.documents import job_users
from billing.models import JobUser
from billing.sealed_months import drop, readiness
from clusters.absent_records import month_number
from clusters.models import Cluster, UsageRevision
from portal.core.tenants.models import Tenant
from tests.builders import a_job, ingest
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def corrected() -> Tenant:
    """Who owned ben's job of March, of which a revision was superseded years later; March is dropped."""
    enter_march()
    cluster = Cluster.objects.get()
    ingest(cluster, as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    march = {"job_id": "1", "user": "ben", "gpus": 4, "started": "2026-03-02 10:00"}
    ingest(cluster, a_job(ended="2026-03-02 14:30", **march), as_of="2026-06-02")
    close("2026-05", on="2026-06-03")
    sealed()
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    return Tenant.objects.get(slug="vision-lab")


@pytest.mark.parametrize("names", [None, ["ben"]])
def test_a_name_that_revisions_keep_is_erased_once_the_month_is_back_and_not_called_so_before(
    corrected: Tenant, names: list[str] | None
) -> None:
    def revision_users() -> set[str]:
        return set(UsageRevision.objects.values_list("user", flat=True))

    with pytest.raises(job_users.NamesInFilesError, match=r"Superseded revisions of jobs of 2026-03 still"):
        job_users.erase_users(corrected, names=names)
    assert "ben" in revision_users()
    assert JobUser.objects.filter(tenant=corrected, name="ben").exists()  # he is still to be erased
    drop.load_back(month=MARCH)
    assert job_users.erase_users(corrected, names=names) > 0
    assert "ben" not in revision_users()


def test_somebody_whom_no_such_revision_names_is_erased_while_the_month_is_dropped(corrected: Tenant) -> None:
    assert job_users.erase_users(corrected, names=["zoe.gone"]) == 1


def test_a_month_is_not_sealed_whose_revisions_are_of_jobs_in_files_alone(corrected: Tenant) -> None:
    later = UsageRevision.objects.latest("superseded_month").superseded_month
    after = month_number(later) << 40

    def dropped() -> str | None:
        with connection.cursor() as cursor:
            values: dict[str, list[Any]] = {"months": [later], "afters": [after], "lasts": [after + 1]}
            cursor.execute(readiness.sql.STATES, values)
            months = cursor.fetchone()[2]
        return None if months is None else str(months)

    assert dropped() == "2026-03"
    drop.load_back(month=MARCH)
    assert dropped() is None
