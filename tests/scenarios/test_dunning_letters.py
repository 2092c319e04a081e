"""Ann is written to while her invoice is not paid: in time, once, and never when there is no need."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from typing import Any

import pytest
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from billing.dunning import dunning_run, send
from billing.invoicing import credit_notes
from billing.models import BillingAccount, Letter, LetterState, PaymentAttempt, SavedMethod, Seller
from billing.payments import saved_methods
from billing.receivables import dunning_policies, pauses, settlement
from billing.rules.money import Money
from portal.core.tenants.models import Role, Tenant
from tests import builders
from tests.builders import at
from tests.collecting import Counter, a_counter, more_labs

pytestmark = pytest.mark.django_db(transaction=True)

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
def counter() -> Iterator[Counter]:
    """March's invoice over 4.00 was due on 15 April; it is that day."""
    with a_counter(now=at("2026-04-15 09:00")) as scenario:
        Tenant.objects.update(email="bills@vision.example")
        yield scenario


def goes_by(counter: Counter, days: int = 1) -> None:
    """Day by day: cards are charged, if somebody saved one; letters are written and sent, as the scheduler does."""
    for _ in range(days):
        counter.wait(days=1)
        if counter.stripe.requests:  # else a round of collecting has nobody to charge
            counter.collect()
        dunning_run.run(moment=counter.now)
        send.post(moment=counter.now)


def about_debts() -> list[mail.EmailMessage]:
    """Without receipts and credit notes, of which other stories tell."""
    others = ("Receipt", "Credit note")
    return [message for message in mail.outbox if not str(message.subject).startswith(others)]


def subjects() -> list[str]:
    return [str(message.subject) for message in about_debts()]


def drawing(message: mail.EmailMessage) -> str:
    """The letter as HTML."""
    assert isinstance(message, mail.EmailMultiAlternatives)
    return str(message.alternatives[0][0])


def body() -> str:
    """The last letter, as it is read without markup."""
    return " ".join(str(about_debts()[-1].body).split())


def pay(counter: Counter, amount: str = "4.00") -> None:
    settlement.record_payment(
        invoice=counter.invoice,
        amount=Money.of(amount, "USD"),
        received_on=counter.now.date(),
        reference=f"SEPA {counter.now:%d}",
        recorded_by="op",
    )


def test_case_078_who_pays_by_transfer_is_reminded_by_the_calendar_each_time_once(counter: Counter) -> None:
    for day, written in (("17", 0), ("18", 1), ("24", 1), ("25", 2)):
        while f"{counter.now:%d}" != day:
            goes_by(counter)
        assert len(about_debts()) == written
    goes_by(counter, 60)
    assert subjects() == [
        "A reminder: invoice INV-2026-0001 is not paid yet",
        "Reminder 2: invoice INV-2026-0001 is not paid yet",
        "Reminder 3: invoice INV-2026-0001 is not paid yet",
    ]
    message = about_debts()[0]
    assert message.to == ["bills@vision.example"]
    assert "Invoice INV-2026-0001 was due on 15 April 2026, and $4.00 of it" in " ".join(
        str(message.body).split()
    )
    assert "https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/" in str(message.body)
    drawn = drawing(message)
    assert 'href="https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/"' in drawn


def test_case_079_what_is_paid_while_a_letter_waits_is_not_reminded_of(counter: Counter) -> None:
    counter.wait(days=4)
    dunning_run.run(moment=counter.now)
    pay(counter)
    send.post(moment=counter.now)
    assert about_debts() == []
    letter = Letter.objects.get()
    assert (letter.state, letter.why) == ("skipped", "Nothing is due any more.")
    goes_by(counter, 60)
    assert about_debts() == []


def test_two_rounds_at_once_and_two_workers_that_send_make_one_letter(counter: Counter) -> None:
    counter.wait(days=4)
    late = dunning_run.run(moment=counter.now)
    assert (late.late, late.written) == (1, 1)
    assert dunning_run.run(moment=counter.now).written == 0
    for _ in range(3):
        send.post(moment=counter.now)
    assert len(about_debts()) == 1


