"""An operator's key reads rows of dropped months, in the scope of the tenant that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from billing.models import Invoice, RatedJob
from portal.core.identifiers import write
from portal.core.outbox import outbox
from tests.api.door import door
from tests.builders import an_operator
from tests.sealed_march import enter_march
from tests.web.test_dropped_months_read import dropped, sealed

pytestmark = pytest.mark.django_db(transaction=True)  # what is shown of files goes as a transaction ends


def test_an_operators_key_reads_of_a_dropped_month_what_it_read_before(settings: Any, tmp_path: Path) -> None:
    settings.CLUSTERTAB_SEALED_MONTHS = tmp_path / "sealed"
    enter_march()
    sealed()
    outbox.drain()  # which renders the documents
    op = door(an_operator(), None)
    invoice = Invoice.objects.get(tenant__slug="vision-lab", period_start__month=3)
    record = RatedJob.objects.filter(tenant__slug="vision-lab").earliest("shown_at").record_id
    paths = [
        "/jobs?tenant=vision-lab&from=2026-03-01T00:00:00Z&to=2026-04-01T00:00:00Z",
        f"/jobs/{write('job', record)}?tenant=vision-lab",
        "/usage?tenant=vision-lab&from=2026-03-01&to=2026-03-05&interval=hour&group_by=user",
    ]
    files = [f"/invoices/{invoice.number}/jobs.csv", f"/invoices/{invoice.number}/evidence.zip"]
    before = [op.get(path).body for path in paths], [op.get(path).raw for path in files]
    assert all(before[0])
    dropped()
    assert ([op.get(path).body for path in paths], [op.get(path).raw for path in files]) == before
