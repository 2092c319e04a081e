"""Hardware that fails pays by itself: by a rule, on the next invoice, once, with the evidence; applications do not."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from django.core.management import CommandError

from billing.catalog import third_party_payers
from billing.documents import job_users
from billing.invoicing import manual_lines
from billing.models import CreditedPart, CreditState, FailureRule, ManualLine, RatedJob, ServiceCredit
from billing.service_credits import review, rules
from billing.service_credits.rules import FailureRuleError, FailureTerms
from clusters.gpu_causes import MEMORY_CAUSES, xid_cause
from clusters.models import Cluster, GpuError, UsageRecord
from portal.core.tenants.models import Tenant
from portal.ops import old_rows
from tests.builders import a_cluster, a_job, a_plan, a_seller, a_tenant, at, ingest
from tests.configuring_terms import apply
from tests.scenarios.real import run
from tests.scenarios.test_people_erased import tables_naming
from tests.scenarios.test_rating_prices import gpu
from tests.stories import closed, invoice_of, lines_of, prove

pytestmark = pytest.mark.django_db

UUID = "GPU-5fd4f7ce-1b2a"


@pytest.fixture
def gpu1() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def vision(gpu1: Cluster) -> Tenant:
    """Pays 2.00 for an hour of a GPU."""
    return a_tenant(plan=a_plan(), accounts=[(gpu1, "vision")])


def a_rule(name: str = "failed-hardware", since: str = "2026-03-01", **terms: Any) -> FailureRule:
    return rules.set_rule(name=name, terms=FailureTerms(**{"watch": False} | terms), moment=at(since))


def ran(cluster: Cluster, **fields: Any) -> int:
    """Four GPUs from 10:00 to 14:00 on 2 March, 32.00, unless said otherwise; the record's number."""
    times = {"started": "2026-03-02 10:00", "ended": "2026-03-02 14:00", "gpus": 4}
    fact = a_job(**times | fields)
    ingest(cluster, fact, as_of="2026-06-01")
    return UsageRecord.objects.get(source_key=fact.source_key).pk


def an_error(
    cluster: Cluster, record: int | None, cause: int | str, moment: str = "2026-03-02 13:00"
) -> GpuError:
    named = cause if isinstance(cause, str) else xid_cause(cause)
    return GpuError.objects.create(
        cluster=cluster, uuid=UUID, cause=named, at=at(moment), clean_until=at(moment), node="n-7",
        jobs=["17"], record_id=record,
    )  # fmt: skip


def reviewed(moment: str) -> tuple[int, int]:
    done = review.review_failures(moment=at(moment))
    return done.failed, done.credited


def test_a_failed_gpu_is_credited_on_the_next_invoice_with_the_evidence(
    gpu1: Cluster, vision: Tenant
) -> None:
    a_rule(states=(), part=CreditedPart.REST)
    record = ran(gpu1, job_id="17", state="FAILED")
    an_error(gpu1, record, 79)

    assert reviewed("2026-03-03") == (1, 0)  # before March is invoiced nothing is known of what it came to
    assert ServiceCredit.objects.get().state == CreditState.WAITING
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (0, 1)
    assert reviewed("2026-04-02") == (0, 0)

    closed("2026-04", vision)
    ingest(gpu1, a_job(started="2026-04-02 10:00", ended="2026-04-03 10:00"), as_of="2026-06-01")
    closed("2026-04", vision)
    (_, credit) = lines_of(invoice_of(vision, "2026-04"))
    assert (credit.kind, credit.amount) == ("manual", -800)  # the last of four hours, of four GPUs
    assert credit.description == (
        f"Service credit, job 17: XID 79 of {UUID} at 2026-03-02 13:00 UTC, 100 % of the time from then on"
    )
    row = ServiceCredit.objects.get()
    assert (row.state, row.amount, row.currency, row.node) == (CreditState.CREDITED, 800, "USD", "n-7")
    assert row.line_id == credit.term_id
    prove()


def test_a_failed_node_is_credited_in_percent_of_what_was_billed(gpu1: Cluster, vision: Tenant) -> None:
    a_rule(percent=50)
    ran(gpu1, job_id="18", state="NODE_FAIL")
    ran(gpu1, job_id="19", state="FAILED")
    ran(gpu1, job_id="20", state="COMPLETED")

    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (1, 1)

    (line,) = ManualLine.objects.all()
    assert (line.amount, line.currency, line.by) == (-1600, "USD", "review_failures")
    assert (
        line.description == "Service credit, job 18: NODE_FAIL at 2026-03-02 14:00 UTC, 50 % of the whole run"
    )


def test_a_pod_whose_node_was_lost_is_credited_and_one_that_was_evicted_is_not(
    gpu1: Cluster, vision: Tenant
) -> None:
    a_rule()
    ran(gpu1, job_id="train-0", state="NodeLost")
    ran(gpu1, job_id="train-1", state="Evicted")
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (1, 1)
    (line,) = ManualLine.objects.all()
    assert line.amount == -3200
    assert "job train-0: NodeLost" in line.description


