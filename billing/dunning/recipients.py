"""To whom e-mails of a tenant go: contacts that get such e-mails, its billing e-mail, or who sees to its bills."""

from __future__ import annotations

from collections.abc import Mapping

from billing.models import BillingContact, NoticeKind
from portal.core.tenants.models import Membership, Role, Tenant

TOPIC_OF: Mapping[str, str] = {
    NoticeKind.INVOICE: "invoices",
    NoticeKind.CREDIT_NOTE: "invoices",
    NoticeKind.RECEIPT: "receipts",
    NoticeKind.REFUND: "receipts",
    NoticeKind.QUOTA: "budgets",
}
"""The column of a contact by the kind of a notice; all others are reminders."""


def list_recipients(tenant: Tenant, kind: str) -> list[str]:
    """Addresses for a notice of that kind, each once; none where there is nobody to write to. Two queries at most."""
    contacts = list_contacts(tenant, TOPIC_OF.get(kind, "reminders"))
    if contacts:
        return contacts
    return [tenant.email] if tenant.email else list_payers(tenant)


def list_contacts(tenant: Tenant, topic: str) -> list[str]:
    """Addresses of the contacts that get such e-mails."""
    rows = BillingContact.objects.filter(tenant=tenant, **{topic: True}).order_by("pk")
    return list(rows.values_list("email", flat=True))


def list_payers(tenant: Tenant) -> list[str]:
    """Its owners, and whoever else sees to its bills."""
    people = Membership.objects.filter(
        tenant=tenant, role__in=(Role.OWNER, Role.BILLING), user__is_active=True
    )
    return list(people.order_by("pk").values_list("user__email", flat=True))
