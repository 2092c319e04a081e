"""Ann downloads the evidence of her invoice: with fees, commitments and discounts on it too."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import ProgrammingError

from billing.models import Commitment, Discount, Fee
from portal.core.tenants.models import Role
from portal.core.tenants.scope import tenant_scope
from tests import stories
from tests.builders import a_person, a_tenant
from tests.evidence import bundle, verified
from tests.scenarios.test_evidence import a_lab_on_terms
from tests.web.house import signed_in

pytestmark = pytest.mark.django_db


def test_ann_downloads_the_evidence_of_fees_a_commitment_and_discounts(tmp_path: Path) -> None:
    lab = a_lab_on_terms()
    march = stories.invoice_of(lab, "2026-03")
    assert {"fee", "commitment", "discount"} <= set(march.lines.values_list("kind", flat=True))
    content = bundle(march)
    response = signed_in(a_person("ann@vision.example", lab, Role.OWNER)).get(
        f"/t/vision-lab/invoices/{march.number}/evidence"
    )
    assert response.status_code == 200
    assert bytes(response.getvalue()) == content
    assert verified(content, tmp_path)[0] == 0


def test_a_page_reads_the_version_of_its_own_terms_and_no_amount() -> None:
    lab = a_lab_on_terms()
    eves = a_tenant("speech-lab")
    for model in (Fee, Commitment, Discount):
        with tenant_scope(lab):
            assert model._default_manager.values_list("version").exists()
        with tenant_scope(eves):
            assert not model._default_manager.values_list("version").exists()
        with pytest.raises(ProgrammingError, match="permission denied"), tenant_scope(lab):
            list(model._default_manager.values("name"))