def test_after_a_time_in_which_nothing_ran_only_the_step_that_is_reached_is_written(counter: Counter) -> None:
    counter.wait(days=30)
    goes_by(counter)
    assert subjects() == [
        "A reminder: invoice INV-2026-0001 is not paid yet"
    ]  # the first that comes is no third
    assert list(Letter.objects.order_by("step").values_list("step", "state")) == [
        (1, "skipped"),
        (2, "skipped"),
        (3, "sent"),
    ]


def test_collecting_cases_11_and_12_a_refusal_says_why_and_what_to_do(counter: Counter) -> None:
    card = counter.save_card(NO_FUNDS)
    counter.collect()
    dunning_run.run(moment=counter.now)
    send.post(moment=counter.now)
    assert subjects() == ["Your payment of invoice INV-2026-0001 was refused"]
    assert "We tried to charge $4.00 to your Visa ending in 9995" in body()
    assert "Your card has insufficient funds." in body()
    assert "We try again on 18 April 2026" in body()

    counter.stripe.hand.behave(card.external_id, LOST_CARD)
    goes_by(counter, 3)
    assert subjects()[1:] == [
        "Your payment of invoice INV-2026-0001 was refused"
    ]  # which says all of a reminder
    assert Letter.objects.get(kind="reminder").why == "The same e-mail says more of its invoice."
    refused = next(m for m in reversed(about_debts()) if "refused" in m.subject)
    assert "This card cannot be charged again. Please add another one" in " ".join(str(refused.body).split())
    counter.books_agree()


def test_case_076_and_collecting_case_13_a_bank_that_asks_is_no_failure_and_leads_to_our_page(
    counter: Counter,
) -> None:
    counter.save_card(ALWAYS_ASKS)
    counter.collect()
    dunning_run.run(moment=counter.now)
    send.post(moment=counter.now)
    goes_by(counter)
    assert subjects() == ["Please confirm your payment of invoice INV-2026-0001"]
    assert "Nothing is wrong with your card" in body()
    assert "https://billing.example.org/t/vision-lab/invoices/INV-2026-0001/" in body()
    assert "stripe" not in body().lower()
    assert "127.0.0.1" not in body()
    counter.books_agree()


@pytest.mark.parametrize("way", ["detach", "delete_customer"])
def test_case_084_and_collecting_case_29_a_card_that_vanished_is_asked_for_once(
    counter: Counter, way: str
) -> None:
    pay(counter)
    card = counter.save_card()
    customer = BillingAccount.objects.get().customer
    counter.stripe.hand.detach(card.external_id) if way == "detach" else counter.stripe.hand.delete_customer(
        customer or ""
    )
    goes_by(counter, 3)
    assert subjects() == ["Please add a card"]
    assert "Your Visa ending in 4242 is not saved with our payment service any more" in body()
    assert "https://billing.example.org/t/vision-lab/payment/" in body()


def test_who_removes_the_card_here_is_not_told_of_it(counter: Counter) -> None:
    pay(counter)
    saved_methods.remove(method=counter.save_card(), gateway=counter.gateway)
    goes_by(counter, 2)
    assert about_debts() == []


def test_collecting_case_29_a_card_that_has_expired_is_told_of_once(counter: Counter) -> None:
    pay(counter)
    counter.save_card()
    SavedMethod.objects.update(exp_month=4, exp_year=2026)
    goes_by(counter, 15)  # 30 April
    assert subjects() == ["Your card expires on 30 April 2026"]
    goes_by(counter, 3)
    assert subjects()[1:] == ["Your card has expired"]


def test_collecting_case_7_while_our_key_is_refused_nobody_is_written_to(counter: Counter) -> None:
    counter.save_card()
    counter.stripe.faults.unauthorized()
    goes_by(counter, 5)
    assert about_debts() == []
    assert dunning_run.run(moment=counter.now).waits.startswith("The payment service refuses our key")
    counter.stripe.faults.lift()
    goes_by(counter)
    assert (about_debts(), counter.taken) == ([], [400])


