"""The pages that people see: Checkout, and the bank's question about a card."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs, quote, urlencode, urlsplit

from portal.dev.stripe_sandbox import drawing, paying, payment_methods, scheduler
from portal.dev.stripe_sandbox.cards import BY_IBAN, BY_NUMBER
from portal.dev.stripe_sandbox.currencies import shown
from portal.dev.stripe_sandbox.errors import ApiError, Json
from portal.dev.stripe_sandbox.requests import Answer
from portal.dev.stripe_sandbox.state import State

HEADERS = {
    # No form-action: browsers apply it to the way back to the portal as well.
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; "
    "frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
EXPIRY = re.compile(r"\s*(\d{1,2})\s*/\s*(\d{2}|\d{4})\s*")


class TypedWronglyError(Exception):
    """What a person typed cannot be; said above the form."""


class Hosted:
    def __init__(self, state: State, keep: Callable[[], None]) -> None:
        self.state = state
        self.keep = keep

    def answer(self, method: str, path: str, query: str, body: str) -> Answer:
        if path == "/sandbox.css":
            return Answer(200, drawing.STYLE, {"Cache-Control": "max-age=60"}, content_type="text/css")
        if method not in {"GET", "POST"}:
            return _page(405, drawing.notice("Not here", "These pages are read and sent in."))
        with self.state.lock:
            scheduler.settle(self.state)
            try:
                if hit := re.fullmatch(r"/c/pay/(cs_\w+)", path):
                    return self._session(hit[1], method, query, _fields(body))
                if hit := re.fullmatch(r"/authenticate/((?:pi|seti)_\w+)", path):
                    return self._bank(hit[1], method, _fields(body))
            finally:
                if method == "POST":
                    self.keep()
        if path == "/":
            return _page(
                200,
                drawing.notice("Stripe sandbox", "It answers the API below /v1 and shows Checkout pages."),
            )
        return _page(404, drawing.notice("Nothing here", "This page of the sandbox does not exist."))

    def _session(self, identifier: str, method: str, query: str, form: dict[str, str]) -> Answer:
        session = self.state.find("checkout.session", identifier)
        if session is None:
            return _page(404, drawing.notice("No such page", "This Checkout page does not exist."))
        if session["status"] == "complete":
            link = (_returned(session), "Go on")
            return _page(200, drawing.notice("Done", "This page was completed before.", link=link))
        if session["status"] == "expired":
            back = (session["cancel_url"], "Go back") if session["cancel_url"] else None
            text = "This page has expired. Ask for a new link where you found this one."
            return _page(410, drawing.notice("Expired", text, link=back))
        refused = None
        if method == "POST":
            try:
                return self._submitted(session, form)
            except TypedWronglyError as wrong:
                refused = str(wrong)
            except ApiError as declined:
                refused = declined.message
        elif "redirect_status=failed" in query:
            refused = "We are unable to authenticate your payment method. Choose another one and try again."
        return self._form(session, refused, 422 if method == "POST" else 200)

    def _form(self, session: Json, refused: str | None, status: int) -> Answer:
        saved = [
            one
            for one in self.state.all("payment_method")
            if session["customer"]
            and one["customer"] == session["customer"]
            and one["type"] in session["payment_method_types"]
        ]
        items = self.state.hidden(session["id"])["line_items"]
        drawn = drawing.checkout(session, items, saved, refused=refused)
        return _page(status, drawn)

    def _submitted(self, session: Json, form: dict[str, str]) -> Answer:
        person = self._person(session, form)
        method = self._method(session, form, person)
        intent = paying.pay(self.state, session, method, person=person, save="save" in form)
        if intent["status"] == "requires_action":
            return _to(f"/authenticate/{intent['id']}")
        return _to(_returned(session))

    def _person(self, session: Json, form: dict[str, str]) -> Json:
        customer = self.state.find("customer", session["customer"])
        email = customer["email"] if customer else form.get("email", "").strip()
        name = form.get("name", "").strip() or (customer["name"] if customer else None)
        return {"email": email or None, "name": name}

    def _method(self, session: Json, form: dict[str, str], person: Json) -> Json:
        if form.get("method") == "saved":
            chosen = self.state.find("payment_method", form.get("saved", ""))
            if chosen is None or chosen["customer"] is None or chosen["customer"] != session["customer"]:
                raise TypedWronglyError("Choose one of the saved payment methods.")
            return chosen
        if form.get("method") == "sepa_debit":
            account = BY_IBAN.get(re.sub(r"\s", "", form.get("iban", "")).upper())
            if account is None or "sepa_debit" not in session["payment_method_types"]:
                raise TypedWronglyError("This is none of the test accounts; they are listed below.")
            return payment_methods.add_account(self.state, account, person=person)
        if "card" not in session["payment_method_types"]:
            raise TypedWronglyError("Cards cannot be used here.")
        month, year = _expiry(form.get("expiry", ""), self.state.clock.moment())
        card = BY_NUMBER.get(re.sub(r"\D", "", form.get("number", "")))
        if card is None:
            raise TypedWronglyError("This is none of the test cards; they are listed below. It was not kept.")
        if not re.fullmatch(r"\d{3,4}", form.get("cvc", "").strip()):
            raise TypedWronglyError("Your card's security code is incomplete.")
        return payment_methods.add_card(self.state, card, month=month, year=year, person=person)

    def _bank(self, identifier: str, method: str, form: dict[str, str]) -> Answer:
        intent = self.state.anywhere(identifier)
        if intent is None or (intent["status"] != "requires_action" and method == "GET"):
            return _page(
                410,
                drawing.notice("Nothing to confirm", "This question of the bank was answered, or is over."),
            )
        if method == "GET":
            return _page(200, drawing.authentication(_question(intent)))
        passed = form.get("outcome") == "complete"
        try:
            paying.authenticate(self.state, intent, passed=passed)
        except ApiError:
            passed = False  # declined after all; the intent says why
        return _to(self._way_back(intent, passed=passed and intent["status"] in {"succeeded", "processing"}))

    def _way_back(self, intent: Json, *, passed: bool) -> str:
        session = self.state.find("checkout.session", self.state.hidden(intent["id"]).get("session"))
        if session is not None:
            again = f"/c/pay/{session['id']}"
            return (
                _returned(session) if session["status"] == "complete" else f"{again}?redirect_status=failed"
            )
        back = self.state.hidden(intent["id"]).get("return_url") or "/"
        form = urlencode(
            {intent["object"]: intent["id"], "redirect_status": "succeeded" if passed else "failed"}
        )
        return f"{back}{'&' if urlsplit(back).query else '?'}{form}"


def _question(intent: Json) -> str:
    if intent["object"] == "setup_intent":
        return "ClusterTab wants to save this card for later payments."
    return f"ClusterTab wants to charge {shown(intent['amount'], intent['currency'])}."


def _returned(session: Json) -> str:
    return str(session["success_url"]).replace("{CHECKOUT_SESSION_ID}", session["id"])


def _expiry(form: str, now: datetime) -> tuple[int, int]:
    hit = EXPIRY.fullmatch(form)
    if hit is None or not 1 <= int(hit[1]) <= 12:
        raise TypedWronglyError("Give the expiry as month and year, 12/34.")
    month, year = int(hit[1]), int(hit[2]) if len(hit[2]) == 4 else 2000 + int(hit[2])
    if (year, month) < (now.astimezone(UTC).year, now.astimezone(UTC).month):
        raise TypedWronglyError("Your card's expiry is in the past.")
    return month, year


def _fields(body: str) -> dict[str, str]:
    return {name: values[-1] for name, values in parse_qs(body).items()}


def _page(status: int, body: bytes) -> Answer:
    return Answer(status, body, dict(HEADERS), content_type="text/html; charset=utf-8")


def _to(url: str) -> Answer:
    # Quoted, so that nothing in an address can end the header.
    return Answer(
        303,
        b"",
        {**HEADERS, "Location": quote(url, safe="%/:=&?~#+!$,;'@()*[]")},
        content_type="text/html; charset=utf-8",
    )
