"""Payment methods: cards and SEPA accounts, each with how it behaves kept out of sight."""

from __future__ import annotations

from portal.dev.stripe_sandbox import listing
from portal.dev.stripe_sandbox.cards import (
    ACCOUNT_BY_NAME,
    BY_IBAN,
    BY_NAME,
    BY_NUMBER,
    TestAccount,
    TestCard,
    refused,
)
from portal.dev.stripe_sandbox.errors import Json, invalid, missing
from portal.dev.stripe_sandbox.requests import Call, merged
from portal.dev.stripe_sandbox.state import State

NOBODY: Json = {"address": None, "email": None, "name": None, "phone": None, "tax_id": None}
ADDRESS: Json = dict.fromkeys(("city", "country", "line1", "line2", "postal_code", "state"))


def add_card(
    state: State, card: TestCard, *, month: int = 12, year: int = 2034, person: Json | None = None
) -> Json:
    """A new card that belongs to nobody yet. The number itself is not kept."""
    shown: Json = {
        "brand": card.brand,
        "checks": {"address_line1_check": None, "address_postal_code_check": None, "cvc_check": "pass"},
        "country": "US",
        "display_brand": card.brand,
        "exp_month": month,
        "exp_year": year,
        "fingerprint": card.fingerprint,
        "funding": "credit",
        "generated_from": None,
        "last4": card.last4,
        "networks": {"available": [card.brand], "preferred": None},
        "regulated_status": "unregulated",
        "three_d_secure_usage": {"supported": True},
        "wallet": None,
    }
    return added(state, "card", shown, {"card": card.name, "set_up": False}, person)


def add_account(state: State, account: TestAccount, *, person: Json | None = None) -> Json:
    """A new bank account for SEPA direct debit."""
    shown: Json = {
        "bank_code": account.iban[4:12],
        "branch_code": "",
        "country": account.iban[:2],
        "fingerprint": account.fingerprint,
        "generated_from": {"charge": None, "setup_attempt": None},
        "last4": account.last4,
    }
    return added(state, "sepa_debit", shown, {"account": account.name, "set_up": True}, person)


def added(state: State, kind: str, shown: Json, hidden: Json, person: Json | None) -> Json:
    method = state.new("payment_method", "pm", type=kind)
    for name in [
        name
        for name, value in method.items()
        if value is None and name not in {"customer", "allow_redisplay"}
    ]:
        del method[name]  # only the part of its own type is there
    method |= {
        kind: shown,
        "allow_redisplay": "unspecified",
        "billing_details": {**NOBODY, "address": dict(ADDRESS), **(person or {})},
        "customer": None,
        "customer_account": None,
        "metadata": {},
    }
    state.hidden(method["id"]).update(hidden)
    return method


def behaviour(state: State, method: Json) -> TestCard | TestAccount:
    hidden = state.hidden(method["id"])
    return BY_NAME[hidden["card"]] if "card" in hidden else ACCOUNT_BY_NAME[hidden["account"]]


def usable(state: State, identifier: str, *, customer: str | None, param: str = "payment_method") -> Json:
    """The method that a request names, new where it names a test card by `pm_card_…`; one of that customer."""
    if new_method := stands_for(state, identifier):
        return new_method
    method = state.find("payment_method", identifier)
    if method is None:
        raise missing("PaymentMethod", identifier, param=param)
    owner = method["customer"]
    if owner is not None and owner != customer:
        raise invalid(
            f"The payment method {identifier} belongs to another customer than the one of this request.",
            param=param,
        )
    if owner is None and state.hidden(identifier).get("used"):
        raise invalid(
            f"The payment method {identifier} was detached or used before without a customer. "
            "It may not be used again.",
            param=param,
        )
    return method


def stands_for(state: State, identifier: str) -> Json | None:
    if (card := BY_NAME.get(identifier.removeprefix("pm_card_"))) and identifier.startswith("pm_card_"):
        return add_card(state, card)
    if (account := ACCOUNT_BY_NAME.get(identifier.removeprefix("pm_"))) and identifier.startswith("pm_sepa"):
        return add_account(state, account)
    return None