def test_a_payment_that_takes_its_bank_days_is_not_reminded_of() -> None:
    with a_counter(currency="EUR", now=at("2026-04-15 09:00")) as counter:
        dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), reminders=[1, 2])
        Tenant.objects.update(email="bills@vision.example")
        counter.save_account()
        counter.collect()
        later = counter.now + timedelta(days=3)  # its bank takes its time
        dunning_run.run(moment=later)
        send.post(moment=later)
        assert counter.states == ["processing"]
        assert about_debts() == []


def test_case_081_and_collecting_case_28_what_is_disputed_rests(counter: Counter) -> None:
    counter.save_card()
    counter.collect()
    dispute = counter.stripe.hand.dispute(PaymentAttempt.objects.get().external_id or "")
    goes_by(counter, 30)
    counter.stripe.hand.lose_dispute(dispute)
    goes_by(counter, 30)
    assert counter.standing == "charged_back"
    assert about_debts() == []


def test_what_is_paused_is_not_written_and_goes_on_where_it_stands(counter: Counter) -> None:
    pauses.pause(
        tenant=counter.lab,
        invoice=counter.invoice,
        until=date(2026, 4, 26),
        why="on holiday",
        by="op",
        moment=counter.now,
    )
    goes_by(counter, 10)  # 25 April
    assert about_debts() == []
    goes_by(counter)
    assert subjects() == ["A reminder: invoice INV-2026-0001 is not paid yet"]


def test_a_policy_without_letters_writes_none_and_one_with_receipts_sends_them(counter: Counter) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), letters=False)
    goes_by(counter, 5)
    assert Letter.objects.count() == 0
    dunning_policies.set_policy(tenant=counter.lab, since=date(2026, 1, 2), letters=True, receipts=True)
    pay(counter)
    goes_by(counter, 3)
    assert [str(message.subject) for message in mail.outbox] == ["Receipt: $4.00 for invoice INV-2026-0001"]


def test_past_due_after_days_of_grace_has_a_letter_of_its_own(counter: Counter) -> None:
    dunning_policies.set_policy(tenant=counter.lab, since=date(2026, 1, 1), past_due=5, reminders=[])
    goes_by(counter, 4)
    assert (about_debts(), counter.standing) == ([], "due")
    goes_by(counter)
    assert (subjects(), counter.standing) == (["Invoice INV-2026-0001 is past due"], "past_due")


def test_a_credit_note_ends_it_too(counter: Counter) -> None:
    goes_by(counter, 4)
    credit_notes.credit(
        invoice=counter.invoice, reason="goodwill", by="op", on=counter.now.date(), moment=counter.now
    )
    goes_by(counter, 60)
    assert len(about_debts()) == 1


def test_owners_and_billing_people_are_written_to_where_there_is_no_billing_address(counter: Counter) -> None:
    Tenant.objects.update(email="")
    goes_by(counter, 3)
    letter = Letter.objects.get()
    assert (letter.state, letter.why) == (
        "failed",
        "There is nobody to write to: give the tenant a billing e-mail or an owner.",
    )
    builders.a_person("ann@vision.example", tenant=counter.lab, role=Role.OWNER)
    builders.a_person("ben@vision.example", tenant=counter.lab, role=Role.MEMBER)
    send.again(letter=letter, moment=counter.now)
    send.post(moment=counter.now)
    assert about_debts()[0].to == ["ann@vision.example"]