def test_xids_of_applications_pay_nobody(gpu1: Cluster, vision: Tenant) -> None:
    a_rule()
    an_error(gpu1, ran(gpu1, state="FAILED"), 31)
    an_error(gpu1, None, 79)  # nobody's run
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (0, 0)
    for xid in rules.APPLICATION_XIDS:
        with pytest.raises(FailureRuleError, match=f"XID {xid} comes of the application"):
            a_rule("other", xids=[xid])


def test_a_run_is_credited_once_by_the_most_generous_rule(gpu1: Cluster, vision: Tenant) -> None:
    a_rule("a-half", percent=50)
    a_rule("whole")
    a_rule("watched", watch=True)
    record = ran(gpu1, state="NODE_FAIL")
    for xid, moment in ((79, "2026-03-02 13:00"), (48, "2026-03-02 12:00"), (48, "2026-03-02 13:30")):
        an_error(gpu1, record, xid, moment)
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (2, 1)
    states = {
        row.failure_rule.name: (row.state, row.amount, row.cause) for row in ServiceCredit.objects.all()
    }
    assert states == {"whole": ("credited", 3200, "XID 48"), "watched": ("watched", 3200, "XID 48")}
    assert reviewed("2026-04-03") == (0, 0)
    assert ManualLine.objects.count() == 1


def test_a_watched_rule_credits_nothing_and_a_changed_one_begins_anew(gpu1: Cluster, vision: Tenant) -> None:
    a_rule(watch=True)
    ran(gpu1, state="NODE_FAIL")
    assert reviewed("2026-03-03") == (1, 0)
    a_rule(since="2026-03-04")  # acts from now on
    ran(gpu1, state="NODE_FAIL", started="2026-03-05 10:00", ended="2026-03-05 11:00")
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (1, 1)
    rows = ServiceCredit.objects.order_by("ended_at").values_list("state", "amount")
    assert list(rows) == [("watched", 3200), ("credited", 800)]


def test_what_a_plan_does_not_bill_is_not_credited(gpu1: Cluster) -> None:
    plan = a_plan(prices=[gpu("2.00"), gpu("0.00", state="NODE_FAIL")])
    tenant = a_tenant(plan=plan, accounts=[(gpu1, "vision")])
    a_rule()
    ran(gpu1, state="NODE_FAIL")
    ran(gpu1)
    closed("2026-03", tenant)
    assert reviewed("2026-04-02") == (1, 0)
    assert ServiceCredit.objects.get().state == CreditState.NOTHING
    assert not ManualLine.objects.exists()


def test_a_run_of_two_months_waits_for_both_invoices(gpu1: Cluster, vision: Tenant) -> None:
    a_rule()
    ran(gpu1, started="2026-03-31 22:00", ended="2026-04-01 02:00", state="NODE_FAIL")
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (1, 0)
    closed("2026-04", vision)
    assert reviewed("2026-05-02") == (0, 1)
    assert ManualLine.objects.get().amount == -3200


def test_a_credit_that_an_operator_takes_off_is_not_given_again(gpu1: Cluster, vision: Tenant) -> None:
    a_rule()
    ran(gpu1, state="NODE_FAIL")
    closed("2026-03", vision)
    assert reviewed("2026-04-02") == (1, 1)
    manual_lines.remove_manual_line(line=ManualLine.objects.get())
    assert reviewed("2026-04-03") == (0, 0)
    assert ServiceCredit.objects.get().line_id is None


@pytest.mark.parametrize("cause", MEMORY_CAUSES)
def test_a_memory_that_fails_by_its_counters_is_credited_where_the_rule_says_so(
    gpu1: Cluster, vision: Tenant, cause: str
) -> None:
    a_rule("by-xids", memory=False)
    an_error(gpu1, ran(gpu1, job_id="17", state="FAILED"), cause)
    assert reviewed("2026-03-03") == (0, 0)
    rule = a_rule("all-hardware")
    assert reviewed("2026-03-03") == (1, 0)
    row = ServiceCredit.objects.get()
    assert (row.failure_rule, row.cause, row.gpu) == (rule, cause, UUID)


@pytest.mark.parametrize(
    ("terms", "sentence"),
    [
        ({"xids": (), "states": (), "memory": False}, "at least one XID or state"),
        ({"xids": (0,)}, "An XID is a number from 1 to 999"),
        ({"part": CreditedPart.REST}, "A job in state .NODE_FAIL. has ended with the failure"),
        ({"percent": 0}, "A rule credits 1 to 100 percent, not 0."),
        ({"percent": 101}, "not 101"),
        ({"cluster": "none"}, "There is no cluster .none."),
        ({"states": ("",)}, "A state has 1 to 255 characters"),
        ({"states": ("NODE_FAIL", "Completed")}, "A job in state 'Completed' did not fail"),
    ],
)
def test_a_rule_that_cannot_be_so_says_why(gpu1: Cluster, terms: dict[str, Any], sentence: str) -> None:
    with pytest.raises(FailureRuleError, match=sentence):
        a_rule(**terms)
    with pytest.raises(FailureRuleError, match="Name a rule by lower-case letters"):
        a_rule("No Name")
    assert not FailureRule.objects.exists()


