"""The stand-in for Stripe shows Checkout pages, on which a person pays or saves a card without scripts."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import httpx
import pytest
import stripe

from portal.dev.stripe_sandbox import Sandbox
from tests.contracts.stripe_client import a_sandbox, ann, charge, client, key
from tests.contracts.test_stripe_sandbox_money import types

DONE = "https://portal.example/paid?session={CHECKOUT_SESSION_ID}"
BACK = "https://portal.example/invoices/2026-0001"


def session(api: stripe.StripeClient, customer: str | None = None, **changed: Any) -> stripe.checkout.Session:
    params: Any = {
        "mode": "payment",
        "success_url": DONE,
        "cancel_url": BACK,
        "client_reference_id": "invoice-1",
        "line_items": [
            {
                "quantity": 1,
                "price_data": {
                    "currency": "eur",
                    "unit_amount": 67_000,
                    "product_data": {"name": "Invoice 2026-0001 <Ann & Co>"},
                },
            }
        ],
        "metadata": {"ct_kind": "invoice"},
        "payment_intent_data": {"metadata": {"ct_attempt": "a1"}, "description": "Invoice 2026-0001"},
    }
    params |= {"customer": customer} if customer else {}
    params |= changed
    payload: Any = {name: one for name, one in params.items() if one is not None}
    return api.v1.checkout.sessions.create(payload, key())


def setup(api: stripe.StripeClient, customer: str) -> stripe.checkout.Session:
    return session(api, customer, mode="setup", line_items=None, payment_intent_data=None, currency="eur")


def card(number: str = "4242 4242 4242 4242", **changed: str) -> dict[str, str]:
    return {"method": "card", "number": number, "expiry": "12 / 34", "cvc": "123", "name": "Ann"} | changed


class Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.actions: list[str] = []

    def handle_data(self, data: str) -> None:
        self.actions.append(data.strip())


def text(page: httpx.Response) -> str:
    parser = Texts()
    parser.feed(page.text)
    return " ".join(one for one in parser.actions if one)


@pytest.fixture(scope="module")
def browser() -> Any:
    with httpx.Client(follow_redirects=False, trust_env=False) as opened:
        yield opened


def url(checkout: stripe.checkout.Session) -> str:
    assert checkout.url is not None
    return checkout.url


def test_a_person_pays_an_invoice_and_comes_back(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        checkout = session(api, customer)
        assert (checkout.status, checkout.payment_status, checkout.payment_intent) == ("open", "unpaid", None)
        shown = browser.get(url(checkout))
        page_text = text(shown)
        assert "Sandbox – no money moves" in page_text
        assert "670.00 EUR" in page_text
        assert "Invoice 2026-0001 <Ann & Co>" in page_text
        assert "<script" not in shown.text
        done = browser.post(url(checkout), data=card())
        assert (done.status_code, done.headers["location"]) == (
            303,
            f"https://portal.example/paid?session={checkout.id}",
        )
        paid: Any = api.v1.checkout.sessions.retrieve(
            checkout.id, {"expand": ["payment_intent", "line_items"]}
        )
        assert (paid.status, paid.payment_status, paid.amount_total) == ("complete", "paid", 67_000)
        assert paid.line_items.data[0].amount_total == 67_000
        assert paid.payment_intent.metadata["ct_attempt"] == "a1"
        assert (paid.metadata["ct_kind"], paid.client_reference_id) == ("invoice", "invoice-1")
        assert paid.customer_details.email == "ann@example.org"
        assert types(api)[-4:] == [
            "payment_intent.created",
            "charge.succeeded",
            "payment_intent.succeeded",
            "checkout.session.completed",
        ]
        assert "completed before" in text(browser.get(url(checkout)))


def test_the_bank_is_asked_failed_and_passed(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        checkout = session(api, ann(api))
        response = browser.post(url(checkout), data=card("4000 0027 6000 3184"))
        bank = sandbox.url + response.headers["location"]
        assert "ClusterTab wants to charge 670.00 EUR." in text(browser.get(bank))
        failed = browser.post(bank, data={"outcome": "fail"})
        assert failed.headers["location"] == f"/c/pay/{checkout.id}?redirect_status=failed"
        page_text = text(browser.get(sandbox.url + failed.headers["location"]))
        assert "We are unable to authenticate your payment method." in page_text
        still: Any = api.v1.checkout.sessions.retrieve(checkout.id, {"expand": ["payment_intent"]})
        assert (still.status, still.payment_intent.status) == ("open", "requires_payment_method")
        assert still.payment_intent.last_payment_error.code == "payment_intent_authentication_failure"
        again = browser.post(url(checkout), data=card("4000 0027 6000 3184"))
        passed = browser.post(sandbox.url + again.headers["location"], data={"outcome": "complete"})
        assert passed.headers["location"].endswith(checkout.id)
        assert api.v1.checkout.sessions.retrieve(checkout.id).payment_status == "paid"
        assert len(sandbox.objects("payment_intent")) == 1
        assert browser.get(bank).status_code == 410


def test_a_declined_card_is_said_and_another_one_is_taken(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        checkout = session(api, ann(api))
        refused = browser.post(url(checkout), data=card("4000 0000 0000 9995"))
        assert refused.status_code == 422
        assert "Your card has insufficient funds." in text(refused)
        assert browser.post(url(checkout), data=card()).status_code == 303
        assert [one["status"] for one in sandbox.objects("charge")] == ["failed", "succeeded"]
        assert len(sandbox.objects("payment_intent")) == 1


@pytest.mark.parametrize(
    ("form", "sentence"),
    [
        (card("4929 1234 5678 9012"), "none of the test cards"),
        (card(expiry="01/20"), "expiry is in the past"),
        (card(expiry="soon"), "month and year"),
        (card(cvc="1"), "security code is incomplete"),
        ({"method": "sepa_debit", "iban": "DE00", "name": "Ann"}, "none of the test accounts"),
        ({"method": "saved", "saved": "pm_eves"}, "Choose one of the saved"),
    ],
)
def test_what_is_typed_wrongly_is_said_and_nothing_of_it_is_kept(
    browser: httpx.Client, form: dict[str, str], sentence: str
) -> None:
    with a_sandbox() as sandbox:
        checkout = session(client(sandbox), ann(client(sandbox)))
        refused = browser.post(url(checkout), data=form)
        assert refused.status_code == 422
        assert sentence in text(refused)
        for number in ("4929", "424242"):
            assert number not in repr(sandbox.state.data.as_json())
        assert sandbox.objects("payment_intent") == []


def test_no_number_of_a_card_is_kept_anywhere(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        checkout = setup(client(sandbox), ann(client(sandbox)))
        browser.post(url(checkout), data=card("5555 5555 5555 4444"))
        dump = repr(sandbox.state.data.as_json()) + repr(sandbox.requests)
        assert "4444" in dump
        assert "55555" not in dump
        assert "5555 5" not in dump


def test_a_card_is_saved_and_charged_later(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        checkout = setup(api, customer)
        assert "Nothing is charged now." in text(browser.get(url(checkout)))
        response = browser.post(url(checkout), data=card("4000 0025 0000 3155"))
        bank = sandbox.url + response.headers["location"]
        assert "wants to save this card" in text(browser.get(bank))
        browser.post(bank, data={"outcome": "complete"})
        saved: Any = api.v1.checkout.sessions.retrieve(checkout.id, {"expand": ["setup_intent"]})
        assert (saved.status, saved.payment_status) == ("complete", "no_payment_required")
        assert charge(api, customer, saved.setup_intent.payment_method).status == "succeeded"
        assert "setup_intent.succeeded" in types(api)


def test_a_saved_card_is_offered(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        method = sandbox.dashboard.save_card(customer)
        eves = sandbox.dashboard.save_card(ann(api))
        checkout = session(api, customer)
        page = browser.get(url(checkout))
        assert "Visa •••• 4242, expires 12/2034" in text(page)
        assert eves not in page.text
        assert browser.post(url(checkout), data={"method": "saved", "saved": eves}).status_code == 422
        assert browser.post(url(checkout), data={"method": "saved", "saved": method}).status_code == 303


@pytest.mark.parametrize(
    ("iban", "then", "event"),
    [
        ("DE89 3704 0044 0532 0130 00", "paid", "checkout.session.async_payment_succeeded"),
        ("DE62 3704 0044 0532 0130 01", "unpaid", "checkout.session.async_payment_failed"),
    ],
)
def test_a_debit_completes_the_page_at_once_and_the_payment_later(
    browser: httpx.Client, iban: str, then: str, event: str
) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        checkout = session(api, ann(api))
        browser.post(url(checkout), data={"method": "sepa_debit", "iban": iban, "name": "Ann"})
        done = api.v1.checkout.sessions.retrieve(checkout.id)
        assert (done.status, done.payment_status) == ("complete", "unpaid")
        sandbox.clock.advance(seconds=5)
        assert api.v1.checkout.sessions.retrieve(checkout.id).payment_status == then
        assert types(api)[-1] == event


def test_a_page_expires_after_24_hours_or_when_it_is_told(browser: httpx.Client) -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        customer = ann(api)
        left, closed_checkout, bank_checkout = (session(api, customer) for _ in range(3))
        browser.post(url(bank_checkout), data=card("4000 0027 6000 3184"))
        assert api.v1.checkout.sessions.expire(closed_checkout.id, None, key()).status == "expired"
        with pytest.raises(stripe.InvalidRequestError, match="status of expired"):
            api.v1.checkout.sessions.expire(closed_checkout.id, None, key())
        sandbox.clock.advance(seconds=86_399)
        assert api.v1.checkout.sessions.retrieve(left.id).status == "open"
        sandbox.clock.advance(seconds=1)
        assert api.v1.checkout.sessions.retrieve(left.id).status == "expired"
        page = browser.get(url(left))
        assert (page.status_code, "has expired" in text(page)) == (410, True)
        assert browser.post(url(left), data=card()).status_code == 410
        payment = api.v1.payment_intents.list().data[0]
        assert (payment.status, payment.cancellation_reason) == ("canceled", "expired")
        listed = api.v1.checkout.sessions.list({"customer": customer, "status": "expired"}).data
        assert [one.id for one in listed] == [bank_checkout.id, closed_checkout.id, left.id]
        assert sandbox.objects("charge") == []


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"mode": None}, "mode"),
        ({"success_url": None}, "success_url"),
        ({"line_items": None}, "line_items"),
        ({"success_url": "javascript:alert(1)"}, "success_url"),
        ({"cancel_url": "https://portal.example/\r\nSet-Cookie: a=b"}, "cancel_url"),
        ({"customer": "cus_nobody"}, "customer"),
        ({"expires_at": 1_800_000_000}, "expires_at"),
        ({"mode": "setup", "payment_intent_data": None, "currency": "eur"}, "line_items"),
        ({"mode": "setup", "payment_intent_data": None, "line_items": None}, "currency"),
    ],
)
def test_a_session_that_cannot_be_is_refused(changed: dict[str, Any], param: str) -> None:
    with a_sandbox() as sandbox:
        with pytest.raises(stripe.InvalidRequestError) as refused:
            session(client(sandbox), **changed)
        assert refused.value.param == param


def test_a_payment_below_the_least_amount_gets_no_page() -> None:
    with a_sandbox() as sandbox:
        item = {
            "quantity": 1,
            "price_data": {"currency": "eur", "unit_amount": 49, "product_data": {"name": "A"}},
        }
        with pytest.raises(stripe.InvalidRequestError) as refused:
            session(client(sandbox), line_items=[item])
        assert refused.value.code == "amount_too_small"


def test_the_hand_pays_like_a_person() -> None:
    with a_sandbox() as sandbox:
        api = client(sandbox)
        checkout = session(api, ann(api))
        assert sandbox.dashboard.pay(checkout.id, "4000 0027 6000 3184", passes=False)["status"] == "open"
        assert sandbox.dashboard.pay(checkout.id, "4000 0027 6000 3184")["payment_status"] == "paid"


def test_pages_that_do_not_exist_say_so(browser: httpx.Client) -> None:
    with Sandbox() as sandbox:
        for path in ("/c/pay/cs_test_nobody", "/nothing", "/authenticate/pi_nobody"):
            page = browser.get(sandbox.url + path)
            assert page.status_code in {404, 410}
            assert "Sandbox – no money moves" in text(page)
        assert browser.get(f"{sandbox.url}/").status_code == 200