def test_names_are_neither_markup_nor_headers(counter: Counter) -> None:
    name = 'Lab <img src=x onerror="1">\r\nBcc: eve@evil.example\r\n\r\nPay here: https://evil.example'
    Tenant.objects.update(name=name)
    Seller.objects.update(name="Compute <b>&amp;</b>\nX")
    goes_by(counter, 4)
    (message,) = about_debts()
    assert message.message()["Bcc"] is None
    drawn = drawing(message)
    assert "<img" not in drawn
    assert "Lab &lt;img src=x onerror=&quot;1&quot;&gt; Bcc: eve@evil.example Pay here:" in drawn
    first = str(message.body).splitlines()[0]
    assert first.startswith('Dear Lab <img src=x onerror="1"> Bcc: eve@evil.example Pay here')


def test_without_a_mail_server_letters_are_kept_for_op_to_read(
    counter: Counter, settings: Any, client: Client
) -> None:
    settings.CLUSTERTAB_SENDS_MAIL = False
    goes_by(counter, 4)
    assert about_debts() == []
    letter = Letter.objects.get()
    assert letter.get_state_display() == "Kept here: EMAIL_URL is not set"
    client.force_login(builders.an_operator())
    assert (
        "Perhaps it was overlooked"
        in client.get(f"/admin/billing/letter/{letter.pk}/change/").content.decode()
    )
    with pytest.raises(send.LetterError, match="it is not sent again"):
        send.again(letter=letter, moment=counter.now)
    settings.CLUSTERTAB_SENDS_MAIL = True
    send.again(letter=letter, moment=counter.now)
    send.post(moment=counter.now)
    assert subjects() == ["A reminder: invoice INV-2026-0001 is not paid yet"]


def test_ann_sees_on_the_invoice_what_was_sent_to_whom(counter: Counter, client: Client) -> None:
    goes_by(counter, 4)
    client.force_login(builders.a_person("ann@vision.example", tenant=counter.lab, role=Role.OWNER))
    page = " ".join(client.get("/t/vision-lab/invoices/INV-2026-0001/").content.decode().split())
    assert "Reminder 1 sent on 18 Apr 2026" in page
    assert "to bills@vision.example" in page


def test_a_letter_that_may_have_arrived_is_not_sent_again_by_itself(counter: Counter, settings: Any) -> None:
    settings.EMAIL_BACKEND = "tests.fakes.mail.Dies"
    counter.wait(days=4)
    dunning_run.run(moment=counter.now)
    done = send.post(moment=counter.now)
    assert done.sent == 0
    settings.EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
    for _ in range(3):
        goes_by(counter)
    letter = Letter.objects.get()
    assert letter.state == LetterState.SENDING
    assert letter.why.startswith("The mail server did not answer: it may have arrived or not.")
    with pytest.raises(send.LetterError):
        send.again(letter=letter, moment=counter.now - timedelta(days=3) + timedelta(minutes=1))
    send.again(letter=letter, moment=counter.now)
    send.post(moment=counter.now)
    assert len(about_debts()) == 1


def test_a_mail_server_that_refuses_is_asked_again_later_and_in_the_end_people_are(
    counter: Counter, settings: Any
) -> None:
    settings.EMAIL_BACKEND = "tests.fakes.mail.Refuses"
    counter.wait(days=4)
    dunning_run.run(moment=counter.now)
    for _ in range(40):
        send.post(moment=counter.now)
        counter.wait(hours=6)
    letter = Letter.objects.get()
    assert (letter.state, letter.tries) == ("failed", send.TRIES)
    assert "550" in letter.why


def test_refusals_that_nobody_is_written_of_take_as_many_queries_as_one(counter: Counter) -> None:
    dunning_policies.set_policy(tenant=None, since=date(2026, 1, 1), letters=False)
    counter.save_card(NO_FUNDS)
    counter.collect()
    with CaptureQueriesContext(connection) as few:
        dunning_run.run(moment=counter.now)
    for lab in more_labs(counter, ["acme", "bolt", "coda"]):
        SavedMethod.objects.filter(tenant=lab).update(preferred=False)
        counter.save_card_of(lab, NO_FUNDS)
    counter.collect()
    assert counter.states == ["failed"] * 4
    with CaptureQueriesContext(connection) as many:
        dunning_run.run(moment=counter.now)
    assert len(many) == len(few)
