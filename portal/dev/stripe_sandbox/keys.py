"""API keys: secret ones may all, restricted ones what they were given."""

from __future__ import annotations

import base64

from portal.dev.stripe_sandbox.errors import ApiError
from portal.dev.stripe_sandbox.state import ACCOUNT

SECRET, LIVE = "sk_test_sandbox", "sk_live_sandbox"
# What a portal needs of a restricted key; write includes read.
PORTAL_RIGHTS = frozenset(
    {
        "rak_customer_write", "rak_payment_method_write", "rak_payment_intent_write", "rak_setup_intent_write",
        "rak_checkout_session_write", "rak_charge_write", "rak_dispute_read", "rak_event_read", "rak_balance_read",
        "rak_payout_read", "rak_account_read",
    }
)  # fmt: skip


class Keys:
    """The keys of the account, each with its rights; None is all of them."""

    def __init__(self, *, live: bool) -> None:
        self.live = live
        self.main = LIVE if live else SECRET
        self.rights: dict[str, frozenset[str] | None] = {self.main: None}

    def restrict(self, key: str, rights: frozenset[str] = PORTAL_RIGHTS) -> str:
        """Issue a restricted key; `rk_test_…`, or `rk_live_…` in a live sandbox."""
        self.rights[key] = rights
        return key

    def revoke(self, key: str) -> None:
        self.rights.pop(key, None)

    def check(self, header: str | None, permission: str) -> None:
        """Refuse with 401 who is not known, with 403 who may not."""
        key = key_of(header)
        if not key:
            raise ApiError(
                401,
                {
                    "type": "invalid_request_error",
                    "message": "You did not provide an API key: send it as a Bearer token.",
                },
            )
        if key not in self.rights:
            raise ApiError(
                401, {"type": "invalid_request_error", "message": f"Invalid API Key provided: {masked(key)}"}
            )
        rights = self.rights[key]
        if rights is not None and not rights & {permission, permission.replace("_read", "_write")}:
            message = (
                f"The provided key '{masked(key)}' does not have the required permissions for this endpoint on account "
                f"'{ACCOUNT}'. Having the '{permission}' permission would allow this request to continue."
            )
            raise ApiError(403, {"type": "invalid_request_error", "message": message})

    def of_other_mode(self, header: str | None) -> bool:
        return ("_live_" in key_of(header)) != self.live


def key_of(header: str | None) -> str:
    """The key of an Authorization header, as a token or as the user of a password."""
    kind, _, value = (header or "").partition(" ")
    if kind.lower() == "basic":
        try:
            return base64.b64decode(value).decode().partition(":")[0]
        except ValueError:
            return ""
    return value.strip() if kind.lower() == "bearer" else ""


def masked(key: str) -> str:
    return f"{key[:8]}{'*' * max(len(key) - 12, 4)}{key[-4:]}"
