"""To whom e-mails of a tenant go: contacts that get such e-mails, its billing e-mail, or who sees to its bills; those
about a budget to the members that it names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from django.db.models import Q

from billing.models import BillingContact, Notice, NoticeKind, Quota, QuotaEnding
from billing.models.contacts import TOPICS
from portal.core.tenants.models import Membership, Role, Tenant

QUOTA_KINDS = (NoticeKind.QUOTA, NoticeKind.QUOTA_ENDING, NoticeKind.WASTE)
"""What goes to the recipients of a budget; of idle jobs also to whose jobs they are."""
TOPIC_OF: Mapping[str, str] = {
    NoticeKind.INVOICE: "invoices",
    NoticeKind.CREDIT_NOTE: "invoices",
    NoticeKind.RECEIPT: "receipts",
    NoticeKind.REFUND: "receipts",
    NoticeKind.QUOTA: "budgets",
    NoticeKind.QUOTA_ENDING: "budgets",
    NoticeKind.WASTE: "budgets",
}
"""The column of a contact by the kind of a notice; all others are reminders."""


def list_notice_recipients(notice: Notice) -> list[str]:
    """Addresses that the notice is for as things are now, each once, whenever they want it. Three queries at most."""
    if notice.kind in QUOTA_KINDS:
        return _list_quota_recipients(notice)
    return list_recipients(notice.tenant, notice.kind)


def list_recipients(tenant: Tenant, kind: str) -> list[str]:
    """Addresses for a notice of that kind, each once; none where there is nobody to write to. Two queries at most."""
    topic = TOPIC_OF.get(kind, "reminders")
    rows = BillingContact.objects.filter(tenant=tenant, **{topic: True}).order_by("pk")
    contacts = list(rows.values_list("email", flat=True))
    return _choose(topic, contacts, tenant.email, partial(_list_payers, tenant))


def list_by_topic(tenant: Tenant) -> Mapping[str, list[str]]:
    """The same by topic; of budgets, of those that name no members. Two queries."""
    rows = list(BillingContact.objects.filter(tenant=tenant).order_by("pk"))
    payers = _list_payers(tenant)
    return {
        topic: _choose(
            topic, [row.email for row in rows if topic in row.topics], tenant.email, lambda: payers
        )
        for topic in TOPICS
    }


def _choose(topic: str, contacts: list[str], email: str, payers: Callable[[], list[str]]) -> list[str]:
    """Its contacts; else the billing e-mail, which of budgets gets only what no owner or billing member can get."""
    if contacts:
        return contacts
    if topic == "budgets":
        return payers() or ([email] if email else [])
    return [email] if email else payers()


def _list_quota_recipients(notice: Notice) -> list[str]:
    """The members that the quota names, as far as they are members still and may read it; else as for any budget.

    Of idle jobs first the members who are their user on the clusters.
    """
    people = Membership.objects.filter(tenant=notice.tenant, user__is_active=True).order_by("pk")
    if named := notice.details.get("members"):
        people = people.filter(user__email__in=named)
        if notice.tenant.members_see_own:
            users = _list_counted_users(notice)
            own = Q(scheduler_users__contains=users) if all(users) else Q(pk=None)
            people = people.filter(~Q(role=Role.MEMBER) | own)
        return list(people.values_list("user__email", flat=True))
    own_jobs: list[str] = []
    if notice.kind == NoticeKind.WASTE and (user := notice.details["user"]):
        own_jobs += people.filter(scheduler_users__contains=[user]).values_list("user__email", flat=True)
    return list(dict.fromkeys([*own_jobs, *list_recipients(notice.tenant, notice.kind)]))


def _list_counted_users(notice: Notice) -> list[str]:
    """Whose use the notice's budgets count: who sees their own jobs alone is told of those alone. "": everybody's."""
    if notice.kind == NoticeKind.QUOTA_ENDING:
        endings = QuotaEnding.objects.filter(pk__in=notice.details["rows"])
        return sorted({*endings.values_list("quota__user", flat=True)})
    named = [row["quota"] for row in notice.details.get("quotas", ())]
    return sorted({*Quota.objects.filter(pk__in=named).values_list("user", flat=True)})


def _list_payers(tenant: Tenant) -> list[str]:
    """Its owners, and whoever else sees to its bills."""
    people = Membership.objects.filter(
        tenant=tenant, role__in=(Role.OWNER, Role.BILLING), user__is_active=True
    )
    return list(people.order_by("pk").values_list("user__email", flat=True))
