"""Who writes while months are proved: what is committed after a proof has looked is not taken as proved."""

from __future__ import annotations

from datetime import date

import psycopg
import pytest

from billing.models import ProofMark
from billing.proof import checks
from tests.builders import LATER, a_cluster, a_job, a_plan, a_tenant, ingest

pytestmark = pytest.mark.usefixtures("transactional_db")

MARCH = date(2026, 3, 1)


def test_what_is_written_at_once_with_a_proof_has_the_month_proved_again(database_url: str) -> None:
    cluster = a_cluster()
    a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(job_id="1"))
    with psycopg.connect(database_url) as other:
        other.execute("UPDATE clusters_usagerecord SET gpus = gpus + 1 WHERE job_id = '1'")
        assert checks.prove(moment=LATER).holds  # of what is committed
        assert checks.prove(moment=LATER).recomputed == []
    assert ProofMark.objects.get().month == MARCH
    proof = checks.prove(moment=LATER)
    assert (proof.holds, proof.recomputed) == (False, [MARCH])
    assert not ProofMark.objects.exists()
