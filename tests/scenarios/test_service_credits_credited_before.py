"""A job is credited by hand or by its failure rule: the other gives nothing of that a second time, or says so."""

from __future__ import annotations

from datetime import date

import pytest

from billing.invoicing import credit_note_previews, credit_notes, manual_lines
from billing.models import CreditState, ManualLine, ServiceCredit
from billing.rules.money import Money
from clusters.models import Cluster
from portal.core.tenants.models import Corrections, Tenant
from tests.builders import a_cluster, a_plan, a_tenant, at
from tests.scenarios.test_service_credits import a_rule, ran, reviewed
from tests.stories import closed, invoice_of, lines_of, prove

pytestmark = pytest.mark.django_db


@pytest.fixture
def gpu1() -> Cluster:
    return a_cluster(complete_through="2026-09-01")


@pytest.fixture
def vision(gpu1: Cluster) -> Tenant:
    """Pays 2.00 for an hour of a GPU."""
    return a_tenant(plan=a_plan(), accounts=[(gpu1, "vision")])


def test_what_was_credited_by_hand_in_full_is_not_credited_again(gpu1: Cluster, vision: Tenant) -> None:
    a_rule()
    ran(gpu1, job_id="18", state="NODE_FAIL")
    closed("2026-03", vision)
    credited_by_hand(vision)

    assert reviewed("2026-04-20") == (1, 0)

    assert ServiceCredit.objects.get().state == CreditState.NOTHING
    ran(gpu1, job_id="19", started="2026-04-02 10:00", ended="2026-04-02 14:00")
    closed("2026-04", vision)
    assert [line.amount for line in lines_of(invoice_of(vision, "2026-04"))] == [3200]
    prove()


def test_what_was_credited_by_hand_in_part_is_for_a_person_to_decide(gpu1: Cluster, vision: Tenant) -> None:
    """Of two jobs of 32.00 on one line one failed, and nobody can tell which of them the 32.00 are for."""
    a_rule()
    ran(gpu1, job_id="18", state="NODE_FAIL")
    ran(gpu1, job_id="19")
    closed("2026-03", vision)
    credited_by_hand(vision, "32.00")

    assert reviewed("2026-04-20") == (1, 0)

    credit = ServiceCredit.objects.get()
    assert credit.state == CreditState.BY_HAND
    assert credit.error == "INV-2026-0001 is credited by hand in part: add a line for what is left of it."
    assert not ManualLine.objects.exists()


def test_a_credit_of_what_the_failed_job_is_no_part_of_changes_nothing(gpu1: Cluster, vision: Tenant) -> None:
    """A fee is credited by hand; and the close has credited usage that went down, but not that of the failed job."""
    Tenant.objects.update(corrections=Corrections.CREDIT_NOTE)
    manual_lines.add_manual_line(
        tenant=vision, description="Set-up", net=Money.of("10", "USD"), reason="Contract", by="op",
        on=date(2026, 3, 1),
    )  # fmt: skip
    a_rule()
    ran(gpu1, job_id="18", state="NODE_FAIL")
    ran(gpu1, job_id="19", source_key="19")
    closed("2026-03", vision)
    credited_by_hand(vision, position=2)
    ran(gpu1, job_id="19", source_key="19", ended="2026-03-02 12:00")
    closed("2026-04", vision)

    assert reviewed("2026-04-20") == (1, 1)

    assert ManualLine.objects.get(by="review_failures").amount == -3200
    prove()


def test_a_preview_names_the_jobs_that_a_rule_has_credited_of_the_lines(
    gpu1: Cluster, vision: Tenant
) -> None:
    """Jobs 18 and 19 stand on one line, a set-up on another. Job 18 was credited by the rule, and then no more."""
    manual_lines.add_manual_line(
        tenant=vision, description="Set-up", net=Money.of("10", "USD"), reason="Contract", by="op",
        on=date(2026, 3, 1),
    )  # fmt: skip
    a_rule()
    ran(gpu1, job_id="18", state="NODE_FAIL")
    ran(gpu1, job_id="19")
    closed("2026-03", vision)
    before = previewed(vision)
    assert reviewed("2026-04-20") == (1, 1)

    warning = (
        " Failure rules have credited jobs of these lines already, 32.00 USD in all (18): credit an amount without "
        "them."
    )
    assert previewed(vision) == before + warning
    assert previewed(vision, position=1).endswith(warning)
    assert "Failure rules" not in previewed(vision, position=2)
    manual_lines.remove_manual_line(line=ManualLine.objects.get(by="review_failures"))
    assert previewed(vision) == before


def previewed(tenant: Tenant, position: int | None = None) -> str:
    return credit_note_previews.preview_credit(
        invoice=invoice_of(tenant, "2026-03"),
        on=date(2026, 4, 21),
        moment=at("2026-04-21"),
        position=position,
    ).sentence


def credited_by_hand(tenant: Tenant, net: str | None = None, position: int | None = None) -> None:
    credit_notes.issue_credit_note(
        invoice=invoice_of(tenant, "2026-03"), reason="Node failed.", by="op", on=date(2026, 4, 10),
        net=Money.of(net, "USD") if net else None, position=position,
    )  # fmt: skip
