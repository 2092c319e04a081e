"""Nobody is suspended over an announcement of long ago, and none that was left out keeps it from being announced."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail

from billing.dunning import dunning_run
from billing.emails import delivery
from billing.models import Notice, Suspension
from billing.receivables import pauses, write_offs
from tests import stories
from tests.builders import a_job, at, ingest
from tests.fakes.scheduler_port import a_world
from tests.fakes.slurmrestd import StandIn
from tests.scenarios.test_dunning_suspends import Lab
from tests.tiers import thinned

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.peers]  # weeks go by, day after day


@pytest.fixture
def lab(settings: Any) -> Iterator[Lab]:
    settings.CLUSTERTAB_SENDS_MAIL = True
    with StandIn(44, world=a_world()) as slurm:
        yield Lab(slurm)


def subjects() -> list[str]:
    return [str(message.subject) for message in mail.outbox]


def announced(day: str, number: str = "INV-2026-0001") -> str:
    return f"GPU jobs will be suspended on {day}: invoice {number} is overdue"


def pays_and_it_goes_back(lab: Lab) -> None:
    lab.pay()
    lab.now = at("2026-06-20 09:00")
    lab.pay("-4.00")


def is_written_off_for_a_time(lab: Lab) -> None:
    write_offs.write_off_invoice(invoice=lab.invoice, reason="insolvent", by="op", on=lab.now.date())
    lab.now = at("2026-06-20 09:00")
    write_offs.reverse_write_off(invoice=lab.invoice, reason="they are not", by="op", moment=lab.now)


def rests_for_weeks(lab: Lab) -> None:
    until = date(2026, 6, 20)
    pauses.pause_dunning(
        tenant=lab.tenant, invoice=None, until=until, reason="they ask", by="op", moment=lab.now
    )
    lab.acts()
    lab.now = at("2026-06-20 09:00")


@pytest.mark.parametrize(
    "happens", thinned([pays_and_it_goes_back, is_written_off_for_a_time, rests_for_weeks], every=3)
)
def test_who_owes_again_after_weeks_is_told_anew_before_it_is_suspended(lab: Lab, happens: Any) -> None:
    lab.until("2026-05-09")
    assert subjects() == [announced("15 May 2026")]
    happens(lab)
    lab.acts()
    lab.acts()
    assert (lab.gpus, subjects()[1:]) == (8, [announced("27 June 2026")])
    lab.until("2026-06-26")
    assert (lab.gpus, len(mail.outbox)) == (8, 2)
    lab.until("2026-06-27")
    assert (lab.gpus, len(mail.outbox)) == (0, 3)
    lab.goes_by(40)
    assert (lab.gpus, len(mail.outbox)) == (0, 3)


def test_a_payment_that_goes_back_within_days_is_announced_anew_too(lab: Lab) -> None:
    lab.until("2026-05-14")
    lab.pay()
    lab.pay("-4.00")
    lab.goes_by()
    assert (lab.gpus, subjects()[1:]) == (8, [announced("22 May 2026")])
    lab.until("2026-05-22")
    assert lab.gpus == 0


def test_a_part_that_goes_back_puts_nothing_off(lab: Lab) -> None:
    lab.until("2026-05-14")
    lab.pay("1.00")
    lab.pay("-1.00")
    lab.goes_by()
    assert (lab.gpus, Notice.objects.filter(kind="announce").count()) == (0, 1)


def test_an_announcement_that_was_not_needed_is_made_up_for_when_the_money_goes_back(lab: Lab) -> None:
    lab.until("2026-05-07")
    lab.now += timedelta(days=1)
    dunning_run.run_dunning(moment=lab.now)
    lab.pay()
    delivery.send_notices(moment=lab.now)
    assert (Notice.objects.get().state, mail.outbox) == ("skipped", [])
    lab.pay("-4.00")
    lab.until("2026-05-15")
    assert (lab.gpus, subjects()) == (8, [announced("16 May 2026")])
    lab.until("2026-05-16")
    assert lab.gpus == 0


def test_a_second_invoice_that_was_to_be_announced_on_the_day_of_a_suspension_is_announced_after_it(
    lab: Lab,
) -> None:
    ingest(
        lab.cluster,
        a_job(started="2026-04-02 10:00", ended="2026-04-02 12:00"),
        as_of="2026-05-20",
    )
    stories.close("2026-04", lab.tenant, on="2026-05-01")
    lab.now = at("2026-05-31 09:00")  # nothing ran until then
    lab.acts()
    lab.until("2026-06-07")
    assert (lab.gpus, Notice.objects.get(state="skipped").reason) == (0, "The tenant is suspended already.")
    lab.pay()
    lab.goes_by()
    lab.acts()
    assert (lab.gpus, Suspension.objects.filter(ended_at=None).count()) == (8, 0)
    assert subjects()[-1] == announced("15 June 2026", "INV-2026-0002")
    lab.until("2026-06-15")
    assert lab.gpus == 0
