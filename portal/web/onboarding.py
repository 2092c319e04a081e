"""From an empty database to the first draft invoice: six steps, each done once what it makes is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.catalog.plans import PlanError
from billing.invoicing import sellers
from billing.queries import onboarding as reading
from clusters.models import Cluster, ClusterError, ClusterKind
from portal.config_file.toml_table import ConfigError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.models import Tenant
from portal.core.tenants.ownership import OwnershipConflictError
from portal.core.tenants.suggestions import suggest_tenants
from portal.core.tenants.unassigned import unassigned
from portal.sentences import sentence
from portal.web import format as say
from portal.web import onboarding_forms as forms
from portal.web.access_decorators import answer, operator_page
from portal.web.form_input import options
from portal.web.page_frame import PageFrame
from portal.web.plan_templates import list_price

REFUSALS = (ConfigError, ClusterError, OwnershipConflictError, PlanError)


@dataclass(frozen=True, slots=True)
class StepKind:
    """One step: its title, and who may take it."""

    key: str
    title: Promise
    right: Right


STEPS = (
    StepKind("seller", gettext_lazy("Who sends the invoices"), Right.SETTINGS),
    StepKind("cluster", gettext_lazy("Add a cluster"), Right.CLUSTERS),
    StepKind("usage", gettext_lazy("Read its usage"), Right.IMPORTS),
    StepKind("accounts", gettext_lazy("Say whose accounts they are"), Right.TENANTS),
    StepKind("plan", gettext_lazy("Set prices"), Right.PLANS),
    StepKind("draft", gettext_lazy("Look at the first draft"), Right.CLOSES),
)


@operator_page("home", acts=Right.READ)
def onboarding(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """The open step with its form; steps that are done stay to be looked at, by `?step=`."""
    errors: tuple[str, ...] = ()
    if request.method == "POST":
        try:
            return redirect(_take(request))
        except REFUSALS as refusal:
            errors = refusal.sentences if isinstance(refusal, ConfigError) else (sentence(refusal),)
    progress = reading.progress()
    step_key = request.POST.get("step") or request.GET.get("step", "")
    places = {kind.key: place for place, kind in enumerate(STEPS)}
    current = places.get(step_key, min(progress.current, len(STEPS) - 1))
    if current > progress.current:  # nothing to do there yet
        current = progress.current
    kind = STEPS[current]
    page = {
        "steps": [
            (place + 1, one, progress.steps[place], place == current) for place, one in enumerate(STEPS)
        ],
        "step": kind,
        "may": kind.right in rights_of(request.user),
        "complete": progress.is_complete,
        "errors": errors,
        "typed": request.POST if errors else {},
        **_PAGES[kind.key](request.POST if errors else QueryDict()),
    }
    return answer(request, frame, page, whole="operator/onboarding.html")


def _take(request: HttpRequest) -> str:
    """Do what the step's form says; the address that follows. Raises as REFUSALS."""
    here = reverse("operator_onboarding")
    kind = next((one for one in STEPS if one.key == request.POST.get("step")), None)
    if kind is None or kind.key not in _ACTS:
        return here
    if kind.right not in rights_of(request.user):
        messages.error(request, _("Your role does not allow this. Nothing was changed."))
        return here
    with acting_as(str(request.user), why="onboarding"):
        return _ACTS[kind.key](request) or here


def _take_seller(request: HttpRequest) -> str:
    messages.success(request, forms.save_seller(request.POST))
    return ""


def _take_cluster(request: HttpRequest) -> str:
    """A cluster of files goes on with a file, any other with its connection."""
    cluster = forms.save_cluster(request.POST)
    if cluster.kind == ClusterKind.IMPORT:
        return reverse("operator_usage_files", args=[cluster.name])
    return f"{reverse('operator_connection', args=[cluster.name])}?kind={cluster.kind}"


def _take_accounts(request: HttpRequest) -> str:
    seller = sellers.load_seller()
    count = forms.assign_accounts(request.POST, country=seller.country)
    if not count:
        raise ConfigError(_("Choose a tenant for at least one account."))
    text = _("{accounts} assigned. Their usage is rated now.")
    messages.success(request, text.format(accounts=say.counted(count, "account")))
    return ""


def _take_plan(request: HttpRequest) -> str:
    plan, tenants = forms.publish_plan(request.POST, reading.gpu_models() or [""])
    text = _("Plan {plan} is published, and {tenants} on it. Their usage is rated now.")
    messages.success(request, text.format(plan=plan.name, tenants=say.counted(tenants, "tenant")))
    return ""


_ACTS: Mapping[str, Callable[[HttpRequest], str]] = {
    "seller": _take_seller,
    "cluster": _take_cluster,
    "accounts": _take_accounts,
    "plan": _take_plan,
}


def _seller_page(typed: QueryDict) -> dict[str, object]:
    """One that is there already stands in the form, so that what is saved is what was seen."""
    seller = sellers.load_seller()
    if typed or not seller.code:
        return {}
    return {"typed": {name: getattr(seller, name) for name in forms.SELLER}}


def _cluster_page(typed: QueryDict) -> dict[str, object]:
    del typed
    return {"kinds": options(forms.kinds(), ClusterKind.SLURM.value)}


def _usage_page(typed: QueryDict) -> dict[str, object]:
    """Each cluster with where its usage is read."""
    del typed
    rows = Cluster.objects.select_related("connection").order_by("name")[: forms.AT_ONCE]
    return {"clusters": [(row, hasattr(row, "connection"), row.kind == ClusterKind.IMPORT) for row in rows]}


def _accounts_page(typed: QueryDict) -> dict[str, object]:
    """What was typed stands there again, by account."""
    before = {typed.get(f"account-{place}", ""): place for place in range(forms.AT_ONCE)}
    rows = [row.use for row in unassigned()][: forms.AT_ONCE]
    tenants = list(Tenant.objects.filter(archive=None).order_by("name"))
    suggested = suggest_tenants([row.account for row in rows], tenants)
    choices = [("", _("Not now")), (forms.NEW, _("New tenant")), *((row.slug, row.name) for row in tenants)]
    accounts = []
    for place, row in enumerate(rows):
        fits = suggested.get(row.account)
        chosen, name = fits.slug if fits else forms.NEW, forms.tenant_name(row.account)
        if (was := before.get(f"{row.account_id}")) is not None:
            chosen, name = typed.get(f"tenant-{was}", ""), typed.get(f"name-{was}", "")
        accounts.append((place, row, options(choices, chosen), name))
    return {"accounts": accounts}


def _plan_page(typed: QueryDict) -> dict[str, object]:
    models = reading.gpu_models()
    first = reading.first_day() or datetime.now(UTC).date()
    return {
        "models": [
            (place, model, typed.get(f"price-{place}", list_price(model)))
            for place, model in enumerate(models or [""])
        ],
        "rated": bool(models),
        "since": typed.get("since", f"{first.replace(day=1)}"),
    }


def _draft_page(typed: QueryDict) -> dict[str, object]:
    del typed
    month, tenants = reading.drafts()
    key = f"{month:%Y-%m}" if month else ""
    return {
        "month": say.month_name(month) if month else "",
        "drafts": [(row, reverse("operator_drafts", args=[key, row.slug])) for row in tenants],
        "close": f"{reverse('operator_close')}?month={key}" if key else reverse("operator_close"),
    }


_PAGES: Mapping[str, Callable[[QueryDict], dict[str, object]]] = {
    "seller": _seller_page,
    "cluster": _cluster_page,
    "usage": _usage_page,
    "accounts": _accounts_page,
    "plan": _plan_page,
    "draft": _draft_page,
}
