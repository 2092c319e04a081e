"""The number of a document is a part of its address: what no address takes, no number begins with."""

from __future__ import annotations

import csv
import io

import pytest
from django.db import IntegrityError, transaction
from django.test import Client

from billing.models import Invoice, Seller
from tests.builders import a_cluster, a_job, a_person, a_plan, a_seller, a_tenant, an_operator, ingest
from tests.configuring_terms import refused
from tests.owner import as_owner
from tests.stories import closed

pytestmark = pytest.mark.django_db

RULE = "write letters, digits and . _ - only, the first one a notice or a digit."


@pytest.mark.parametrize("prefix", ["INV/26", "INV 26", "-INV", "Ré", "INV?"])
def test_a_prefix_that_no_address_takes_is_refused_wherever_it_is_set(prefix: str) -> None:
    seller = a_seller()
    assert any(RULE in entry for entry in refused(f'[seller]\nname = "North"\ninvoice_prefix = "{prefix}"\n'))
    assert any(RULE in entry for entry in refused(f'[seller]\nname = "North"\ncredit_prefix = "{prefix}"\n'))

    op = Client()
    op.force_login(an_operator())
    entry = {
        "code": "default",
        "name": "North",
        "invoice_prefix": prefix,
        "credit_prefix": "CN",
        "tax_name": "VAT",
    }
    answer = op.post(f"/admin/billing/seller/{seller.pk}/change/", entry)
    assert RULE in answer.content.decode()

    for column in ("invoice_prefix", "credit_prefix"):
        with pytest.raises(IntegrityError, match=f"{column}_stands_in_an_address"), transaction.atomic():
            Seller.objects.update(**{column: prefix})


def test_what_was_issued_under_a_slash_opens_all_the_same() -> None:
    with as_owner() as cursor:  # as it was before there was the rule
        cursor.execute("ALTER TABLE billing_seller DROP CONSTRAINT invoice_prefix_stands_in_an_address")
    a_seller(invoice_prefix="INV/26")
    lab = a_tenant(plan=a_plan(), accounts=[(a_cluster(), "vision")])
    ann = Client()
    ann.force_login(a_person(tenant=lab))
    ingest(a_cluster(), a_job(job_id="1001"), as_of="2026-04-02")
    closed("2026-03", lab)
    assert Invoice.objects.get().number == "INV/26-2026-0001"

    for path in ("", "invoices/", "invoices/INV/26-2026-0001/"):
        assert "INV/26-2026-0001" in ann.get(f"/t/vision-lab/{path}").content.decode(), path
    table = b"".join(ann.get("/t/vision-lab/invoices/INV/26-2026-0001/lines/1/csv"))
    assert table == b"".join(ann.get("/t/vision-lab/invoices/INV/26-2026-0001/csv"))
    (row,) = csv.DictReader(io.StringIO(table.decode()))
    assert (row["invoice"], row["job"], row["user"]) == ("INV/26-2026-0001", "1001", "ben")
    assert ann.get("/t/vision-lab/invoices/INV/26-2026-0001/lines/1/").status_code == 200
