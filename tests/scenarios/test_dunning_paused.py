"""Op lets an invoice rest, or all of a tenant's; and cards are tried again as the policy says."""

from __future__ import annotations

from datetime import date

import pytest
from django.core.management import call_command

from billing.models import BillingAccount, DunningPause
from billing.payments.gateways.base import GatewayError
from billing.receivables import dunning_policies, pauses
from billing.receivables.pauses import PauseError
from tests.collecting import Scenario

pytestmark = pytest.mark.django_db(transaction=True)

DECLINED = "4000000000000341"


def test_what_rests_is_not_charged_until_its_day(scenario: Scenario) -> None:
    scenario.save_card()
    pauses.pause_dunning(
        tenant=scenario.lab,
        invoice=scenario.invoice,
        until=date(2026, 4, 25),
        reason="the lab asks for a month",
        by="op",
        moment=scenario.now,
    )
    scenario.wait(days=4)  # 24 April
    scenario.collect()
    assert scenario.states == []
    scenario.wait(days=1)
    scenario.collect()
    assert (scenario.charged, scenario.states) == ([400], ["succeeded"])
    scenario.books_agree()


@pytest.mark.parametrize("who", ["op", "ann"])
def test_what_was_about_to_be_charged_is_not_when_it_is_paused_or_automatic_payment_is_turned_off(
    scenario: Scenario, who: str
) -> None:
    """Stripe refuses the key as the charge is to be sent; Op pauses, or Ann turns it off; the key is let in again."""
    scenario.save_card()
    scenario.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        scenario.charge()
    assert scenario.states == ["ready"]
    if who == "op":
        call_command("pause_dunning", "vision-lab", why="charges are wrong")
    else:
        BillingAccount.objects.update(automatic=False)
    scenario.wait(hours=10)
    scenario.stripe.faults.lift()
    scenario.collect()
    scenario.collect()
    assert (scenario.states, scenario.charged) == (["canceled"], [])

    if who == "op":
        call_command("resume_dunning", "vision-lab")
    else:
        BillingAccount.objects.update(automatic=True)
    scenario.collect()
    assert scenario.charged == [400]
    scenario.books_agree()


def test_a_tenant_rests_until_somebody_resumes(
    scenario: Scenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario.save_card()
    call_command("pause_dunning", "vision-lab", why="merging with speech-lab")
    scenario.wait(days=40)
    scenario.collect()
    assert scenario.states == []
    call_command("resume_dunning", "vision-lab")
    call_command("resume_dunning", "vision-lab")
    scenario.collect()
    assert scenario.charged == [400]
    assert capsys.readouterr().out.splitlines() == [
        "Every invoice of vision-lab rests until it is resumed.",
        "It goes on with every invoice of vision-lab.",
        "Nothing to resume: every invoice of vision-lab was not paused by that name.",
    ]
    row = DunningPause.objects.get()
    assert (row.by, row.reason, row.ended_by) == (
        "pause_dunning",
        "merging with speech-lab",
        "resume_dunning",
    )
    scenario.books_agree()


def test_a_pause_has_a_reason_and_another_takes_its_place(scenario: Scenario) -> None:
    def pause(why: str, until: date | None = None) -> DunningPause:
        return pauses.pause_dunning(
            tenant=scenario.lab, invoice=None, until=until, reason=why, by="op", moment=scenario.now
        )

    with pytest.raises(PauseError, match="Say why"):
        pause(" ")
    with pytest.raises(PauseError, match="2026-04-20 is not to come"):
        pause("late", date(2026, 4, 20))
    assert pause("they asked").pk == pause("they asked").pk
    pause("they asked twice")
    assert list(DunningPause.objects.filter(ended_at=None).values_list("reason", flat=True)) == [
        "they asked twice"
    ]
    assert DunningPause.objects.count() == 2


def test_collecting_case_11_the_policy_says_when_a_refused_card_is_tried_again(scenario: Scenario) -> None:
    dunning_policies.set_policy(tenant=scenario.lab, since=date(2026, 1, 1), retries=[2, 10])
    scenario.save_card(DECLINED)
    scenario.collect()
    for days, tries in ((1, 1), (1, 2), (9, 2), (1, 3), (30, 3)):
        scenario.wait(days=days)
        scenario.collect()
        assert scenario.states == ["failed"] * tries
    scenario.books_agree()
