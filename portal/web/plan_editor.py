"""The editor of a plan version, as a form and as TOML: what a draft changes and would have come to, then publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256

from django.contrib import messages
from django.db import transaction
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Plan, PlanVersion, Price, Settles
from billing.queries import plans as reading
from portal.config_file import drafts
from portal.config_file.export import entry_text, plan_entry, plan_text
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import ConfigError
from portal.core.tenants.access import Right
from portal.ops.cli import BadInputError
from portal.web import format as say
from portal.web import plan_controls, plan_form, plan_templates
from portal.web.access_decorators import answer, operator_page
from portal.web.curves import Curve, curve_of
from portal.web.page_frame import PageFrame
from portal.web.plan_controls import PlanForm
from portal.web.plan_difference import Compared, compared, in_force, of_same_day
from portal.web.plan_effect import Effect, effect_of, first_effect
from portal.web.plan_form import RawTable

LONGEST = 200_000  # characters of a draft
TOO_LONG = gettext_noop(
    "The draft has {size:,} characters, and a page takes {limit:,}. Publish it as a file with apply."
)
MOST_MODELS = 50  # that a template gets a price for


@dataclass(frozen=True, kw_only=True)
class EditorPage:
    """The draft as one of the two: `form` is None while it is written as TOML."""

    plan: str  # "" for a new one
    text: str = ""
    form: PlanForm | None = None
    errors: Sequence[str] = ()
    checked: str = ""  # of a draft that could be published as it stands: what tells it from any other
    begins: date | None = None
    curves: Sequence[Curve] = ()
    compared: Compared | None = None
    replaces: bool = False  # a version that begins on the same day
    effect: Effect | None = None


@dataclass(frozen=True, slots=True)
class StartPage:
    """What a new plan can begin with."""

    templates: Sequence[tuple[str, str, str]]
    models: Sequence[tuple[str, str]]  # with their list prices


@operator_page("plans", acts=Right.PLANS)
def plan_editor(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        return _act(request, frame)
    if not request.GET.get("plan") and request.GET.get("template") not in {*plan_templates.TEMPLATES, "toml"}:
        return answer(request, frame, _start(), whole="operator/plan_start.html")
    return _answer(request, frame, _initial(request))


def _answer(request: HttpRequest, frame: PageFrame, page: EditorPage) -> HttpResponse:
    return answer(request, frame, page, whole="operator/plan_editor.html")


def _start() -> StartPage:
    listed = [(key, label, text) for key, (label, text, _rows) in plan_templates.TEMPLATES.items()]
    return StartPage(
        listed, [(model, plan_templates.list_price(model)) for model in plan_controls.gpu_models()]
    )


def _initial(request: HttpRequest) -> EditorPage:
    """A new plan, a new version of one, or one that is not in use yet."""
    name, key = request.GET.get("plan", ""), request.GET.get("version", "")
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    if not name:
        template = request.GET["template"]
        models = [
            model.replace("\0", "")[:255] for model in request.GET.getlist("model")[:MOST_MODELS] if model
        ]
        if template == "toml":
            raw = plan_templates.started("hourly", models, begins=tomorrow)
            for price in raw["price"]:
                price["unit_price"] = price["unit_price"] or "2.50"
            return EditorPage(plan="", text=entry_text(plan_form.entry_of(raw)))
        return _as_form(EditorPage(plan=""), plan_templates.started(template, models, begins=tomorrow))
    versions = PlanVersion.objects.filter(plan__name=name).select_related("plan").order_by("effective_from")
    version = next((row for row in versions if row.effective_from.isoformat() == key), None)
    if version is None and key:
        raise Http404("no such version")
    last = versions.last()
    if version is not None:
        return _as_form(EditorPage(plan=name), plan_form.of_entry(plan_entry(version)))
    if last is None:
        if not Plan.objects.filter(name=name).exists():
            raise Http404("no such plan")
        raw = plan_templates.started("hourly", [], begins=tomorrow)
        return _as_form(EditorPage(plan=name), raw | {"name": name})
    since = max(tomorrow, last.effective_from + timedelta(days=1))
    return _as_form(EditorPage(plan=name), plan_form.of_entry(plan_entry(last, since=since)))


def _as_form(page: EditorPage, raw: RawTable) -> EditorPage:
    return replace(page, form=plan_controls.form_of(raw, plan_controls.offers()))


def _act(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    act, _space, path = request.POST.get("act", "preview").partition(" ")
    page = EditorPage(plan=request.POST.get("plan", "").replace("\0", "")[:50])
    try:
        if "text" in request.POST:
            text = request.POST["text"].replace("\0", "").replace("\r\n", "\n")
            page = replace(page, text=text)
            if len(text) > LONGEST:  # cut, it might be a plan all the same: one without its last prices
                raise ConfigError(_(TOO_LONG).format(size=len(text), limit=LONGEST))
            entry = drafts.one_plan(text)
        else:
            raw = plan_form.of_post(request.POST)
            if act in {"add", "remove", "up", "update"}:
                return _answer(request, frame, _as_form(page, plan_form.moved(raw, act, path)))
            page = _as_form(page, raw)
            entry = drafts.dated(plan_form.entry_of(raw))
        if act in {"form", "toml"}:
            return _answer(request, frame, _turned(page, entry, act))
        return _read(request, frame, page, entry, act)
    except (ConfigError, BadInputError) as error:
        return _answer(request, frame, replace(page, errors=error.sentences))


def _turned(page: EditorPage, entry: PlanEntry, act: str) -> EditorPage:
    if act == "toml":
        return replace(page, form=None, text=entry_text(entry))
    return _as_form(replace(page, text=""), plan_form.of_entry(entry))


def _read(
    request: HttpRequest, frame: PageFrame, page: EditorPage, entry: PlanEntry, act: str
) -> HttpResponse:
    """A draft without mistakes of its own: looked at, or published as it was looked at. Raises ConfigError."""
    seen = _seen(entry)
    if act == "publish" and request.POST.get("checked") == seen:
        published = drafts.publish_entry(entry)
        text = _("Plan {version} published.").format(version=published.version)
        if published.tenants:
            tenants = say.counted(published.tenants, "tenant")
            text += _(" The usage of {tenants} is rated again.").format(tenants=tenants)
        messages.success(request, text)
        return redirect("operator_plan", published.version.plan.name)
    page = _previewed(page, entry, request.POST if act == "try" else {})
    if act == "publish":
        messages.warning(
            request, _("Not published yet: the draft, or what it is compared with, has changed.")
        )
    return _answer(request, frame, replace(page, checked=seen))


def _seen(entry: PlanEntry) -> str:
    """What a preview showed: the draft, the version in force beside it, and the one that it replaces."""
    versions = [look(plan=entry.name, begins=entry.begins) for look in (in_force, of_same_day)]
    text = "\0".join([entry_text(entry), *(plan_text(version) if version else "" for version in versions)])
    return sha256(text.encode()).hexdigest()


def _previewed(page: EditorPage, entry: PlanEntry, inputs: Mapping[str, str]) -> EditorPage:
    """With its difference, curves and effect. Raises ConfigError and BadInputError."""
    curves, difference = _written(entry)
    month = reading.last_month(moment=datetime.now(UTC))
    replaced = of_same_day(plan=entry.name, begins=entry.begins)
    page = replace(page, plan=entry.name, begins=entry.begins, curves=curves, compared=difference)
    page = replace(page, replaces=replaced is not None)
    if not inputs:
        return replace(page, effect=first_effect(entry, month=month))
    fields = {name: inputs.get(name, "").replace("\0", "") for name in ("since", "until", "tenants")}
    since, until, tenants = fields["since"][:10], fields["until"][:10], fields["tenants"][:1000]
    try:
        effect = effect_of(entry, since=since, until=until, tenants=tenants, month=month)
    except BadInputError as error:
        effect = Effect(since=since, until=until, tenants=tenants)
        page = replace(page, errors=error.sentences)
    return replace(page, effect=effect)


def _written(entry: PlanEntry) -> tuple[tuple[Curve, ...], Compared]:
    """Of the version as it would be published: it is written and rolled back."""
    plan = Plan.objects.filter(name=entry.name).first()
    if plan is not None and entry.settles is None:
        entry = entry.replaced(settles=Settles(plan.settles))  # which stays as it is
    name = f"trial~{entry.name}"[:50]
    before = in_force(plan=entry.name, begins=entry.begins)
    with transaction.atomic():
        drafts.write([entry], name)
        version = PlanVersion.objects.select_related("plan").get(plan__name=name, effective_from=entry.begins)
        prices = Price.objects.filter(version=version)
        rows = prices.select_related("version__plan", "tenant", "allowance").order_by("position", "pk")
        curves = tuple(curve_of(price) for price in rows)
        difference = compared(before, version)
        transaction.set_rollback(True)
    return curves, difference
