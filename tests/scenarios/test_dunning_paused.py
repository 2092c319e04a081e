"""Op lets an invoice rest, or all of a tenant's; and cards are tried again as the policy says."""

from __future__ import annotations

from datetime import date

import pytest
from django.core.management import call_command

from billing.models import BillingAccount, DunningPause
from billing.payments.gateways.base import GatewayError
from billing.receivables import dunning_policies, pauses
from billing.receivables.pauses import PauseError
from tests.collecting import Counter

pytestmark = pytest.mark.django_db(transaction=True)

DECLINED = "4000000000000341"


def test_what_rests_is_not_charged_until_its_day(counter: Counter) -> None:
    counter.save_card()
    pauses.pause(
        tenant=counter.lab,
        invoice=counter.invoice,
        until=date(2026, 4, 25),
        why="the lab asks for a month",
        by="op",
        moment=counter.now,
    )
    counter.wait(days=4)  # 24 April
    counter.collect()
    assert counter.states == []
    counter.wait(days=1)
    counter.collect()
    assert (counter.taken, counter.states) == ([400], ["succeeded"])
    counter.books_agree()


@pytest.mark.parametrize("who", ["op", "ann"])
def test_what_was_about_to_be_charged_is_not_when_it_is_paused_or_automatic_payment_is_turned_off(
    counter: Counter, who: str
) -> None:
    """Stripe refuses the key as the charge is to be sent; Op pauses, or Ann turns it off; the key is let in again."""
    counter.save_card()
    counter.stripe.faults.unauthorized()
    with pytest.raises(GatewayError):
        counter.charge()
    assert counter.states == ["ready"]
    if who == "op":
        call_command("pause_dunning", "vision-lab", why="charges are wrong")
    else:
        BillingAccount.objects.update(automatic=False)
    counter.wait(hours=10)
    counter.stripe.faults.lift()
    counter.collect()
    counter.collect()
    assert (counter.states, counter.taken) == (["canceled"], [])

    if who == "op":
        call_command("resume_dunning", "vision-lab")
    else:
        BillingAccount.objects.update(automatic=True)
    counter.collect()
    assert counter.taken == [400]
    counter.books_agree()


def test_a_tenant_rests_until_somebody_resumes(counter: Counter, capsys: pytest.CaptureFixture[str]) -> None:
    counter.save_card()
    call_command("pause_dunning", "vision-lab", why="merging with speech-lab")
    counter.wait(days=40)
    counter.collect()
    assert counter.states == []
    call_command("resume_dunning", "vision-lab")
    call_command("resume_dunning", "vision-lab")
    counter.collect()
    assert counter.taken == [400]
    assert capsys.readouterr().out.splitlines() == [
        "Every invoice of vision-lab rests until it is resumed.",
        "It goes on with every invoice of vision-lab.",
        "Nothing to resume: every invoice of vision-lab was not paused by that name.",
    ]
    row = DunningPause.objects.get()
    assert (row.by, row.why, row.ended_by) == ("pause_dunning", "merging with speech-lab", "resume_dunning")
    counter.books_agree()


def test_a_pause_has_a_reason_and_another_takes_its_place(counter: Counter) -> None:
    def pause(why: str, until: date | None = None) -> DunningPause:
        return pauses.pause(
            tenant=counter.lab, invoice=None, until=until, why=why, by="op", moment=counter.now
        )

    with pytest.raises(PauseError, match="Say why"):
        pause(" ")
    with pytest.raises(PauseError, match="2026-04-20 is not to come"):
        pause("late", date(2026, 4, 20))
    assert pause("they asked").pk == pause("they asked").pk
    pause("they asked twice")
    assert list(DunningPause.objects.filter(ended_at=None).values_list("why", flat=True)) == [
        "they asked twice"
    ]
    assert DunningPause.objects.count() == 2


def test_collecting_case_11_the_policy_says_when_a_refused_card_is_tried_again(counter: Counter) -> None:
    dunning_policies.set_policy(tenant=counter.lab, since=date(2026, 1, 1), retries=[2, 10])
    counter.save_card(DECLINED)
    counter.collect()
    for days, tries in ((1, 1), (1, 2), (9, 2), (1, 3), (30, 3)):
        counter.wait(days=days)
        counter.collect()
        assert counter.states == ["failed"] * tries
    counter.books_agree()
