"""The text of e-mails of several notices to one person: a line for each, and what the budgets among them do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from billing.emails import composition, quota_text
from billing.emails.composition import Email
from billing.emails.formatting import load_seller_name, one_line, page_url
from billing.models import Notice, NoticeKind
from portal.core.tenants.models import Tenant, User

SHOWN = 200
"""Lines of an e-mail of an operator; there may be more notices."""


def compose_member_email(notices: Sequence[Notice], tenant: Tenant, *, moment: datetime) -> Email:
    """Of what a member gets later. One notice reads as it would have read at once. What they say of budgets is merged
    into the first notice (`merged_quotas`)."""
    link = page_url("notifications", tenant.slug)
    links = [(_("Notification settings"), link)] if link else []
    if len(notices) == 1:
        return composition.compose_email(notices, moment=moment, links=links)
    contexts = [composition.notice_context(notice, moment) for notice in notices]
    facts: list[tuple[str, str]] = []
    for notice, context in zip(notices, contexts, strict=True):
        facts += context["facts"] if notice.kind == NoticeKind.QUOTA else [_line(notice, context)]
    quotas: list[Mapping[str, Any]] = next(
        (notice.details["quotas"] for notice in notices if notice.kind == NoticeKind.QUOTA), []
    )
    parts = [_("These are the notices since your last e-mail of this kind.")]
    if quotas:
        parts.append(quota_text.effect_text(quotas))
    placed = contexts[0] | {
        "facts": facts,
        "links": links,
        "button": _("Overview"),
        "page": page_url("overview", tenant.slug),
    }
    return composition.render_email(placed, subject=_subject(notices, quotas, tenant), parts=parts)


def _subject(notices: Sequence[Notice], quotas: Sequence[object], tenant: Tenant) -> str:
    """`Vision Lab: 2 budgets, 1 receipt`"""
    counts = Counter(notice.kind for notice in notices)
    parts = []
    if count := len(quotas):
        parts.append(ngettext("{count} budget", "{count} budgets", count).format(count=count))
    if count := counts[NoticeKind.RECEIPT]:
        parts.append(ngettext("{count} receipt", "{count} receipts", count).format(count=count))
    if count := counts[NoticeKind.REFUND]:
        parts.append(ngettext("{count} refund", "{count} refunds", count).format(count=count))
    return f"{one_line(tenant.name)}: {', '.join(parts)}"


def _line(notice: Notice, context: dict[str, Any]) -> tuple[str, str]:
    """A notice in one line of the table."""
    if "row" in context:
        label, value = context["row"]
        return (label, value)
    label = notice.get_kind_display()
    return (f"{label}, {context['how']}" if context.get("how") else label, context["amount"])


def compose_operator_email(
    lines: Sequence[tuple[Tenant, str]], user: User, *, is_digest: bool, total: int
) -> Email:
    """Of what an operator subscribed to: which tenant, and the subject of what was written to it."""
    tenants = {tenant.pk: tenant for tenant, _subject in lines}
    placed: dict[str, Any] = {
        "tenant": one_line(user.get_full_name() or user.email),
        "seller": load_seller_name(),
        "facts": [(one_line(tenant.name), subject) for tenant, subject in lines],
        "links": [],
    }
    if link := page_url("operator_notifications"):
        placed["links"] = [(_("Notification settings"), link)]
    if len(tenants) == 1:
        (tenant,) = tenants.values()
        placed |= {"page": page_url("operator_tenant", tenant.slug), "button": one_line(tenant.name)}
    else:
        placed |= {"page": page_url("operator_home"), "button": _("Home")}
    if total == 1:
        tenant, subject = lines[0]
        title = f"{one_line(tenant.name)}: {subject}"
        return composition.render_email(placed, subject=title, parts=[_("This was written to a tenant.")])
    title = _("{count} notices of {tenants}").format(
        count=total,
        tenants=ngettext("{count} tenant", "{count} tenants", len(tenants)).format(count=len(tenants)),
    )
    if is_digest:
        title = _("Daily digest: {notices}").format(notices=title)
    parts = [_("These were written to tenants since your last e-mail of this kind.")]
    if total > len(lines):
        parts.append(
            _("The table has the first {count}. The history of each tenant has all.").format(count=len(lines))
        )
    return composition.render_email(placed, subject=title, parts=parts)
