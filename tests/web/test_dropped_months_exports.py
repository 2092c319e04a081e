"""The charges of dropped months are exported as they were before, whole or not at all."""

from __future__ import annotations

from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, transaction

from billing.models import FocusExport, FocusFormat
from billing.reports import focus_exports
from billing.reports.focus import make_dataset
from billing.reports.focus_exports import FocusExportError
from portal.core.tenants.models import Tenant, User
from portal.ops.cli import RefusedError
from portal.sentences import sentence
from tests.api.door import door
from tests.builders import an_operator, at
from tests.scenarios.real import run
from tests.sealed_march import enter_march_and_may
from tests.web.test_dropped_months_pages import UNREAD, dropped

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


@pytest.fixture(autouse=True)
def directory(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"


@pytest.fixture
def ann() -> User:
    return enter_march_and_may()


def test_an_export_of_many_documents_holds_no_more_locks_than_one_of_few(ann: User) -> None:
    dropped()
    tenants = list(Tenant.objects.order_by("slug"))

    def locks(times: int) -> int:
        with transaction.atomic(), connection.cursor() as cursor:
            dataset = make_dataset(tenants=tenants * times, month=(2026, 3), moment=at("2026-06-01"))
            assert len(list(dataset.charges)) == 2 * times
            cursor.execute("SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid()")
            return int(cursor.fetchone()[0])

    assert locks(4) == locks(1)


def file_of(month: int, kind: FocusFormat) -> bytes:
    """As a worker writes it, each time an hour later."""
    moment = at("2026-06-01") + timedelta(hours=FocusExport.objects.count())
    export = focus_exports.request_export(month=date(2026, month, 1), kind=kind, by="op", moment=moment)
    focus_exports.perform_next(clock=lambda: moment)
    export.refresh_from_db()
    return b"".join(focus_exports.open_file(export, by="op", moment=moment))


def test_operators_export_the_charges_of_all_tenants_of_a_dropped_month(ann: User, tmp_path: Path) -> None:
    api = door(an_operator(), None)
    charges, link = tmp_path / "charges.csv", tmp_path / "link.csv"
    link.symlink_to(charges)

    def exports() -> list[bytes]:
        run("export_focus", "2026-03", str(link))
        return [
            *(file_of(month, FocusFormat.CSV) for month in (3, 4)),
            file_of(3, FocusFormat.PARQUET),
            api.get("/exports/focus?period=2026-03&tenant=vision-lab").raw,
            charges.read_bytes(),
        ]

    before = exports()
    assert before[0].count(b"tenants/vision-lab") == before[0].count(b"tenants/speech-lab") == 1
    dropped()
    assert exports() == before
    for file in (tmp_path / "sealed" / "2026-03").glob("tenant-*/rated.parquet"):
        file.unlink()
    with pytest.raises(FocusExportError) as refused:
        file_of(3, FocusFormat.CSV)
    assert UNREAD in sentence(refused.value)
    with pytest.raises(RefusedError):
        exports()
    assert charges.read_bytes() == before[-1]  # which is whole
    assert link.is_symlink()
    assert {path.name for path in tmp_path.iterdir()} == {"charges.csv", "link.csv", "sealed"}
