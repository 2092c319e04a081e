"""`check_stripe`: whether all is set up to collect through Stripe, and what is missing. Changes nothing there."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, ClassVar

from django.conf import settings
from django.core.management.base import CommandParser

from billing.payments import gateway_access
from billing.payments.gateways.base import GatewayError
from portal.ops.cli import Answer, OperatorCommand


class Command(OperatorCommand):
    help = "Say whether Stripe accepts the key, which rights it lacks, and what this portal is called there."
    refusals: ClassVar[tuple[type[Exception], ...]] = (gateway_access.CollectionError, GatewayError)

    def arguments(self, parser: CommandParser) -> None:
        del parser

    def answer(self, **_: Any) -> Answer:
        gateway = gateway_access.get_gateway()
        stamp = f"{datetime.now(UTC):%Y%m%dT%H%M%S%f}"
        missing = list(gateway.missing_rights(key=gateway_access.idempotency_key("rights", stamp)))
        label = str(gateway_access.get_gateway_account().deployment)
        data = {
            "mode": "live" if gateway.live else "test",
            "sandbox": gateway_access.is_sandbox(),
            "account_label": label,
            "account_label_set": bool(settings.STRIPE_ACCOUNT_LABEL),
            "webhook": bool(settings.STRIPE_WEBHOOK_SECRETS),
            "missing_rights": missing,
        }
        mode = "Sandbox: no money moves" if gateway_access.is_sandbox() else f"Stripe, {data['mode']} mode"
        lines = [
            f"{mode}. "
            + (
                gateway_access.describe_missing_rights(missing)
                if missing
                else "The key may do all that is needed."
            ),
            f"This portal is {label} there.",
        ]
        if not settings.STRIPE_ACCOUNT_LABEL:
            lines.append(
                f"Keep that with your keys, as STRIPE_ACCOUNT_LABEL={label}: backups may be older than it."
            )
        if not settings.STRIPE_WEBHOOK_SECRETS:
            lines.append("Without STRIPE_WEBHOOK_SECRETS events are fetched every minute.")
        return Answer(data, "\n".join(lines), 1 if missing else 0)
