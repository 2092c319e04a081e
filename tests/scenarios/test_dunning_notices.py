"""Ann is written to while her invoice is not paid: in time, once, and never when there is no need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail
from django.test import Client

from billing.dunning import dunning_run
from billing.emails import delivery, mail_server
from billing.invoicing import credit_notes
from billing.models import BillingAccount, Notice, NoticeState, PaymentAttempt, SavedMethod, Seller
from billing.payments import payment_links, saved_methods
from billing.receivables import dunning_policies, pauses, settlement
from billing.rules.money import Money
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.builders import at
from tests.collecting import Scenario, a_scenario
from tests.tiers import strides

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.swept]

DECLINED, NO_FUNDS, LOST_CARD, ALWAYS_ASKS = (
    "4000000000000341",
    "4000000000009995",
    "4000000000009987",
    "4000002760003184",
)


@pytest.fixture(autouse=True)
def mailed(settings: Any) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = True
    settings.PORTAL_URL = "https://billing.example.org"


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    """March's invoice over 4.00 was due on 15 April; it is that day."""
    with a_scenario(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        yield scenario


def goes_by(scenario: Scenario, days: int = 1) -> None:
    """Cards are charged, if somebody saved one; letters are written and sent, as the scheduler does."""
    for stride in strides(days):
        scenario.wait(days=stride)
        if scenario.stripe.requests:  # else a round of collecting has nobody to charge
            scenario.collect()
        dunning_run.run_dunning(moment=scenario.now)
        delivery.send_notices(moment=scenario.now)


def about_debts() -> list[mail.EmailMessage]:
    """Without receipts and credit notes, of which other stories tell."""
    others = ("Receipt", "Credit note")
    return [message for message in mail.outbox if not str(message.subject).startswith(others)]


def subjects() -> list[str]:
    return [str(message.subject) for message in about_debts()]


def drawing(message: mail.EmailMessage) -> str:
    """The notice as HTML."""
    assert isinstance(message, mail.EmailMultiAlternatives)
    return str(message.alternatives[0][0])


def body() -> str:
    """The last notice, as it is read without markup."""
    return " ".join(str(about_debts()[-1].body).split())


def pay(scenario: Scenario, amount: str = "4.00") -> None:
    settlement.record_payment(
        invoice=scenario.invoice,
        amount=Money.of(amount, "USD"),
        received_on=scenario.now.date(),
        reference=f"SEPA {scenario.now:%d}",
        recorded_by="op",
    )


def test_case_078_who_pays_by_transfer_is_reminded_by_the_calendar_each_time_once(scenario: Scenario) -> None:
    for day, written in (("17", 0), ("18", 1), ("24", 1), ("25", 2)):
        while f"{scenario.now:%d}" != day:
            goes_by(scenario)
        assert len(about_debts()) == written
    goes_by(scenario, 60)
    assert subjects() == [
        "Reminder: invoice INV-2026-0001 is overdue",
        "Reminder 2: invoice INV-2026-0001 is overdue",
        "Reminder 3: invoice INV-2026-0001 is overdue",
    ]
    message = about_debts()[0]
    assert message.to == ["bills@vision.example"]
    assert "Invoice INV-2026-0001 was due on 15 April 2026. Amount due: $4.00" in " ".join(
        str(message.body).split()
    )
    assert "https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/" in str(message.body)
    drawn = drawing(message)
    assert 'href="https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/"' in drawn


def test_reminders_have_a_link_that_pays_where_the_policy_says_so_and_repeat_it(scenario: Scenario) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), payment_links=True)
    goes_by(scenario, 30)
    found = [re.findall(r"https://\S+/pay/(\S+)/", str(message.body)) for message in about_debts()]
    assert [len(tokens) for tokens in found] == [1, 1, 1]
    assert found[0] == found[1]
    assert found[2] != found[0]  # that one was about to end
    opened = Client().get(f"/pay/{found[2][0]}/")
    assert opened.status_code == 404  # it has ended by now, long after this story
    assert payment_links.of_token(found[2][0], moment=scenario.now) is not None
    assert "/t/vision-lab/" not in str(about_debts()[0].body)
    assert f"/pay/{found[0][0]}/" in drawing(about_debts()[0])


