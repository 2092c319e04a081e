"""The gateway that this deployment collects through, what it is called there, and whether it lets us in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Final
from uuid import UUID, uuid4

from django.conf import settings

from billing.models import GatewayAccount
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError
from billing.payments.messages import SENTENCES
from portal.errors import CodedError

KEY_LIVES: Final = timedelta(hours=23)
"""For so long the same key is sent again; Stripe forgets it after 24 hours, and would do all of it once more."""


class UnmatchedObjectError(CodedError):
    """Something of ours at the gateway that belongs to nothing here: people look, and the tenant is not charged."""

    sentences = SENTENCES

    def __init__(self, code: str, /, *, tenant: str, **values: object) -> None:
        super().__init__(code, **values)
        self.tenant = tenant


class CollectionError(CodedError):
    """Nothing can be collected so; its sentence says why and what to do."""

    sentences = SENTENCES


CLOCKS_DIFFER: Final = timedelta(days=1)
"""How much earlier than here something is looked for there; more is only more to read."""


def is_configured() -> bool:
    return bool(settings.STRIPE_SECRET_KEY)


def is_sandbox() -> bool:
    """Whether no money moves here: the gateway is the stand-in."""
    return is_configured() and bool(settings.STRIPE_API_BASE)


def get_gateway() -> Gateway:
    """The gateway of the key that is set; at the first call of a database's life, what we are called there is settled.

    Raises CollectionError where no key is set, where the database is another one at Stripe than STRIPE_ACCOUNT_LABEL
    says, where it collected in the other mode, and where nobody knows, or can be asked, what it is called there.
    """
    if not is_configured():
        raise CollectionError("no-gateway")
    client = _make_gateway(settings.STRIPE_SECRET_KEY, settings.STRIPE_API_BASE)
    row = GatewayAccount.objects.filter(pk=1).first() or _choose_name(client)
    if settings.STRIPE_ACCOUNT_LABEL not in ("", str(row.deployment)):
        raise CollectionError(
            "clash-of-labels", deployment=row.deployment, label=settings.STRIPE_ACCOUNT_LABEL
        )
    if row.live is None:
        GatewayAccount.objects.filter(pk=row.pk, live=None).update(live=client.live)
    elif row.live is not client.live:
        modes = ("live", "test") if row.live else ("test", "live")
        raise CollectionError("clash-of-modes", first=modes[0], other=modes[1])
    return client


@cache
def _make_gateway(key: str, base: str) -> Gateway:
    from billing.payments.gateways.stripe import Stripe  # 9 MiB, which only who collects needs

    return Stripe(key=key, base=base)


def get_gateway_account() -> GatewayAccount:
    """The row of it. Raises CollectionError as `get_gateway` does, where this database has collected nothing yet."""
    row = GatewayAccount.objects.filter(pk=1).first()
    if row is None:
        get_gateway()
        row = GatewayAccount.objects.get(pk=1)
    return row


def _choose_name(client: Gateway) -> GatewayAccount:
    """What this deployment is called from now on. Never another name than before, which would forget all it charged.

    A database that was made anew, or restored from before its first charge, does not know: the customers there do.
    """
    deployment = settings.STRIPE_ACCOUNT_LABEL
    if not deployment and (others := _list_names(client)):
        raise CollectionError("clash-of-accounts", names=" or ".join(others), first=others[0], new=uuid4())
    return GatewayAccount.objects.get_or_create(
        pk=1, defaults={"deployment": UUID(deployment) if deployment else uuid4()}
    )[0]


def _list_names(client: Gateway) -> list[str]:
    """What deployments are called that have customers there; asked once in the life of a database."""
    try:
        return sorted(
            {name for _, metadata in client.customers(since=0) if (name := metadata.get("ct_deployment"))}
        )
    except GatewayError as error:
        raise CollectionError("nothing-can-be-collected", reason=error) from error


def idempotency_key(operation: str, name: object) -> str:
    """The idempotency key of a row's call: the same for ever."""
    return f"ct:{get_gateway_account().deployment}:{operation}:{name}"


def object_tags(**values: object) -> dict[str, str]:
    """The metadata of an object of ours; `is_ours` knows it again."""
    return {"ct_deployment": str(get_gateway_account().deployment)} | {
        f"ct_{name}": str(value) for name, value in values.items()
    }


def is_ours(metadata: Mapping[str, str]) -> bool:
    """Whether an object at the gateway is of this deployment: an account there may be shared."""
    return metadata.get("ct_deployment") == str(get_gateway_account().deployment)


def tagged_row_id(metadata: Mapping[str, str], noun: str) -> UUID:
    """The row that an object's metadata name; where they name none, an id that no row has."""
    try:
        return UUID(metadata.get(f"ct_{noun}", ""))
    except ValueError:
        return UUID(int=0)


def is_key_fresh(sent_at: datetime, *, moment: datetime) -> bool:
    """Whether the gateway still knows the key of a call made then."""
    return moment - sent_at < KEY_LIVES


def handle_auth_error(error: GatewayError, *, moment: datetime) -> None:
    """Stop collecting where the key is refused: every call would be, and no payer is to hear of it."""
    if error.outcome is CallOutcome.LOCKED_OUT:
        GatewayAccount.objects.filter(pk=get_gateway_account().pk, locked_out_at=None).update(
            locked_out_at=moment, lockout_reason=str(error)
        )


def is_locked_out() -> bool:
    return GatewayAccount.objects.filter(pk=1, locked_out_at__isnull=False).exists()


def describe_missing_rights(rights: Sequence[str]) -> str:
    """What a key may not do and has to, in a sentence."""
    return (
        f"The key of Stripe lacks rights: {', '.join(rights)}; docs/how-to/go-live-with-stripe.md lists them."
    )


def lock_out(reason: str) -> None:
    """The key is still refused, for this reason."""
    GatewayAccount.objects.filter(pk=1).update(lockout_reason=reason)


def unlock() -> None:
    """Collect again, after the key was mended."""
    GatewayAccount.objects.filter(pk=1).update(locked_out_at=None, lockout_reason="")
