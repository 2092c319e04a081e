"""Op sets failure rules after a preview; tenants see on job and invoice what failed, and nobody else's."""

from __future__ import annotations

import pytest
from django.test import Client

from billing.models import FailureRule, ServiceCredit
from billing.service_credits import review
from clusters.models import Cluster, GpuErrorReading
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Role, Tenant
from tests.builders import a_cluster, a_job, a_person, a_plan, a_tenant, an_operator, at, ingest
from tests.scenarios.test_service_credits import UUID, a_rule, an_error, ran
from tests.stories import closed

pytestmark = pytest.mark.django_db

PAGE = "/operator/service-credits/"


@pytest.fixture
def gpu1() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def vision(gpu1: Cluster) -> Tenant:
    return a_tenant("vision", plan=a_plan(), accounts=[(gpu1, "vision")])


@pytest.fixture
def op(client: Client) -> Client:
    client.force_login(an_operator())
    return client


def text_of(client: Client, url: str, **query: str) -> str:
    answer = client.get(url, query)
    assert answer.status_code == 200, url
    return " ".join(answer.content.decode().split())


FORM = {"name": "failed-hardware", "xids": "79, 48", "memory": "yes", "part": "rest", "watch": "no"}


def test_a_rule_is_saved_after_a_preview_and_ended_after_a_question(op: Client) -> None:
    assert "No rules" in text_of(op, PAGE)
    shown = text_of(op, PAGE, act="preview", **FORM)
    assert "Set rule failed-hardware?" in shown
    assert (
        "XID 48, 79; errors of the memory; all clusters. Credits 100 % of the time from the failure to the end."
        in shown
    )
    assert "0 jobs of the last 30 days would have met it." in shown
    assert not FailureRule.objects.exists()

    op.post(PAGE, {"act": "save", **FORM})
    row = FailureRule.objects.get()
    assert (row.xids, row.memory, row.states, row.part, row.percent, row.watch) == (
        [48, 79], True, [], "rest", 100, False,
    )  # fmt: skip
    entry = AuditEntry.objects.filter(table="billing_failurerule").get()
    assert (entry.who, entry.through) == ("op@cluster.example", "service credits")
    assert "Change rule failed-hardware?" in text_of(op, PAGE, act="preview", **FORM)
    assert 'value="48, 79"' in text_of(op, PAGE, edit="failed-hardware")

    assert "End rule failed-hardware?" in text_of(op, PAGE, end="failed-hardware")
    op.post(PAGE, {"act": "end", "name": "failed-hardware"})
    assert "No rules" in text_of(op, PAGE)


def test_blank_fields_are_all_errors_of_the_hardware(op: Client) -> None:
    op.post(PAGE, {"act": "save", "name": "all"})
    row = FailureRule.objects.get()
    assert (79 in row.xids, row.memory, row.states, row.part, row.watch) == (
        True,
        True,
        ["NODE_FAIL", "NodeLost"],
        "run",
        True,
    )
    op.post(PAGE, {"act": "save", "name": "rest", "part": "rest"})
    assert FailureRule.objects.get(name="rest").states == []


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"xids": "13"}, "XID 13 comes of the application"),
        ({"xids": "many"}, "xids"),
        ({"percent": "200"}, "percent"),
        ({"states": "NODE_FAIL", "part": "rest"}, "has ended with the failure"),
        ({"name": "Not A Slug"}, "Name a rule by lower-case letters"),
        ({"name": ""}, "name"),
    ],
)
def test_a_refusal_says_why_and_keeps_what_was_typed(
    op: Client, fields: dict[str, str], sentence: str
) -> None:
    shown = text_of(op, PAGE, act="preview", **{"name": "a-rule", "cluster": "", **fields})
    assert 'role="alert"' in shown
    assert sentence in shown
    op.post(PAGE, {"act": "save", "name": "a-rule", **fields})
    assert not FailureRule.objects.exists()


def test_the_page_shows_failures_their_credits_and_what_could_not_be_read(
    op: Client, gpu1: Cluster, vision: Tenant
) -> None:
    GpuErrorReading.objects.create(cluster=gpu1, last_error="10.0.0.1:9090 does not answer.")
    a_rule()
    record = ran(gpu1, job_id="17", state="FAILED")
    an_error(gpu1, record, 79)
    closed("2026-03", vision)
    review.review_failures(moment=at("2026-04-02"))
    ServiceCredit.objects.update(began_at=at("2090-01-01"))
    shown = text_of(op, PAGE)
    assert "gpu1: 10.0.0.1:9090 does not answer." in shown
    assert "XID 79" in shown
    assert f"{UUID}, n-7, gpu1" in shown
    assert "$32.00" in shown
    assert "Credited" in shown


def test_a_tenant_sees_its_own_failures_on_job_and_invoice(
    client: Client, gpu1: Cluster, vision: Tenant
) -> None:
    a_rule()
    record = ran(gpu1, job_id="17", state="FAILED")
    an_error(gpu1, record, 79)
    client.force_login(a_person("ann@vision.example", vision, role=Role.OWNER))
    assert "Service credit" not in text_of(client, f"/t/vision/jobs/{record}/")
    review.review_failures(moment=at("2026-03-03"))
    assert "once the job is invoiced" in text_of(client, f"/t/vision/jobs/{record}/")
    closed("2026-03", vision)
    review.review_failures(moment=at("2026-04-02"))
    shown = text_of(client, f"/t/vision/jobs/{record}/")
    assert "XID 79" in shown
    assert UUID in shown
    assert "$32.00, on the next invoice" in shown

    ingest(gpu1, a_job(started="2026-04-02 10:00", ended="2026-04-04 10:00"), as_of="2026-06-01")
    number = closed("2026-04", vision).number
    invoice = text_of(client, f"/t/vision/invoices/{number}/")
    assert f"Service credit, job 17: XID 79 of {UUID}" in invoice
    assert f'href="/t/vision/jobs/{record}/"' in invoice

    speech = a_tenant("speech")
    client.force_login(a_person("eve@speech.example", speech, role=Role.OWNER))
    assert client.get(f"/t/vision/jobs/{record}/").status_code == 404


def test_what_is_only_watched_is_the_operators(client: Client, gpu1: Cluster, vision: Tenant) -> None:
    a_rule(watch=True)
    record = ran(gpu1, state="NODE_FAIL")
    review.review_failures(moment=at("2026-03-03"))
    client.force_login(a_person("ann@vision.example", vision, role=Role.OWNER))
    assert "Service credit" not in text_of(client, f"/t/vision/jobs/{record}/")
    assert client.get(PAGE).status_code == 404