def test_case_079_what_is_paid_while_a_letter_waits_is_not_reminded_of(scenario: Scenario) -> None:
    scenario.wait(days=4)
    dunning_run.run_dunning(moment=scenario.now)
    pay(scenario)
    delivery.send_notices(moment=scenario.now)
    assert about_debts() == []
    notice = Notice.objects.get()
    assert (notice.state, notice.reason) == ("skipped", "Nothing is due any more.")
    goes_by(scenario, 60)
    assert about_debts() == []


def test_two_rounds_at_once_and_two_workers_that_send_make_one_letter(scenario: Scenario) -> None:
    scenario.wait(days=4)
    late = dunning_run.run_dunning(moment=scenario.now)
    assert (late.late, late.written) == (1, 1)
    assert dunning_run.run_dunning(moment=scenario.now).written == 0
    for _ in range(3):
        delivery.send_notices(moment=scenario.now)
    assert len(about_debts()) == 1


def test_after_a_time_without_runs_only_the_step_that_is_reached_is_written(scenario: Scenario) -> None:
    scenario.wait(days=30)
    goes_by(scenario)
    assert subjects() == ["Reminder: invoice INV-2026-0001 is overdue"]  # the first that comes is no third
    assert list(Notice.objects.order_by("step").values_list("step", "state")) == [
        (1, "skipped"),
        (2, "skipped"),
        (3, "sent"),
    ]


def test_collecting_cases_11_and_12_a_refusal_says_why_and_what_to_do(scenario: Scenario) -> None:
    card = scenario.save_card(NO_FUNDS)
    scenario.collect()
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    assert subjects() == ["Your payment of invoice INV-2026-0001 was declined"]
    assert "Your bank declined the charge of $4.00 to your Visa ending in 9995" in body()
    assert "Your card has insufficient funds." in body()
    assert "We try again on 18 April 2026" in body()

    scenario.stripe.dashboard.behave(card.external_id, LOST_CARD)
    goes_by(scenario, 3)
    assert subjects()[1:] == [
        "Your payment of invoice INV-2026-0001 was declined"
    ]  # which says all of a reminder
    assert Notice.objects.get(kind="reminder").reason == "The same e-mail says more of its invoice."
    refused = next(m for m in reversed(about_debts()) if "declined" in m.subject)
    assert "This card cannot be charged again. Please add another card" in " ".join(str(refused.body).split())
    scenario.books_agree()


