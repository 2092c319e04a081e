"""What templates need of ours: amounts and moments as text, an icon of the sprite, a form field with its classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, date, datetime
from functools import cache, lru_cache
from html import escape
from zoneinfo import ZoneInfo

from django import template
from django.forms import BoundField, CheckboxInput, RadioSelect, Select
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import get_script_prefix
from django.utils.html import format_html
from django.utils.safestring import SafeString

from portal.web import format as say

register = template.Library()

SPRITE = "vendor/tabler-icons-3.51.0/icons.svg"
PARTS = 500  # of a few KiB each, that a process keeps
UTC_ZONE = ZoneInfo("UTC")


def _or_blank(name: str, text_of: Callable[..., str]) -> None:
    """A filter of this name that is `text_of`, and blank for None, so that `default` can follow it."""
    register.filter(name, lambda value, *rest: "" if value is None else text_of(value, *rest))


_or_blank("money", say.money)
_or_blank("sums", say.sums)
_or_blank("minor", say.minor)  # {{ row.total|minor:row.currency }}
_or_blank("whole", say.whole)
_or_blank("counted", say.counted)  # {{ tile.invoices|counted:"invoice" }}
_or_blank("gpu_hours", say.hours)
_or_blank("percent", say.percent)  # {{ split.waste|percent:split.allocated }}


@register.filter
def moment(at: datetime | None, zone: ZoneInfo = UTC_ZONE) -> str:
    """`20 Nov 2026, 08:00`, in UTC unless a zone is named."""
    return "" if at is None else say.moment(at, zone)


@register.filter
def day(on: date | None) -> str:
    """`20 Nov 2026`; of a moment its day in UTC."""
    if on is None:
        return ""
    return say.day(on.astimezone(UTC).date() if isinstance(on, datetime) else on)


@register.filter
def ago(at: datetime | None, now: datetime) -> str:
    """`2 min ago`."""
    return "" if at is None else f"{say.age(at, now=now)} ago"


@register.simple_tag
def icon(name: str) -> SafeString:
    """A decorative icon by its name in the sprite; the text beside it carries the meaning."""
    return _icon(static(SPRITE), name)


@cache
def _icon(sprite: str, name: str) -> SafeString:
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', sprite, name)


@register.simple_tag
def part(template_name: str, **values: Hashable) -> SafeString:
    """A part of a page that hangs on these values alone: they are all that its template is given.

    It is rendered once for the same values and kept, since a menu takes as long as the page that it stands beside.
    """
    return _part(static(SPRITE), get_script_prefix(), template_name, tuple(values.items()))


@lru_cache(PARTS)
def _part(
    _sprite: str, _prefix: str, template_name: str, values: tuple[tuple[str, Hashable], ...]
) -> SafeString:
    """Kept by the addresses too that the part holds without being told."""
    return render_to_string(template_name, dict(values))


@register.simple_tag
def day_rows(rows: Iterable[tuple[str, tuple[str, ...], str]]) -> SafeString:
    """The rows of a chart's table: day, a cell for each series, total.

    A month in two measures has some hundred of them; looped over by the template they took a third
    of all its time.
    """
    return SafeString("\n".join(_day_row(*row) for row in rows))


def _day_row(day: str, cells: tuple[str, ...], total: str) -> str:
    between = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(day)}</th>{between}<td><strong>{escape(total)}</strong></td></tr>'


@register.filter
def control(field: BoundField) -> SafeString:
    """The field's widget with the class that its kind of control needs."""
    widget = field.field.widget
    if isinstance(widget, RadioSelect):
        return field.as_widget()
    if isinstance(widget, CheckboxInput):
        kind = "form-check-input"
    else:
        kind = "form-select" if isinstance(widget, Select) else "form-control"
    return field.as_widget(attrs={"class": f"{kind} is-invalid" if field.errors else kind})


@register.filter
def is_checkbox(field: BoundField) -> bool:
    return isinstance(field.field.widget, CheckboxInput)
