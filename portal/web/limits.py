"""What tenants may hold at once: set by operators, with a preview; tenants see what they hold of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from billing.limits import limits, obstacles
from billing.limits.limits import LimitTermsError, in_scope, load_accounts
from billing.limits.status import (
    AccountStatus,
    LimitStatus,
    held_text,
    limit_text,
    load_statuses,
    scope_text,
    state_text,
)
from billing.models import ConcurrencyLimit, LimitState
from portal.config_file.limits import LimitEntry
from portal.config_file.toml_table import ConfigError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.entry_form import entry_of, read_fields, values_of
from portal.web.page_frame import PageFrame

TEXTS = ("name", "gpu_model", "project", "account", "cluster")
NUMBERS = ("gpus", "jobs")
NAMES = ("tenant", *TEXTS, *NUMBERS)


@dataclass(frozen=True, kw_only=True)
class LimitRow:
    """One account of a limit as tables show it; the first of a limit says which."""

    tenant: str
    name: str
    title: str
    scope: str
    account: str
    held: str
    state: str
    badge: str
    note: str
    is_first: bool


def limit_rows(statuses: Sequence[LimitStatus], *, inner: bool) -> list[LimitRow]:
    """Of each account of these limits; `inner`: with what only operators read."""
    listed = []
    for one in statuses:
        accounts: Sequence[AccountStatus | None] = one.accounts or [None]
        listed += [_row(one, account, place == 0, inner=inner) for place, account in enumerate(accounts)]
    return listed


def _row(one: LimitStatus, account: AccountStatus | None, first: bool, *, inner: bool) -> LimitRow:
    limit = one.limit
    is_set = account is not None and account.state == LimitState.SET and not account.error
    note = (account.error or account.note) if account is not None and inner else ""
    return LimitRow(
        tenant=limit.tenant.slug,
        name=limit.name,
        title=limit_text(limit),
        scope=scope_text(limit),
        account=f"{account.cluster}/{account.account}" if account else _("No account is in its scope"),
        held=held_text(limit, account) if account else "–",
        state=state_text(account) if account else "–",
        badge="ct-ok" if is_set else "ct-wait",
        note=note,
        is_first=first,
    )


@operator_page("operator_budgets", acts=Right.TENANTS)
def operator_limits(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        _change(request)
        return redirect("operator_limits")
    moment = datetime.now(UTC).replace(microsecond=0)
    fields = read_fields(request.GET, NAMES)
    rows = list(limits.list_limits())
    preview, error = None, ""
    if request.GET.get("act") == "preview":
        try:
            preview = _preview(fields, moment)
        except (LimitTermsError, ConfigError) as refusal:
            error = sentence(refusal)
    chosen = (request.GET.get("tenant", ""), request.GET.get("end") or request.GET.get("edit"))
    row = next((row for row in rows if (row.tenant.slug, row.name) == chosen), None)
    edited = row if row is not None and "edit" in request.GET else None
    page = {
        "rows": limit_rows(load_statuses(rows, moment=moment), inner=True),
        "preview": preview,
        "error": error,
        "fields": _form(_values_of(edited) if edited else fields),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "ending": row if row is not None and "end" in request.GET else None,
        "edited": edited,
    }
    return answer(request, frame, page, whole="operator/limits.html")


def _change(request: HttpRequest) -> None:
    """Save or end one; what is refused says why, and nothing is kept."""
    fields = read_fields(request.POST, NAMES)
    moment, name = datetime.now(UTC).replace(microsecond=0), fields["name"]
    try:
        tenant = _tenant(fields)
        with acting_as(through="limits"):
            if request.POST.get("act") == "end":
                if limits.end_limit(tenant=tenant, name=name, moment=moment):
                    messages.success(
                        request,
                        _("Limit %(name)s is ended. Its accounts get their earlier limits.") % {"name": name},
                    )
                return
            _entry(fields).write(tenant, moment=moment)
        messages.success(
            request, _("Limit %(name)s is saved, and written to the schedulers in a moment.") % {"name": name}
        )
    except (LimitTermsError, ConfigError) as refusal:
        messages.error(request, sentence(refusal))


def _tenant(fields: Mapping[str, str]) -> Tenant:
    tenant = Tenant.objects.filter(slug=fields["tenant"]).first()
    if tenant is None:
        raise ConfigError(_("There is no tenant of that slug."))
    return tenant


def _entry(fields: Mapping[str, str]) -> LimitEntry:
    """Raises ConfigError."""
    return entry_of(LimitEntry, values_of(fields, TEXTS, NUMBERS), "limit")


def _preview(fields: Mapping[str, str], moment: datetime) -> dict[str, Any]:
    """Which accounts it would be of, saved now."""
    tenant = _tenant(fields)
    entry = _entry(fields)
    terms = entry.terms(tenant)
    terms.check()
    supposed = ConcurrencyLimit(tenant=tenant, name=entry.name, project=terms.project, gpus=terms.gpus,
                                jobs=terms.jobs, gpu_model=terms.gpu_model, account=terms.account,
                                cluster=terms.cluster)  # fmt: skip
    before = limits.list_limits(tenant).filter(name=entry.name).first()
    owned = in_scope(terms, load_accounts([tenant.pk], moment=moment).get(tenant.pk, ()))
    return {
        "tenant": tenant.slug,
        "name": entry.name,
        "is_new": before is None,
        "before": limit_text(before) if before else "",
        "text": limit_text(supposed),
        "scope": scope_text(supposed),
        "accounts": [f"{row.account.cluster.name}/{row.account.name}" for row in owned],
        "obstacles": obstacles.list_obstacles({row.account.cluster for row in owned}, terms),
    }


def _values_of(row: ConcurrencyLimit) -> dict[str, str]:
    values = {name: str(getattr(row, name) or "") for name in NAMES if name not in ("tenant", "project")}
    return values | {"tenant": row.tenant.slug, "project": row.project.name if row.project else ""}


def _form(values: Mapping[str, str]) -> list[dict[str, Any]]:
    def one(name: str, label: str, hint: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "label": label, "hint": hint, "value": values[name], **more}

    return [
        one("tenant", _("Tenant"), _("Its slug"), required=True),
        one(
            "name",
            _("Name"),
            _("Lower-case letters, digits and hyphens, such as h100-at-once"),
            required=True,
        ),
        one("gpus", _("GPUs"), _("At once; blank = no limit"), numeric=True),
        one("gpu_model", _("GPU model"), _("Blank = any")),
        one("jobs", _("Jobs"), _("That run at once; blank = no limit"), numeric=True),
        one("project", _("Project"), _("Blank = all")),
        one("account", _("Account"), _("Blank = all")),
        one("cluster", _("Cluster"), _("Blank = all")),
    ]
