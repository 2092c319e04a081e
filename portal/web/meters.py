"""Declared meters: what is counted besides what jobs hold, declared and removed by operators, with a preview."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.contrib import messages
from django.db import transaction
from django.db.models import ProtectedError
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.translation import gettext as _

from clusters.meters import MeterError, remove_meter
from clusters.models import DeclaredMeter
from portal.config_file.meters import MeterEntry, meter_entry
from portal.config_file.toml_table import ConfigError
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.sentences import sentence
from portal.web.access_decorators import answer, operator_page
from portal.web.entry_form import entry_of, read_fields, values_of
from portal.web.page_frame import PageFrame

TEXTS = ("name", "title", "unit", "counted", "unit_code")
NUMBERS = ("per_unit", "decimals")
NAMES = (*TEXTS, *NUMBERS, "dimensions")


@operator_page("plans", acts=Right.PLANS)
def operator_meters(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    if request.method == "POST":
        _change(request)
        return redirect("operator_meters")
    rows = list(DeclaredMeter.objects.order_by("name"))
    fields = read_fields(request.GET, NAMES)
    preview, error = None, ""
    if request.GET.get("act") == "preview":
        try:
            preview = _preview(_entry(fields), rows)
        except (MeterError, ConfigError) as refusal:
            error = sentence(refusal)
    by_name = {row.name: row for row in rows}
    edited = by_name.get(request.GET.get("edit", ""))
    page = {
        "rows": rows,
        "preview": preview,
        "error": error,
        "fields": _form(_values_of(edited) if edited else fields),
        "hidden": [(name, value) for name, value in fields.items() if value],
        "removing": by_name.get(request.GET.get("remove", "")),
        "edited": edited,
    }
    return answer(request, frame, page, whole="operator/meters.html")


def _change(request: HttpRequest) -> None:
    """Declare or remove one; what is refused says why, and nothing is kept."""
    fields = read_fields(request.POST, NAMES)
    name = fields["name"]
    try:
        with acting_as(through="meters"):
            if request.POST.get("act") == "remove":
                if meter := DeclaredMeter.objects.filter(name=name).first():
                    remove_meter(meter=meter)
                    messages.success(request, _("Meter {name} is removed.").format(name=name))
                return
            _entry(fields).write()
        messages.success(request, _("Meter {name} is declared.").format(name=name))
    except ProtectedError:
        messages.error(request, _("Plans charge meter {name}, so it stays.").format(name=name))
    except (MeterError, ConfigError) as refusal:
        messages.error(request, sentence(refusal))


def _entry(fields: dict[str, str]) -> MeterEntry:
    """Raises ConfigError."""
    values = values_of(fields | {name: fields[name].replace("_", "") for name in NUMBERS}, TEXTS, NUMBERS)
    if names := fields["dimensions"].replace(",", " ").split():
        values["dimensions"] = names
    return entry_of(MeterEntry, values, "meter")


def _preview(entry: MeterEntry, rows: list[DeclaredMeter]) -> dict[str, Any]:
    """How a quantity would be read and priced. Raises MeterError where it cannot be declared so."""
    with transaction.atomic():
        entry.write()
        transaction.set_rollback(True)
    before = next((row for row in rows if row.name == entry.name), None)
    return {
        "entry": entry,
        "counted": entry.counted or entry.unit,
        "is_new": before is None,
        "is_used": before is not None and before.first_used_at is not None,
    }


def _values_of(row: DeclaredMeter) -> dict[str, str]:
    entry = meter_entry(row)
    values = {name: str(getattr(entry, name)) for name in (*TEXTS, *NUMBERS)}
    return values | {"dimensions": ", ".join(entry.dimensions)}


def _form(values: Mapping[str, str]) -> list[dict[str, Any]]:
    def one(name: str, label: str, hint: str = "", **more: Any) -> dict[str, Any]:
        return {"name": name, "label": label, "hint": hint, "value": values[name], **more}

    return [
        one(
            "name", _("Name"), _("Lower-case letters, digits and hyphens, such as llm-tokens"), required=True
        ),
        one("title", _("Title"), _("As invoices call it: LLM tokens"), required=True),
        one("unit", _("Unit"), _("What a price is per: million tokens"), required=True),
        one("counted", _("Counted"), _("What a quantity counts: tokens. Blank = the unit")),
        one("per_unit", _("Per unit"), _("How many of those make one unit. Blank = 1"), numeric=True),
        one("decimals", _("Decimals"), _("That a quantity may have. Blank = 0"), numeric=True),
        one("dimensions", _("Dimensions"), _("Names by which a sum may be told apart: model, direction")),
        one("unit_code", _("Unit code"), _("Of UN/ECE recommendation 20, for e-invoices. Blank = C62")),
    ]