def test_case_076_and_collecting_case_13_a_bank_that_asks_is_no_failure_and_leads_to_our_page(
    scenario: Scenario,
) -> None:
    scenario.save_card(ALWAYS_ASKS)
    scenario.collect()
    dunning_run.run_dunning(moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    goes_by(scenario)
    assert subjects() == ["Please confirm your payment of invoice INV-2026-0001"]
    assert "Nothing is wrong with your card" in body()
    assert "https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/" in body()
    assert "stripe" not in body().lower()
    assert "127.0.0.1" not in body()
    scenario.books_agree()


@pytest.mark.parametrize("way", ["detach", "delete_customer"])
def test_case_084_and_collecting_case_29_a_card_that_vanished_is_asked_for_once(
    scenario: Scenario, way: str
) -> None:
    pay(scenario)
    card = scenario.save_card()
    customer = BillingAccount.objects.get().customer
    dashboard = scenario.stripe.dashboard
    dashboard.detach(card.external_id) if way == "detach" else dashboard.delete_customer(customer or "")
    goes_by(scenario, 3)
    assert subjects() == ["Please add a card"]
    assert "Your Visa ending in 4242 is no longer saved with our payment service" in body()
    assert "https://billing.example.org/t/vision-lab/payment/" in body()


def test_who_removes_the_card_here_is_not_told_of_it(scenario: Scenario) -> None:
    pay(scenario)
    saved_methods.remove_method(method=scenario.save_card(), gateway=scenario.gateway)
    goes_by(scenario, 2)
    assert about_debts() == []


def test_collecting_case_29_a_card_that_has_expired_is_told_of_once(scenario: Scenario) -> None:
    pay(scenario)
    scenario.save_card()
    SavedMethod.objects.update(exp_month=4, exp_year=2026)
    goes_by(scenario, 15)  # 30 April
    assert subjects() == ["Your card expires on 30 April 2026"]
    goes_by(scenario, 3)
    assert subjects()[1:] == ["Your card has expired"]


def test_collecting_case_7_while_our_key_is_refused_nobody_is_written_to(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.stripe.faults.unauthorized()
    goes_by(scenario, 5)
    assert about_debts() == []
    assert dunning_run.run_dunning(moment=scenario.now).hold_reason.startswith(
        "The payment service refuses our key"
    )
    scenario.stripe.faults.lift()
    goes_by(scenario)
    assert (about_debts(), scenario.charged) == ([], [400])


def test_a_payment_that_takes_its_bank_days_is_not_reminded_of() -> None:
    with a_scenario(currency="EUR", now=at("2026-04-15 09:00")) as scenario:
        dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), reminders=[1, 2])
        Tenant.objects.update(email="bills@vision.example")
        scenario.save_account()
        scenario.collect()
        later = scenario.now + timedelta(days=3)  # its bank takes its time
        dunning_run.run_dunning(moment=later)
        delivery.send_notices(moment=later)
        assert scenario.states == ["processing"]
        assert about_debts() == []


def test_case_081_and_collecting_case_28_what_is_disputed_rests(scenario: Scenario) -> None:
    scenario.save_card()
    scenario.collect()
    dispute = scenario.stripe.dashboard.dispute(PaymentAttempt.objects.get().external_id or "")
    goes_by(scenario, 30)
    scenario.stripe.dashboard.lose_dispute(dispute)
    goes_by(scenario, 30)
    assert scenario.settlement == "charged_back"
    assert about_debts() == []


def test_what_is_paused_is_not_written_and_goes_on_where_it_stands(scenario: Scenario) -> None:
    pauses.pause_dunning(
        tenant=scenario.lab,
        invoice=scenario.invoice,
        until=date(2026, 4, 26),
        reason="on holiday",
        by="op",
        moment=scenario.now,
    )
    goes_by(scenario, 10)  # 25 April
    assert about_debts() == []
    goes_by(scenario)
    assert subjects() == ["Reminder: invoice INV-2026-0001 is overdue"]


def test_a_policy_without_emails_writes_none_and_with_receipts_sends_them(scenario: Scenario) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), emails=False)
    goes_by(scenario, 5)
    assert Notice.objects.count() == 0
    dunning_policies.set_policy(tenant=scenario.lab, since=date(2026, 1, 2), emails=True, receipts=True)
    pay(scenario)
    goes_by(scenario, 3)
    assert [str(message.subject) for message in mail.outbox] == ["Receipt: $4.00 for invoice INV-2026-0001"]


def test_past_due_after_days_of_grace_has_a_letter_of_its_own(scenario: Scenario) -> None:
    dunning_policies.set_policy(tenant=scenario.lab, since=date(2026, 1, 1), past_due=5, reminders=[])
    goes_by(scenario, 4)
    assert (about_debts(), scenario.settlement) == ([], "due")
    goes_by(scenario)
    assert (subjects(), scenario.settlement) == (["Invoice INV-2026-0001 is past due"], "past_due")


def test_a_credit_note_ends_it_too(scenario: Scenario) -> None:
    goes_by(scenario, 4)
    credit_notes.issue_credit_note(
        invoice=scenario.invoice, reason="goodwill", by="op", on=scenario.now.date(), moment=scenario.now
    )
    goes_by(scenario, 60)
    assert len(about_debts()) == 1


