"""A finance department pays Ann's invoice by a link: without signing in, and nothing else opens by it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache import cache
from django.test import Client

from billing.documents import issued
from billing.invoicing import credit_notes, offboarding
from billing.models import CheckoutSession, Invoice, InvoiceState, PaymentLink
from billing.payments import payment_links
from billing.payments.gateway_access import CollectionError
from billing.rules.money import Money
from portal.core.audit.models import AuditEntry
from portal.core.tenants.models import Role
from portal.sentences import sentence
from tests import builders, stories
from tests.collecting import Scenario, a_scenario
from tests.web.house import a_house, signed_in
from tests.web.test_overview import words

INVOICE = "/t/vision-lab/invoices/INV-2026-0001/"
OF_HOUSE = "/t/vision-lab/invoices/INV-2026-0002/"  # the first number is the speech lab's


@pytest.fixture
def scenario() -> Iterator[Scenario]:
    cache.clear()
    with a_scenario(now=datetime.now(UTC).replace(microsecond=0)) as scenario:
        yield scenario
        assert scenario.stripe.violations == []


def a_link(ann: Client, invoice: str, days: str = "30") -> str:
    """Ann makes a link on the page of her invoice; its path."""
    answer = ann.post(f"{invoice}links/", {"act": "make", "days": days}, follow=True)
    assert "Payment link made" in answer.content.decode()
    path = payment_links.path_of(PaymentLink.objects.latest("pk"))
    assert f"http://testserver{path}" in answer.content.decode()
    return path


@pytest.mark.django_db(transaction=True)
def test_finance_pays_by_the_link_as_a_guest_and_the_link_says_so(scenario: Scenario) -> None:
    """No saved card of the tenant is offered there, and the way back needs no account."""
    ann = signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))
    scenario.save_card()
    assert ann.post(f"{INVOICE}pay/").status_code == 303  # her own page is open meanwhile
    path, finance = a_link(ann, INVOICE), Client(enforce_csrf_checks=True)
    assert "Pay $4.00 by card" in words(finance.get(path).content.decode())
    answer = finance.post(f"{path}card/")
    assert answer.status_code == 303
    mine, link = CheckoutSession.objects.order_by("created_at")
    assert (mine.state, link.state, answer.headers["Location"]) == ("expired", "open", link.url)
    (session,) = [row for row in scenario.stripe.objects("checkout.session") if row["status"] == "open"]
    assert (session["customer"], session["saved_payment_method_options"]) == (None, None)
    assert finance.post(f"{path}card/").headers["Location"] == link.url  # again: the same page

    scenario.stripe.dashboard.pay(session["id"])
    for name in (mine.external_id, "cs_of_nobody"):
        assert finance.get(f"{path}back/?session={name}").status_code == 404
    text = words(finance.get(f"{path}back/?session={session['id']}", follow=True).content.decode())
    assert "$4.00 paid. Thank you." in text
    assert "Nothing is due." in text
    assert "by card" not in text
    assert (scenario.charged, scenario.paid) == ([400], "4.00")
    assert len(scenario.stripe.objects("payment_method")) == 2  # hers, and one that nobody keeps
    scenario.books_agree()
    rows = AuditEntry.objects.filter(table="billing_checkoutsession", key=str(link.pk))
    assert {row.who.rstrip("0123456789") for row in rows} == {"payment link "}


@pytest.mark.django_db(transaction=True)
def test_who_leaves_the_page_comes_back_to_the_link_and_one_link_opens_so_many_pages_an_hour(
    scenario: Scenario,
) -> None:
    ann = signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))
    path, finance = a_link(ann, INVOICE), Client()
    for _ in range(payment_links.MOST_PAGES):
        assert finance.post(f"{path}card/").status_code == 303
        page = CheckoutSession.objects.latest("created_at")
        assert finance.get(f"{path}stopped/?page={page.pk}").headers["Location"] == path
        page.refresh_from_db()
        assert page.state == "expired"
    assert finance.post(f"{path}card/").headers["Location"] == path
    assert CheckoutSession.objects.count() == payment_links.MOST_PAGES
    assert ann.post(f"{INVOICE}pay/").status_code == 303  # who signs in is not held up by them


@pytest.mark.django_db
def test_a_link_opens_its_invoice_alone_until_it_ends_or_is_revoked() -> None:
    cache.clear()
    house = a_house()
    ann, stranger = signed_in(house.ann), Client()
    path = a_link(ann, OF_HOUSE, "7")
    answer = stranger.get(path)
    assert answer.status_code == 200
    assert (answer.headers["Referrer-Policy"], answer.headers["X-Robots-Tag"]) == (
        "no-referrer",
        "noindex, nofollow",
    )
    assert "no-store" in answer.headers["Cache-Control"]
    text = words(answer.content.decode())
    assert "INV-2026-0002" in text
    assert "RF" in text  # how to transfer it
    for hidden in ("ann@vision.example", "carla@", "/t/vision-lab", "ada", "Evidence"):
        assert hidden not in answer.content.decode()
    assert stranger.get(f"{path}pdf").headers["Location"] == path  # not rendered yet
    issued.keep(house.invoice, moment=datetime.now(UTC))
    assert stranger.get(f"{path}pdf").content.startswith(b"%PDF")
    for other in (OF_HOUSE, f"{OF_HOUSE}csv", "/t/vision-lab/"):
        assert stranger.get(other).status_code == 302  # signed in is nobody by it

    link = PaymentLink.objects.get()
    token = payment_links.token_of(link)
    for forged in (f"{link.pk + 1}{token[token.index('-') :]}", token[:-1], "x", f"{link.pk}-9999999999.x"):
        assert stranger.get(f"/pay/{forged}/").status_code == 404
    assert payment_links.of_token(token, moment=link.expires_at) is None
    assert payment_links.of_token(token, moment=link.expires_at - timedelta(seconds=1)) == link

    gone = ann.post(f"{OF_HOUSE}links/", {"act": "revoke", "link": link.pk}, follow=True)
    assert "Payment link revoked" in gone.content.decode()
    dead = stranger.get(path)
    assert (dead.status_code, dead.content) == (404, stranger.get("/pay/x/").content)
    assert [stranger.post(f"{path}card/").status_code, stranger.get(f"{path}pdf").status_code] == [404, 404]
    history = ann.get("/t/vision-lab/history/").content.decode()
    assert history.count("Payment link") >= 2
    busy = [stranger.get("/pay/x/").status_code for _ in range(60)]
    assert (busy[0], busy[-1]) == (404, 429)


@pytest.mark.django_db
def test_owners_and_billing_make_links_and_nobody_else_sees_them() -> None:
    cache.clear()
    house = a_house()
    carla = signed_in(house.carla)
    path = a_link(carla, OF_HOUSE)
    wrong = carla.post(f"{OF_HOUSE}links/", {"act": "make", "days": "3650"}, follow=True)
    assert "7, 30, 90 days" in wrong.content.decode()
    theirs = "/t/speech-lab/invoices/INV-2026-0002/links/"
    viewer = builders.a_person("vic@vision.example", house.vision, Role.VIEWER)
    for person, address in (
        *((person, f"{OF_HOUSE}links/") for person in (house.ben, house.eve, house.op, viewer)),
        (house.eve, theirs),
    ):
        for form in ({"act": "make", "days": "7"}, {"act": "revoke", "link": "1"}):
            assert signed_in(person).post(address, form).status_code == 404
    assert path not in signed_in(viewer).get(OF_HOUSE).content.decode()
    assert path not in signed_in(house.op).get(OF_HOUSE).content.decode()
    assert path in signed_in(house.ann).get(OF_HOUSE).content.decode()
    other = builders.a_person("carl@speech.example", house.speech, Role.OWNER)
    link = PaymentLink.objects.get()
    mine = signed_in(other).post(
        "/t/speech-lab/invoices/INV-2026-0001/links/", {"act": "revoke", "link": link.pk}
    )
    assert mine.status_code == 404
    link.refresh_from_db()
    assert link.revoked_at is None
    for _ in range(payment_links.MOST_OPEN - 1):
        payment_links.make_link(invoice=house.invoice, days=90, by="ann", moment=datetime.now(UTC))
    with pytest.raises(CollectionError) as refusal:
        payment_links.make_link(invoice=house.invoice, days=90, by="ann", moment=datetime.now(UTC))
    assert "has 10 payment links" in sentence(refusal.value)
    assert payment_links.link_of_reminder(invoice=house.invoice, moment=datetime.now(UTC)) is None


@pytest.mark.django_db
def test_a_link_that_went_to_the_wrong_person_is_revoked_after_its_invoice_was_paid_too() -> None:
    cache.clear()
    house = a_house()
    ann = signed_in(house.ann)
    path = a_link(ann, OF_HOUSE)
    stories.pay(house.invoice, "13.00")
    shown = ann.get(OF_HOUSE).content.decode()
    assert path in shown
    assert "Make link" not in shown
    ann.post(f"{OF_HOUSE}links/", {"act": "revoke", "link": PaymentLink.objects.get().pk})
    assert Client().get(path).status_code == 404
    assert "links-title" not in ann.get(OF_HOUSE).content.decode()


@pytest.mark.django_db
def test_links_of_a_tenant_that_leaves_open_nothing_once_it_is_archived_and_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house, moment = a_house(), datetime.now(UTC)
    monkeypatch.setattr(offboarding, "find_obstacles", lambda *_, **__: iter(()))  # all is paid and billed

    def opens() -> list[bool]:
        tokens = [payment_links.token_of(link) for link in PaymentLink.objects.order_by("pk")]
        return [payment_links.of_token(token, moment=moment) is not None for token in tokens]

    first = payment_links.make_link(invoice=house.invoice, days=90, by="ann@vision.example", moment=moment)
    payment_links.make_link(invoice=house.invoice, days=90, by="ann@vision.example", moment=moment)
    payment_links.revoke_link(link=first, by="ann@vision.example", moment=moment)
    assert opens() == [False, True]
    offboarding.archive_tenant(tenant=house.vision, by="Op", reason="Contract ended", moment=moment)
    assert opens() == [False, False]
    first.refresh_from_db()
    assert first.revoked_by == "ann@vision.example"  # not told anew
    payment_links.make_link(invoice=house.invoice, days=7, by="op", moment=moment)  # a dispute was lost
    assert opens() == [False, False, True]
    offboarding.erase_tenant(tenant=house.vision, moment=moment)
    assert opens() == [False, False, False]
    assert "ann@vision.example" not in str(list(PaymentLink.objects.values()))


@pytest.mark.django_db(transaction=True)
def test_a_link_says_what_became_of_its_invoice_and_takes_no_money_for_what_is_void(
    scenario: Scenario,
) -> None:
    ann = signed_in(builders.a_person("ann@vision.example", scenario.lab, Role.OWNER))
    path, finance = a_link(ann, INVOICE), Client()
    assert finance.post(f"{path}card/").status_code == 303
    page, number = CheckoutSession.objects.get(), scenario.invoice.number
    credit_notes.issue_credit_note(
        invoice=scenario.invoice, reason="slow", by="op", on=scenario.now.date(), net=Money.of("1.00", "USD")
    )
    assert "Pay $3.00 by card" in words(finance.get(path).content.decode())
    assert finance.post(f"{path}card/").headers["Location"] != page.url  # which asks for 4.00 still
    page.refresh_from_db()
    assert page.state == "expired"

    credit_notes.issue_credit_note(invoice=scenario.invoice, reason="all", by="op", on=scenario.now.date())
    assert "Nothing is due." in words(finance.get(path).content.decode())
    assert finance.post(f"{path}card/").headers["Location"] == path
    states = CheckoutSession.objects.values_list("state", flat=True)
    assert [row["status"] for row in scenario.stripe.objects("checkout.session")].count("open") <= 1
    assert len(states) == 2

    Invoice.objects.filter(number=number).update(state=InvoiceState.VOID)
    shown = words(finance.get(path).content.decode())
    assert "This invoice is void: it is not to be paid." in shown
    assert "by card" not in shown
    assert finance.post(f"{path}card/").headers["Location"] == path
    assert len(states.all()) == 2