def test_a_rule_is_changed_in_place_and_ended_once(gpu1: Cluster) -> None:
    first = a_rule(since="2026-03-01")
    assert a_rule(since="2026-03-02").applies_from == first.applies_from  # the same again
    assert a_rule(since="2026-03-03", percent=10).pk == first.pk
    assert rules.end_rule(name="failed-hardware", moment=at("2026-03-04"))
    assert not rules.end_rule(name="failed-hardware", moment=at("2026-03-04"))


TERMS = """
[[cluster]]
name = "gpu1"
kind = "import"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = 2026-01-01
[[plan.allowance]]
name = "Included hours"
hours = 8
[[plan.discount]]
name = "Partner"
percent = "25"
[[plan.price]]
meter = "gpu-hour"
unit_price = "2.00"
allowance = "Included hours"

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
accounts = [{ cluster = "gpu1", account = "vision" }]

[[failure_rule]]
name = "failed-hardware"
watch = false
"""


def test_included_hours_and_discounts_are_in_the_credit_as_they_are_in_the_bill() -> None:
    """Two jobs of 16 GPU-hours, 8 of them included: 24 x 2.00 less 25 % are 36.00, of which one job is half."""
    a_seller()
    apply(TERMS)
    FailureRule.objects.update(applies_from=at("2026-03-01"))
    cluster, tenant = Cluster.objects.get(), Tenant.objects.get()
    ran(cluster, state="NODE_FAIL")
    ran(cluster)
    closed("2026-03", tenant)
    assert invoice_of(tenant, "2026-03").subtotal == 3600
    assert reviewed("2026-04-02") == (1, 1)
    assert ManualLine.objects.get().amount == -1800


def test_what_another_tenant_pays_for_is_for_a_person_to_decide(gpu1: Cluster, vision: Tenant) -> None:
    payer = a_tenant("funder", plan=a_plan("other"))
    third_party_payers.pay_for(payer=payer, tenant=vision, since=date(2026, 1, 1))
    a_rule()
    ran(gpu1, state="NODE_FAIL")
    ran(gpu1, started="2026-02-02 10:00", ended="2026-02-02 11:00")
    closed("2026-03", payer)
    closed("2026-03", vision)
    review.review_failures(moment=at("2026-04-02"))
    credit = ServiceCredit.objects.get()
    assert credit.state == CreditState.BY_HAND
    assert credit.error == "Another tenant pays for it (funder): add a line there by hand."
    assert not ManualLine.objects.exists()


def test_commands_set_show_and_end_as_pages_do(gpu1: Cluster, vision: Tenant) -> None:
    row = run("set_failure_rule", "gpu-lost", "--xid", "79", "--part", "rest", "--act", "--why", "Contract.")
    assert row == {
        "name": "gpu-lost", "cluster": "", "xids": [79], "memory": False, "states": [], "part": "rest",
        "percent": 100, "watch": False,
    }  # fmt: skip
    FailureRule.objects.update(applies_from=at("2026-03-01"))
    an_error(gpu1, ran(gpu1, job_id="17", state="FAILED"), 79)
    closed("2026-03", vision)
    reviewed("2026-04-02")
    shown = run("show_service_credits", "--days", "36500")
    (credit,), (error,) = shown["credits"], shown["gpu_errors"]
    assert [rule["name"] for rule in shown["rules"]] == ["gpu-lost"]
    assert (credit["job"], credit["cause"], credit["gpu"], credit["state"]) == (
        "17",
        "XID 79",
        UUID,
        "credited",
    )
    assert credit["amount"] == {"amount": "8.00", "currency": "USD"}
    assert (error["cause"], error["matched"]) == ("XID 79", True)
    assert run("set_failure_rule", "gpu-lost", "--end") == {"name": "gpu-lost", "ended": True}
    with pytest.raises(CommandError, match="XID 13 comes of the application"):
        run("set_failure_rule", "wrong", "--xid", "13")


def test_erased_users_are_erased_of_their_failed_jobs(gpu1: Cluster, vision: Tenant) -> None:
    a_rule()
    ran(gpu1, state="NODE_FAIL", user="ben")
    reviewed("2026-03-03")
    job_users.erase_users(vision)
    user = ServiceCredit.objects.get().user
    assert user != "ben"
    assert user == RatedJob.objects.get().user


def test_who_is_erased_of_old_jobs_is_erased_from_the_history_of_their_failures(
    gpu1: Cluster, vision: Tenant
) -> None:
    a_rule()
    ran(gpu1, state="NODE_FAIL", user="zoe.gone")
    reviewed("2026-03-03")
    assert (
        old_rows.erase(kind="job-users", before=at("2030-01-01"), moment=at("2036-01-01"), reason="Old") == 1
    )
    assert tables_naming("zoe.gone") == set()
    assert ServiceCredit.objects.get().user == RatedJob.objects.get().user