def test_owners_and_billing_people_are_written_to_without_a_billing_address(scenario: Scenario) -> None:
    Tenant.objects.update(email="")
    goes_by(scenario, 3)
    notice = Notice.objects.get()
    assert (notice.state, notice.reason) == (
        "failed",
        "There is nobody to write to: give the tenant a billing e-mail or an owner.",
    )
    builders.a_person("ann@vision.example", tenant=scenario.lab, role=Role.OWNER)
    builders.a_person("ben@vision.example", tenant=scenario.lab, role=Role.MEMBER)
    delivery.resend_notice(notice=notice, moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    assert about_debts()[0].to == ["ann@vision.example"]


def test_names_are_neither_markup_nor_headers(scenario: Scenario) -> None:
    name = 'Lab <img src=x onerror="1">\r\nBcc: eve@evil.example\r\n\r\nPay here: https://evil.example'
    Tenant.objects.update(name=name)
    Seller.objects.update(name="Compute <b>&amp;</b>\nX")
    goes_by(scenario, 4)
    (message,) = about_debts()
    assert message.message()["Bcc"] is None
    drawn = drawing(message)
    assert "<img" not in drawn
    assert "Lab &lt;img src=x onerror=&quot;1&quot;&gt; Bcc: eve@evil.example Pay here:" in drawn
    first = str(message.body).splitlines()[0]
    assert first.startswith('Dear Lab <img src=x onerror="1"> Bcc: eve@evil.example Pay here')


def test_without_a_mail_server_letters_are_kept_for_op_to_read(
    scenario: Scenario, settings: Any, client: Client
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = False
    goes_by(scenario, 4)
    assert about_debts() == []
    notice = Notice.objects.get()
    assert notice.get_state_display() == "Drafted: EMAIL_URL is not set"
    client.force_login(builders.an_operator())
    assert (
        "INV-2026-0001 was due on 15 April 2026. Amount due: $4.00."
        in client.get(f"/admin/billing/notice/{notice.pk}/change/").content.decode()
    )
    with pytest.raises(delivery.NoticeError, match="it is not sent again"):
        delivery.resend_notice(notice=notice, moment=scenario.now)
    settings.CLUSTERTAB_SENDS_MAIL = True
    delivery.resend_notice(notice=notice, moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    assert subjects() == ["Reminder: invoice INV-2026-0001 is overdue"]


def test_ann_sees_on_the_invoice_what_was_sent_to_whom(scenario: Scenario, client: Client) -> None:
    goes_by(scenario, 4)
    client.force_login(builders.a_person("ann@vision.example", tenant=scenario.lab, role=Role.OWNER))
    page = " ".join(client.get("/t/vision-lab/invoices/INV-2026-0001/").content.decode().split())
    assert "Reminder 1 sent on 18 Apr 2026" in page
    assert "to bills@vision.example" in page


def test_an_email_that_may_have_arrived_is_not_sent_again(scenario: Scenario, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.fakes.mail.Dies"
    scenario.wait(days=4)
    dunning_run.run_dunning(moment=scenario.now)
    done = delivery.send_notices(moment=scenario.now)
    assert done.sent == 0
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    for _ in range(3):
        goes_by(scenario)
    notice = Notice.objects.get()
    assert notice.state == NoticeState.SENDING
    assert notice.reason.startswith("The mail server did not answer: it may have arrived or not.")
    with pytest.raises(delivery.NoticeError):
        delivery.resend_notice(notice=notice, moment=scenario.now - timedelta(days=3) + timedelta(minutes=1))
    delivery.resend_notice(notice=notice, moment=scenario.now)
    delivery.send_notices(moment=scenario.now)
    assert len(about_debts()) == 1


def test_a_mail_server_that_refuses_is_asked_again_later_and_in_the_end_people_are(
    scenario: Scenario, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "tests.fakes.mail.Refuses"
    scenario.wait(days=4)
    dunning_run.run_dunning(moment=scenario.now)
    for _ in range(40):
        delivery.send_notices(moment=scenario.now)
        scenario.wait(hours=6)
    notice = Notice.objects.get()
    assert (notice.state, notice.tries) == ("failed", mail_server.TRIES)
    assert "550" in notice.reason
