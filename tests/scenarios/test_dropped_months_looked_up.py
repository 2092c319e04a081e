"""Which dropped months concern a tenant is looked up among its own files, however many tenants there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.db import connection

from billing.models import SealedFile
from billing.sealed_months import drop
from clusters import absent_records
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from portal.core.tenants.scope import tenant_scope
from tests.builders import ingest
from tests.sealed_march import MARCH, NOW, enter_march, sealed
from tests.stories import close

pytestmark = pytest.mark.django_db

READ = "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = %s"


@pytest.fixture
def vision(settings: Any, tmp_path: Path) -> Tenant:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    enter_march()
    ingest(Cluster.objects.get(), as_of="2026-05-02")
    close("2026-04", on="2026-05-03")
    sealed()
    drop.drop_month(month=MARCH, moment=NOW, all_processes_replaced=True)
    with connection.cursor() as cursor:
        # Small as they are, the tables would be read whole, also by functions that the session has planned before.
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = on; DISCARD PLANS")
    return Tenant.objects.get(slug="vision-lab")


def rows_read(table: str) -> int:
    with connection.cursor() as cursor:
        cursor.execute(READ, [table])
        (number,) = cursor.fetchone()
    return int(number)


def test_lists_of_jobs_read_no_file_of_another_tenant(vision: Tenant) -> None:
    of_others = SealedFile.objects.exclude(tenant=vision).exclude(tenant=None).count()
    assert of_others == 2
    rest = SealedFile.objects.count() - of_others
    before = rows_read("billing_sealedfile")
    with tenant_scope(vision):
        assert absent_records.list_own() == [MARCH]
    assert rows_read("billing_sealedfile") - before <= rest
