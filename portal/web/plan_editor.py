"""The editor of a plan version, as a form and as TOML: what a draft changes and would have come to, then publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.models import Plan, PlanVersion, Preview, PreviewKind
from portal.config_file import drafts
from portal.config_file.export import entry_text, plan_entry
from portal.config_file.plan_entries import PlanEntry
from portal.config_file.schema import ConfigError
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web import format as say
from portal.web import plan_controls, plan_form, plan_previews, plan_templates, previews
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame
from portal.web.plan_controls import PlanForm
from portal.web.plan_effect import Effect
from portal.web.plan_form import RawTable
from portal.web.plan_previews import PlanPreview
from portal.web.previews import PreviewError

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
    preview: Preview | None = None
    progress: str = ""  # "" once the preview is there
    refresh: str = ""
    result: PlanPreview | None = None
    chosen: Effect = field(default_factory=Effect)  # of which months and tenants


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


@operator_page("plans")
def plan_preview(request: HttpRequest, frame: PageFrame, plan_preview: int) -> HttpResponse:
    """The draft in the editor, and below it what a worker computes of it."""
    row = previews.find_preview(PreviewKind.PLAN, plan_preview)
    if row is None and request.headers.get("HX-Request") == "true":  # the form above stays
        return render(request, "operator/_preview_deleted.html")
    if row is None:
        messages.warning(request, _("That preview was deleted: start a new draft."))
        return redirect("operator_plans")
    text, raw = row.inputs["text"], row.inputs["form"]
    result = previews.result_of(row, PlanPreview)
    chosen = (result.effect if result else None) or Effect(**(row.inputs["effect"] or {}))
    page = EditorPage(
        plan=row.inputs["plan"],
        text=text,
        preview=row,
        progress=previews.progress_text(row, moment=datetime.now(UTC)),
        refresh="" if row.ended_at else previews.REFRESH,
        result=result,
        chosen=chosen,
    )
    return _answer(request, frame, page if raw is None else _as_form(page, plan_form.completed(raw)))


def _answer(request: HttpRequest, frame: PageFrame, page: EditorPage) -> HttpResponse:
    part = "operator/_plan_preview.html" if page.preview else ""
    return answer(request, frame, page, whole="operator/plan_editor.html", part=part)


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
    inputs: dict[str, Any] = {
        "text": "",
        "form": None,
        "effect": _effect(request.POST) if act == "try" else None,
    }
    try:
        if "text" in request.POST:
            inputs["text"] = text = request.POST["text"].replace("\0", "").replace("\r\n", "\n")
            page = replace(page, text=text)
            if len(text) > LONGEST:  # cut, it might be a plan all the same: one without its last prices
                raise ConfigError(_(TOO_LONG).format(size=len(text), limit=LONGEST))
        else:
            inputs["form"] = raw = plan_form.of_post(request.POST)
            if act in {"add", "remove", "up", "update"}:
                return _answer(request, frame, _as_form(page, plan_form.moved(raw, act, path)))
            page = _as_form(page, raw)
        entry = plan_previews.entry_of(inputs)
        if act in {"form", "toml"}:
            return _answer(request, frame, _turned(page, entry, act))
        if act == "publish" and request.POST.get("checked") == plan_previews.digest_of(entry):
            return _publish(request, entry)
    except ConfigError as error:
        return _answer(request, frame, replace(page, errors=error.sentences))
    try:
        row = previews.request_preview(
            PreviewKind.PLAN,
            inputs=inputs | {"plan": entry.name},
            by=str(request.user),
            moment=datetime.now(UTC),
        )
    except PreviewError as refusal:
        return _answer(request, frame, replace(page, errors=[sentence(refusal)]))
    address = reverse("operator_plan_preview", args=[row.pk])
    if act == "publish":
        messages.warning(
            request, _("Not published yet: the draft, or what it is compared with, has changed.")
        )
        return redirect(address)
    return redirect(f"{address}#preview")  # below the form, which may be long


def _turned(page: EditorPage, entry: PlanEntry, act: str) -> EditorPage:
    if act == "toml":
        return replace(page, form=None, text=entry_text(entry))
    return _as_form(replace(page, text=""), plan_form.of_entry(entry))


def _publish(request: HttpRequest, entry: PlanEntry) -> HttpResponse:
    """As it was looked at. Raises ConfigError."""
    published = drafts.publish_entry(entry)
    text = _("Plan {version} published.").format(version=published.version)
    if published.tenants:
        tenants = say.counted(published.tenants, "tenant")
        text += _(" The usage of {tenants} is rated again.").format(tenants=tenants)
    messages.success(request, text)
    return redirect("operator_plan", published.version.plan.name)


def _effect(posted: Mapping[str, str]) -> dict[str, str]:
    """The months and tenants that were typed, no longer than any that can be meant."""
    longest = plan_previews.EFFECT_INPUTS
    return {name: posted.get(name, "").replace("\0", "")[:most] for name, most in longest.items()}
