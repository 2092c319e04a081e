"""What usage and jobs refer to cannot go while they stand, whoever deletes it; if it is gone, the proof says so."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, connection, transaction

from billing.models import RatedJob
from billing.proof import checks
from clusters.models import Account, Cluster, UsageRecord
from portal.core.tenants.models import Project, Tenant
from tests.builders import a_cluster, a_job, a_plan, a_tenant, ingest

pytestmark = pytest.mark.django_db


@pytest.fixture
def vision() -> Tenant:
    """Ann's tenant with one job of Ben's, which waits: it is in no total that would hold its project."""
    cluster = a_cluster(complete_through="2026-04-01")
    tenant = a_tenant(plan=a_plan(), accounts=[(cluster, "vision")])
    ingest(cluster, a_job(started=None, ended=None, submitted="2026-03-02 10:00"))
    assert RatedJob.objects.get().project.name == "vision"
    return tenant


def run(statement: str) -> None:
    """As Op types it into psql."""
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(statement)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM clusters_account WHERE name = 'vision'",
        "UPDATE clusters_account SET id = id + 1000 WHERE name = 'vision'",
        "DELETE FROM clusters_cluster",
        "DELETE FROM tenants_project",
        "UPDATE tenants_project SET id = id + 1000",
        "DELETE FROM tenants_tenant",
    ],
)
@pytest.mark.usefixtures("vision")
def test_the_database_refuses_to_take_away_what_usage_stands_on(statement: str) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM tenants_ownership")  # which would refuse first
        with pytest.raises(IntegrityError):
            run(f"{statement}; SET CONSTRAINTS ALL IMMEDIATE")
        transaction.set_rollback(True)
    assert checks.prove().holds


@pytest.mark.usefixtures("vision")
def test_what_no_usage_stands_on_may_go() -> None:
    empty = a_cluster("empty")
    account = Account.objects.create(cluster=empty, name="nobody")
    project = Project.objects.create(tenant=Tenant.objects.get(), name="unused")
    for unused in (account, empty, project):
        unused.delete()
    assert list(Cluster.objects.values_list("name", flat=True)) == ["gpu1"]


def broken() -> dict[str, list[str]]:
    return {check.name: check.broken for check in checks.prove().checks if check.broken}


def test_a_job_without_its_project_does_not_pass_the_proof(vision: Tenant) -> None:
    job = RatedJob.objects.get()
    RatedJob.objects.update(project=0)
    assert broken() == {
        "every job has its tenant and project": [
            f"job {job.job_id} of gpu1/vision, tenant {vision.slug}, project 0, which is gone"
        ]
    }


@pytest.mark.usefixtures("vision")
def test_a_record_without_its_account_does_not_pass_the_proof() -> None:
    record = UsageRecord.objects.get()
    UsageRecord.objects.update(account=0)
    assert broken()["every usage record has its account and cluster"] == [
        f"job {record.job_id}, account number 0, cluster number {record.cluster_id}"
    ]
