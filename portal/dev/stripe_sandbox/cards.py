"""The public test cards and accounts: what happens to whoever pays with them."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from typing import Literal

from portal.dev.stripe_sandbox.errors import ApiError, Json

Authentication = Literal["never", "on_session", "unless_set_up", "always"]


@dataclass(frozen=True)
class Decline:
    """Why an issuer says no."""

    code: str  # of the error
    decline_code: str
    message: str
    advice_code: str | None = None  # whether to try again
    network_code: str = "05"


GENERIC = Decline("card_declined", "generic_decline", "Your card was declined.", "try_again_later")
INSUFFICIENT = Decline(
    "card_declined", "insufficient_funds", "Your card has insufficient funds.", "try_again_later", "51"
)
LOST = Decline("card_declined", "lost_card", "Your card was declined.", "do_not_try_again", "41")
STOLEN = Decline("card_declined", "stolen_card", "Your card was declined.", "do_not_try_again", "43")
EXPIRED = Decline("expired_card", "expired_card", "Your card has expired.", "confirm_card_data", "54")
WRONG_CVC = Decline(
    "incorrect_cvc", "incorrect_cvc", "Your card's security code is incorrect.", "confirm_card_data", "N7"
)
PROCESSING_ERROR = Decline(
    "processing_error",
    "processing_error",
    "An error occurred while processing your card. Try again in a little bit.",
    "try_again_later",
    "96",
)
VELOCITY = Decline(
    "card_declined",
    "card_velocity_exceeded",
    "Your card was declined for making repeated attempts too frequently or exceeding its amount limit.",
    "try_again_later",
    "61",
)
AUTHENTICATION_REQUIRED = Decline(
    "authentication_required",
    "authentication_required",
    "Your card was declined. This transaction requires authentication.",
    None,
    "1A",
)
DEBIT_FAILED = Decline(
    "payment_intent_payment_attempt_failed",
    "generic_could_not_process",
    "The payment failed: the bank did not honour the debit.",
)


@dataclass(frozen=True)
class TestCard:
    """One number and how it behaves; `pm_card_NAME` stands for it in requests."""

    number: str
    name: str
    brand: str = "visa"
    saved: bool = True  # False: declined already when it is attached or set up
    decline: Decline | None = None  # of every charge
    authentication: Authentication = "never"
    refund: Literal["at_once", "later", "fails"] = "at_once"
    dispute: str | None = None  # the reason of the one that follows each charge
    inquiry: bool = False  # the bank only asks

    __test__ = False  # no test class, whatever its name

    @property
    def last4(self) -> str:
        return self.number[-4:]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"clustertab sandbox " + self.number.encode()).hexdigest()[:16]


CARDS = (
    TestCard("4242424242424242", "visa"),
    TestCard("4000056655665556", "visa_debit"),
    TestCard("5555555555554444", "mastercard", brand="mastercard"),
    TestCard("378282246310005", "amex", brand="amex"),
    TestCard("6011111111111117", "discover", brand="discover"),
    TestCard("4000000000000341", "chargeCustomerFail", decline=GENERIC),
    TestCard("4000000000000002", "chargeDeclined", decline=GENERIC, saved=False),
    TestCard("4000000000009995", "visa_chargeDeclinedInsufficientFunds", decline=INSUFFICIENT, saved=False),
    TestCard("4000000000009987", "visa_chargeDeclinedLostCard", decline=LOST, saved=False),
    TestCard("4000000000009979", "visa_chargeDeclinedStolenCard", decline=STOLEN, saved=False),
    TestCard("4000000000000069", "chargeDeclinedExpiredCard", decline=EXPIRED, saved=False),
    TestCard("4000000000000127", "chargeDeclinedIncorrectCvc", decline=WRONG_CVC, saved=False),
    TestCard("4000000000000119", "chargeDeclinedProcessingError", decline=PROCESSING_ERROR, saved=False),
    TestCard("4000000000006975", "visa_chargeDeclinedVelocityLimitExceeded", decline=VELOCITY, saved=False),
    TestCard("4000002500003155", "authenticationRequiredOnSetup", authentication="unless_set_up"),
    TestCard("4000002760003184", "authenticationRequired", authentication="always"),
    TestCard("4000000000003220", "threeDSecure2Required", authentication="always"),
    TestCard("4000003800000446", "authenticationRequiredSetupForOffSession", authentication="on_session"),
    TestCard(
        "4000008260003178",
        "authenticationRequiredChargeDeclinedInsufficientFunds",
        authentication="unless_set_up",
        decline=INSUFFICIENT,
    ),
    TestCard("4000000000007726", "pendingRefund", refund="later"),
    TestCard("4000000000005126", "refundFail", refund="fails"),
    TestCard("4000000000000259", "createDispute", dispute="fraudulent"),
    TestCard("4000000000002685", "createDisputeProductNotReceived", dispute="product_not_received"),
    TestCard("4000000000001976", "createDisputeInquiry", dispute="fraudulent", inquiry=True),
)
BY_NUMBER = {card.number: card for card in CARDS}
BY_NAME = {card.name: card for card in CARDS}


@dataclass(frozen=True)
class TestAccount:
    """An IBAN that takes part in SEPA direct debit."""

    iban: str
    name: str
    settles: bool = True
    seconds: int = 5  # until the debit settles or fails, by the sandbox's clock
    dispute: str | None = None

    __test__ = False

    @property
    def last4(self) -> str:
        return self.iban[-4:]

    @property
    def fingerprint(self) -> str:
        return hashlib.sha256(b"clustertab sandbox " + self.iban.encode()).hexdigest()[:16]


SLOW = 180  # seconds; the slow accounts take three minutes
ACCOUNTS = (
    TestAccount("DE89370400440532013000", "sepa_debit"),
    TestAccount("AT611904300234573201", "sepa_debit_at"),
    TestAccount("DE08370400440532013003", "sepa_debit_slow", seconds=SLOW),
    TestAccount("AT321904300235473204", "sepa_debit_at_slow", seconds=SLOW),
    TestAccount("DE62370400440532013001", "sepa_debit_fails", settles=False),
    TestAccount("AT861904300235473202", "sepa_debit_at_fails", settles=False),
    TestAccount("DE78370400440532013004", "sepa_debit_fails_slow", settles=False, seconds=SLOW),
    TestAccount("AT051904300235473205", "sepa_debit_at_fails_slow", settles=False, seconds=SLOW),
    TestAccount("DE35370400440532013002", "sepa_debit_disputed", dispute="debit_not_authorized"),
    TestAccount("AT591904300235473203", "sepa_debit_at_disputed", dispute="debit_not_authorized"),
)
BY_IBAN = {account.iban: account for account in ACCOUNTS}
ACCOUNT_BY_NAME = {account.name: account for account in ACCOUNTS}


def described(decline: Decline, *, method: Json, charge: Json | None = None) -> Json:
    """What stands in `last_payment_error`, `last_setup_error` and in the answer alike."""
    error: Json = {
        "type": "card_error",
        "code": decline.code,
        "decline_code": decline.decline_code,
        "doc_url": f"https://stripe.com/docs/error-codes/{decline.code.replace('_', '-')}",
        "message": decline.message,
        "network_decline_code": decline.network_code,
        "payment_method": copy.deepcopy(method),
    }
    if decline.advice_code:
        error["advice_code"] = decline.advice_code
    if charge is not None:
        error["charge"] = charge["id"]
    return error


def refused(
    decline: Decline, *, method: Json, charge: Json | None = None, intent: Json | None = None
) -> ApiError:
    """The answer, with the intent as it is after the decline."""
    error = described(decline, method=method, charge=charge)
    if intent is not None:
        error[intent["object"]] = copy.deepcopy(intent)
    return ApiError(402, error)
