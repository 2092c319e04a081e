"""Tenants as customers of the gateway."""

from __future__ import annotations

from datetime import datetime

from django.db import transaction
from django.db.models import F, Q, QuerySet, TextField, Value
from django.db.models.fields.json import KT
from django.db.models.functions import Coalesce

from billing.models import Archive, BillingAccount, MethodState, SavedMethod
from billing.payments import card_notices, gateway_access
from billing.payments.gateway_access import CollectionError
from billing.payments.gateways.base import CallOutcome, Gateway, GatewayError
from portal.core.tenants.models import Tenant


def get_billing_account(tenant: Tenant) -> BillingAccount:
    """The row of the tenant, made where there is none; nothing is asked of the gateway."""
    return BillingAccount.objects.get_or_create(tenant=tenant)[0]


@transaction.atomic
def set_automatic(*, tenant: Tenant, automatic: bool) -> BillingAccount:
    """Have its invoices charged on the day they are due, or leave them until somebody pays. Again, the same."""
    account = get_billing_account(tenant)
    account.automatic = automatic
    account.save(update_fields=["automatic"])
    return account


def refuse_archived(tenant: Tenant) -> None:
    """CollectionError for a tenant that has left: nobody spends what it would buy, and its people may be erased."""
    archive = Archive.objects.filter(tenant=tenant).first()
    if archive is not None:
        raise CollectionError("tenant-archived", tenant=tenant, day=f"{archive.at:%Y-%m-%d}")


def get_customer(tenant: Tenant, *, gateway: Gateway, moment: datetime) -> str:
    """The tenant's customer at the gateway; made once, however often and by whomever this is asked.

    Raises GatewayError; asked again, it goes on where it was.
    """
    account = _prepare_customer(tenant, moment)
    if account.customer is not None:
        return account.customer
    customer = _find_or_create(account, gateway, moment)
    BillingAccount.objects.filter(pk=account.pk, customer=None, turn=account.turn).update(customer=customer)
    return customer


def list_changed_contacts() -> QuerySet[BillingAccount]:
    """Those whose tenant has another name or billing e-mail by now than the gateway was sent. None of who has left.

    An e-mail that was taken away stays there: the gateway cannot unset one.
    """
    rows = BillingAccount.objects.filter(customer__isnull=False, tenant__archive=None).annotate(
        name=Coalesce(KT("params__name"), Value(""), output_field=TextField()),
        email=Coalesce(KT("params__email"), Value(""), output_field=TextField()),
    )
    changed = ~Q(name=F("tenant__name")) | (~Q(tenant__email="") & ~Q(email=F("tenant__email")))
    return rows.filter(changed).select_related("tenant").order_by("pk")


def send_contacts(*, account: BillingAccount, gateway: Gateway, moment: datetime) -> None:
    """Have the gateway know the tenant by its name and billing e-mail as they are now; again, the same.

    A key of the moment: setting them twice does no harm, and a name that came back is no replay. Raises GatewayError.
    """
    if account.customer is None:
        return
    contacts = {"name": account.tenant.name}
    if account.tenant.email:
        contacts["email"] = account.tenant.email
    key = gateway_access.idempotency_key("contacts", f"{account.tenant_id}:{moment:%Y%m%dT%H%M%S%f}")
    gateway.update_customer(account.customer, contacts, key=key)
    row = BillingAccount.objects.filter(pk=account.pk, customer=account.customer)
    row.update(params=account.params | contacts)


def forget_customer(customer: str, *, moment: datetime) -> None:
    """The customer was deleted at the gateway, and its cards with it: the next call makes another one.

    Who had a card that was charged is told.
    """
    tenant = BillingAccount.objects.filter(customer=customer).values_list("tenant", flat=True).first()
    if tenant is None:
        return
    with transaction.atomic():
        Tenant.objects.select_for_update(no_key=True).get(pk=tenant)  # before its rows, as everywhere
        account = BillingAccount.objects.select_for_update().filter(customer=customer).first()
        if account is None:
            return
        card = SavedMethod.objects.filter(tenant=account.tenant, preferred=True).first()
        SavedMethod.objects.filter(tenant=account.tenant).update(state=MethodState.GONE, preferred=False)
        if card is not None:
            card_notices.notify_removed_card(card, moment=moment)
        account.customer, account.requested_at, account.params = None, None, {}
        account.turn += 1
        account.save()


@transaction.atomic
def _prepare_customer(tenant: Tenant, moment: datetime) -> BillingAccount:
    """The account, with what its customer is made of committed before anybody asks for it."""
    account = BillingAccount.objects.select_for_update().get(pk=get_billing_account(tenant).pk)
    if account.customer is None and account.requested_at is None:
        account.params = {
            "name": tenant.name,
            "description": tenant.slug,
            "metadata": gateway_access.object_tags(tenant=tenant.slug, turn=account.turn),
        }
        if tenant.email:
            account.params["email"] = tenant.email
        account.requested_at = moment
        account.save()
    return account


def _find_or_create(account: BillingAccount, gateway: Gateway, moment: datetime) -> str:
    if account.requested_at is None:
        raise TypeError("the account was not asked for")
    if gateway_access.is_key_fresh(account.requested_at, moment=moment):
        try:
            key = gateway_access.idempotency_key("customer", f"{account.tenant_id}:{account.turn}")
            return gateway.create_customer(account.params, key=key)
        except GatewayError as error:
            if error.outcome is not CallOutcome.UNREPEATABLE:
                raise
    expected = account.params["metadata"]
    for customer, metadata in gateway.customers(
        since=int((account.requested_at - gateway_access.CLOCKS_DIFFER).timestamp())
    ):
        if metadata == expected:
            return customer
    # Nothing came of it, and its key may be forgotten or bring the same failure: under another one.
    BillingAccount.objects.filter(pk=account.pk, customer=None, turn=account.turn).update(
        turn=account.turn + 1, requested_at=None
    )
    raise GatewayError("The customer was not made; the next try makes it.", CallOutcome.RETRYABLE)