def refuse_unsavable(state: State, method: Json) -> None:
    instrument = behaviour(state, method)
    if isinstance(instrument, TestCard) and not instrument.saved and instrument.decline:
        raise refused(instrument.decline, method=method)


def attach_to(state: State, method: Json, customer: str) -> None:
    """Belongs to that customer from now on; nothing happens where it does already."""
    if method["customer"] == customer:
        return
    method["customer"] = customer
    state.emit("payment_method.attached", method)


def detach_from(state: State, method: Json) -> None:
    """Belongs to nobody and can never be used again."""
    previous = {"customer": method["customer"]}
    method["customer"] = None
    state.hidden(method["id"])["used"] = True
    state.emit("payment_method.detached", method, previous)


def create(call: Call) -> Json:
    kind = call.get("type")
    person = call.get("billing_details") or {}
    if kind == "card" and (details := call.get("card")):
        card = BY_NUMBER.get(details.get("number", "").replace(" ", ""))
        if card is None:
            raise invalid(
                "Only the public test cards are known to the sandbox.",
                param="card[number]",
                code="incorrect_number",
            )
        method = add_card(
            call.state,
            card,
            month=details.get("exp_month", 12),
            year=details.get("exp_year", 2034),
            person=person,
        )
    elif kind == "sepa_debit" and (details := call.get("sepa_debit")):
        account = BY_IBAN.get(details["iban"].replace(" ", ""))
        if account is None:
            raise invalid(
                "Only the public test accounts are known to the sandbox.",
                param="sepa_debit[iban]",
                code="invalid_bank_account_iban",
            )
        method = add_account(call.state, account, person=person)
    else:
        raise invalid("Give type=card with card, or type=sepa_debit with sepa_debit.", param="type")
    method["metadata"] = merged({}, call.get("metadata"))
    return method


retrieve = listing.named("payment_method", param="payment_method")


def retrieve_of_customer(call: Call) -> Json:
    method = call.state.named("payment_method", call.ids[1], param="payment_method", in_path=True)
    if method["customer"] != call.ids[0]:
        raise missing("payment_method", call.ids[1], param="payment_method", status=404)
    return method


def update(call: Call) -> Json:
    method = retrieve(call)
    with call.state.updating(method, "payment_method.updated"):
        method["metadata"] = merged(method["metadata"], call.params.get("metadata"))
        method |= call.fields("allow_redisplay")
        if details := call.get("billing_details"):
            method["billing_details"] = {**method["billing_details"], **details}
        if details := call.get("card"):
            method["card"] = {
                **method["card"],
                **{k: v for k, v in details.items() if k in {"exp_month", "exp_year"}},
            }
    return method


def attach(call: Call) -> Json:
    if "customer" not in call.params:
        raise invalid("Missing required param: customer.", param="customer", code="parameter_missing")
    customer = call.state.named("customer", call.params["customer"], param="customer")
    method = usable(call.state, call.ids[0], customer=customer["id"])
    refuse_unsavable(call.state, method)
    attach_to(call.state, method, customer["id"])
    return method


def detach(call: Call) -> Json:
    method = retrieve(call)
    if method["customer"] is None:
        raise invalid(
            "The payment method you provided is not attached to a customer so detachment is impossible.",
            param="payment_method",
        )
    detach_from(call.state, method)
    return method


def list_(call: Call) -> Json:
    if customer := call.get("customer"):
        call.state.named("customer", customer, param="customer")
    owned = [one for one in call.state.all("payment_method") if one["customer"] is not None]
    return listing.page(call, owned, url="/v1/payment_methods", equal=["customer", "type", "allow_redisplay"])


def list_of_customer(call: Call) -> Json:
    customer = call.state.named("customer", call.ids[0], param="customer", in_path=True)
    owned = [one for one in call.state.all("payment_method") if one["customer"] == customer["id"]]
    url = f"/v1/customers/{customer['id']}/payment_methods"
    return listing.page(call, owned, url=url, equal=["type", "allow_redisplay"])
