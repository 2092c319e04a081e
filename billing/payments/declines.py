"""Refusals after which asking the same card again is useless, and forbidden by the networks."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from billing.models import PaymentAttempt

HARD = frozenset(
    ("lost_card", "stolen_card", "pickup_card", "fraudulent", "expired_card", "incorrect_number", "invalid_account",
     "new_account_information_available", "revocation_of_all_authorizations", "revocation_of_authorization",
     "restricted_card", "stop_payment_order", "card_not_supported", "currency_not_supported")
)  # fmt: skip
"""Refusals after which the same means of payment is never tried again (the bank's words)."""

MESSAGES = (
    gettext_noop("Your card was declined."),
    gettext_noop("Your card has insufficient funds."),
    gettext_noop("Your card has expired."),
    gettext_noop("Your card was declined. This transaction requires authentication."),
)
"""What the gateway says most often; what else it says stays as it came."""


def is_hard(attempt: PaymentAttempt) -> bool:
    """Whether the same means of payment is never to be tried again."""
    return attempt.code in HARD or attempt.advice == "do_not_try_again"
