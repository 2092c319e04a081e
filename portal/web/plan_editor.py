"""The editor of a plan version: price curves, example bills and a simulation of the draft, then publishing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Plan, PlanVersion, Price
from billing.queries import plans as reading
from billing.queries.costs import per_currency
from billing.rules.money import Money
from billing.simulation import what_if
from billing.simulation.what_if import Months, Simulation
from portal.config_file import drafts
from portal.config_file.drafts import one_plan, publish
from portal.config_file.export import plan_text
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import ConfigError
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.ops.cli import BadInputError
from portal.ops.management.commands.simulate_plan import months_of
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.curves import Curve, curve_of
from portal.web.page_frame import PageFrame

FIELDS = ("text", "plan", "since", "until", "tenants")
LONGEST = 200_000  # characters of a draft
TOO_LONG = gettext_noop(
    "The draft has {size:,} characters, and a page takes {limit:,}. Publish it as a file with apply."
)
AT_ONCE = 200_000  # records that a page simulates; more is for the command
EXAMPLE = 50_000  # records of an example bill

NEW = """[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
from = {tomorrow}

[[plan.price]]
meter = "gpu-hour"
model = "graduated"
tiers = [{{ up_to = 1000, unit_price = "2.50" }}, {{ unit_price = "2.00" }}]
"""


@dataclass(frozen=True, kw_only=True)
class EditorPage:
    text: str
    plan: str  # "" for a new one
    errors: Sequence[str] = ()
    checked: bool = False  # the text could be published as it stands
    begins: date | None = None
    curves: Sequence[Curve] = ()
    bills: Sequence[dict[str, object]] = ()
    bills_of: str = ""  # "March 2026"
    no_bills: str = ""  # why there are none
    since: str = ""  # of the simulation, as months
    until: str = ""
    tenants: str = ""
    trial: Sequence[dict[str, object]] = ()
    trial_now: Sequence[Money] = ()
    trial_total: Sequence[Money] = ()
    trial_of: str = ""


@operator_page("plans", acts=Right.PLANS)
def plan_editor(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method != "POST":
        return _answer(request, frame, _initial(request))
    fields = {name: request.POST.get(name, "").replace("\0", "") for name in FIELDS}
    text = fields["text"].replace("\r\n", "\n")
    page = EditorPage(
        text=text,
        plan=fields["plan"][:50],
        since=fields["since"][:10],
        until=fields["until"][:10],
        tenants=fields["tenants"][:1000],
    )
    if len(text) > LONGEST:  # cut, it might be a plan all the same: one without its last prices
        return _answer(
            request, frame, replace(page, errors=(_(TOO_LONG).format(size=len(text), limit=LONGEST),))
        )
    act = request.POST.get("act", "preview")
    try:
        if act == "publish":
            published = publish(text)
            text = _("Plan {version} published.").format(version=published.version)
            if published.tenants:
                tenants = say.counted(published.tenants, "tenant")
                text += _(" The usage of {tenants} is rated again.").format(tenants=tenants)
            messages.success(request, text)
            return redirect("operator_plan", published.version.plan.name)
        return _answer(request, frame, _previewed(page, trial=act == "try"))
    except (ConfigError, BadInputError) as error:
        return _answer(request, frame, replace(page, errors=error.sentences))


def _answer(request: HttpRequest, frame: PageFrame, page: EditorPage) -> HttpResponse:
    return answer(request, frame, page, whole="operator/plan_editor.html")


def _initial(request: HttpRequest) -> EditorPage:
    """A new plan, a new version of one, or one that is not in use yet."""
    name, key = request.GET.get("plan", ""), request.GET.get("version", "")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    if not name:
        return EditorPage(text=NEW.format(tomorrow=tomorrow), plan="")
    versions = PlanVersion.objects.filter(plan__name=name).select_related("plan").order_by("effective_from")
    version = next((row for row in versions if row.effective_from.isoformat() == key), None)
    if version is None and key:
        raise Http404("no such version")
    last = versions.last()
    if version is not None:
        return EditorPage(text=plan_text(version), plan=name)
    if last is None:
        if not Plan.objects.filter(name=name).exists():
            raise Http404("no such plan")
        return EditorPage(text=NEW.format(tomorrow=tomorrow).replace('"standard"', f'"{name}"'), plan=name)
    since = max(tomorrow, last.effective_from + timedelta(days=1))
    return EditorPage(text=plan_text(last, since=since), plan=name)


def _previewed(page: EditorPage, *, trial: bool) -> EditorPage:
    """With its curves, example bills and the simulation. Raises ConfigError and BadInputError."""
    entry = one_plan(page.text)
    now = datetime.now(UTC)
    month = reading.last_month(moment=now)
    bills, why = _examples(entry, month)
    page = replace(
        page,
        checked=True,
        plan=entry.name,
        begins=entry.begins,
        curves=_curves(entry),
        bills=bills,
        no_bills=why,
        bills_of=f"{date(*month, 1):%B %Y}" if month else "",
        since=page.since or (f"{month[0]}-{month[1]:02}" if month else ""),
    )
    return _simulated(page, entry) if trial else page


def _curves(entry: PlanEntry) -> tuple[Curve, ...]:
    """Of the version as it would be published: it is written and rolled back."""
    with transaction.atomic():
        drafts.write([entry], f"trial~{entry.name}"[:50])
        prices = Price.objects.filter(version__plan__name=f"trial~{entry.name}"[:50])
        rows = prices.select_related("version__plan", "tenant", "allowance").order_by("position", "pk")
        curves = tuple(curve_of(price) for price in rows)
        transaction.set_rollback(True)
    return curves


def _examples(entry: PlanEntry, month: tuple[int, int] | None) -> tuple[tuple[dict[str, object], ...], str]:
    chosen = reading.examples(plan=entry.name, month=month) if month else []
    if month is None or not chosen:
        return (), _("No usage yet. Example bills appear after the first full month.")
    months = (month, month)
    small = [
        (size, tenant)
        for size, tenant in chosen
        if what_if.count_records(tenants=[tenant], months=months) <= EXAMPLE
    ]
    trials = _simulate(entry, [tenant for _size, tenant in small], months)
    by_slug = {trial.tenant: trial for trial in trials}
    bills = tuple(_bill(by_slug[tenant.slug], size) for size, tenant in small)
    if len(small) == len(chosen):
        return bills, ""
    return bills, _("A tenant with too many jobs is left out. Simulate the plan for it below.")


def _simulate(entry: PlanEntry, tenants: Sequence[Tenant], months: Months) -> list[Simulation]:
    begun = drafts.start_by([entry], date(*months[0], 1))
    return what_if.simulate_plan(tenants=tenants, months=months, draft=partial(drafts.write, begun))


def _simulated(page: EditorPage, entry: PlanEntry) -> EditorPage:
    months = months_of(page.since, page.until or page.since)
    slugs = page.tenants.replace(",", " ").split()
    by_slug = {tenant.slug: tenant for tenant in Tenant.objects.filter(slug__in=slugs)}
    if missing := [slug for slug in slugs if slug not in by_slug]:
        raise BadInputError(_("There is no tenant {slug}.").format(slug=quoted(missing[0])))
    tenants = [by_slug[slug] for slug in sorted(by_slug)] or what_if.tenants_on(
        plan=entry.name, months=months
    )
    count = what_if.count_records(tenants=tenants, months=months)
    if count > AT_ONCE:
        until = f" --to {page.until}" if page.until else ""
        raise BadInputError(
            f"These are {count:,} jobs, more than a page simulates ({AT_ONCE:,}): choose fewer tenants or months, "
            f"or save the draft and run simulate_plan FILE.toml --from {page.since}{until}."
        )
    trials = _simulate(entry, tenants, months)
    return replace(
        page,
        trial=tuple(_bill(trial) for trial in trials),
        trial_now=per_currency(amount for trial in trials for amount in trial.now),
        trial_total=per_currency(amount for trial in trials for amount in trial.tried),
        trial_of=page.since if page.until in {"", page.since} else f"{page.since} to {page.until}",
    )


def _bill(trial: Simulation, size: str = "") -> dict[str, object]:
    """One tenant's months now and under the draft."""
    lines: dict[str, tuple[list[Money], list[Money]]] = {}
    for row in trial.rows:
        now, draft = lines.setdefault(row.line, ([], []))
        now += [row.now] if row.now else []
        draft += [row.tried] if row.tried else []
    return {
        "size": size,
        "trial": trial,
        "lines": [(name, per_currency(now), per_currency(draft)) for name, (now, draft) in lines.items()],
        "unpriced": ", ".join(
            f"{say.hours(hours * 3600)} {resource}-hours{f' on {model}' if model else ''}"
            for resource, model, hours in trial.unpriced
        ),
    }
