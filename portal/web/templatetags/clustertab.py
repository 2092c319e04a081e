"""What templates need of ours: amounts and moments as text, an icon of the sprite, a form field with its classes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from datetime import UTC, date, datetime
from fractions import Fraction
from functools import cache, lru_cache, wraps
from html import escape
from zoneinfo import ZoneInfo

from django import template
from django.forms import BoundField, CheckboxInput, RadioSelect, Select
from django.template.loader import render_to_string
from django.templatetags.static import static
from django.urls import get_script_prefix, reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _

from billing.models import Invoice, MethodState, PaymentAttempt, RatedJob
from billing.models.rated import Verdict
from billing.queries.jobs import Job
from billing.rules import gateway_amounts
from billing.rules.meters import plural
from billing.rules.money import Money
from billing.rules.references import in_groups
from billing.sign_up.policy import is_open
from portal.core.tenants.brand import CurrentBrand, last_brand
from portal.locales import current
from portal.web import badges, cards
from portal.web import format as say
from portal.web.drawing import Column
from portal.web.help_texts import HELP
from portal.web.job_columns import JobCell
from portal.web.usage_chart import Measure

register = template.Library()

SPRITE = "vendor/tabler-icons-3.51.0/icons.svg"
PARTS = 500  # of a few KiB each, that a process keeps
UTC_ZONE = ZoneInfo("UTC")


def _or_blank(name: str, text_of: Callable[..., str]) -> None:
    """A filter of this name that is `text_of`, and blank for None or nothing, so that `default` can follow it."""

    @wraps(text_of)  # by which templates check the number of arguments
    def text(value: object, *rest: object) -> str:
        return "" if value is None or value == "" else text_of(value, *rest)

    register.filter(name, text)


_or_blank("money", say.money)
_or_blank("sums", say.sums)
_or_blank("minor", say.minor)  # {{ row.total|minor:row.currency }}
_or_blank("gateway_money", lambda units, currency: say.money(gateway_amounts.as_money(units, currency)))
_or_blank("whole", say.whole)
_or_blank("counted", say.counted)  # {{ tile.invoices|counted:"invoice" }}
_or_blank("gpu_hours", say.hours)
_or_blank("part_hours", say.part_hours)  # {{ row.shown.waste|part_hours:split.waste }}
_or_blank("quantity", say.quantity)
_or_blank("long_hours", say.long_hours)
_or_blank("exact_money", say.exact_money)
_or_blank("inside", say.inside)  # {{ of|inside }}
_or_blank("price", say.price)  # {{ line.unit_price|price:invoice.currency }}
_or_blank("counted_in", say.counted_in)  # {{ piece.share|counted_in:piece.meter }}
_or_blank("card", cards.label_of)
_or_blank("means", cards.means_of)  # that it was, or is to be, paid with
_or_blank("attempt_message", cards.message_of)
_or_blank("duration", say.duration)
_or_blank("period", say.period)
_or_blank("period_key", say.period_key)
_or_blank("percent", say.percent)  # {{ split.waste|percent:split.allocated }}


@register.filter
def iban(account: str) -> str:
    """In groups of four, with or without spaces before."""
    return in_groups(account.replace(" ", ""))


@register.filter
def moment(at: datetime | int | None, zone: ZoneInfo = UTC_ZONE) -> str:
    """`20 Nov 2026, 08:00`, in UTC unless a zone is named; also of a second since 1970."""
    return "" if at is None else say.moment(_instant(at), zone)


@register.filter
def second(at: datetime | int | None, zone: ZoneInfo = UTC_ZONE) -> str:
    """`20 Nov 2026, 08:00:59`."""
    return "" if at is None else say.second(_instant(at), zone)


def _instant(at: datetime | int) -> datetime:
    return datetime.fromtimestamp(at, UTC) if isinstance(at, int) else at


@register.filter
def service_period(invoice: Invoice) -> str:
    """`November 2026`."""
    return say.span(invoice.period_start, invoice.period_end, invoice.timezone)


@register.filter
def units(unit: str) -> str:
    """Behind a number: `GPU-hours`; of a declared meter as it is."""
    return _(plural(unit))


@register.filter
def gpus(job: RatedJob) -> str:
    """`16 × H100`."""
    return say.gpus(job.gpus, job.gpu_model, job.mig_profile, Fraction(job.share_num, job.share_den))


@register.filter
def bar_width(part: Fraction, whole: Fraction) -> str:
    """In per cent of the whole, for a drawing."""
    return say.plain(part * 100 / whole) if whole else "0"


@register.filter
def job_badge(state: str) -> SafeString:
    """The state of a job as its scheduler says it."""
    return _badge(badges.job_badge(state))


@register.filter
def invoice_badge(settlement: str) -> SafeString:
    """How an invoice stands."""
    return _badge(badges.INVOICE_BADGES[settlement])


@register.filter
def method_badge(state: str) -> SafeString:
    """Whether a saved card can be charged."""
    return _badge(cards.METHOD_BADGES[MethodState(state)])


@register.filter
def attempt_badge(attempt: PaymentAttempt) -> SafeString:
    """How an attempt to be paid stands."""
    return _badge(cards.badge_of(attempt))


@register.filter
def grant_badge(kind: str) -> SafeString:
    """Where a wallet's credit came from."""
    return _badge(badges.GRANT_BADGES[kind])


def _badge(badge: badges.Badge) -> SafeString:
    return format_html('<span class="ct-badge ct-{}">{}</span>', badge.tone, _(badge.label))


@register.filter
def day(on: date | None) -> str:
    """`20 Nov 2026`; of a moment its day in UTC."""
    if on is None:
        return ""
    return say.day(on.astimezone(UTC).date() if isinstance(on, datetime) else on)


@register.filter
def age(since: datetime, now: datetime) -> str:
    """`2 min`."""
    return say.age(since, now=now)


@register.filter
def ago(at: datetime | None, now: datetime) -> str:
    """`2 min ago`."""
    return "" if at is None else _("%(age)s ago") % {"age": say.age(at, now=now)}


@register.simple_tag
def icon(name: str) -> SafeString:
    """A decorative icon by its name in the sprite; the text beside it carries the meaning."""
    return _icon(static(SPRITE), name)


@register.simple_tag
def logo(brand: CurrentBrand, size: tuple[int, int]) -> SafeString:
    """The operator's logo. The name stands beside one that does not have it in it, so that says nothing else."""
    address = brand.source or reverse("brand_logo", args=[brand.logo])
    alternative = brand.name if brand.is_wide else ""
    return format_html(
        '<img class="ct-logo" src="{}" alt="{}" width="{}" height="{}">', address, alternative, *size
    )


@register.simple_tag
def last_brand_name() -> str:
    """Where nothing may be asked of the database."""
    return last_brand().name


@cache
def _icon(sprite: str, name: str) -> SafeString:
    return format_html('<svg class="icon" aria-hidden="true"><use href="{}#{}"/></svg>', sprite, name)


@register.simple_tag
def sign_up_is_open() -> bool:
    """Whether people sign up by themselves: `{% sign_up_is_open as opens %}`. One query."""
    return is_open()


@register.simple_tag(name="help")
def help_text(key: str) -> SafeString:
    """An ⓘ that opens, also without scripts, to what a figure means and to its method: `{% help "margin" %}`."""
    one = HELP[key]
    return format_html(
        '<details class="ct-help"><summary aria-label="{}">{}</summary>'
        '<div class="ct-help-text"><p>{}</p><a href="{}#{}">{}</a></div></details>',
        _("About: {title}").format(title=_(one.title)),
        icon("info-circle"),
        _(one.text),
        reverse("documentation_page", args=[one.page]),
        one.anchor,
        _("How it is computed"),
    )


@register.simple_tag
def part(template_name: str, **values: Hashable) -> SafeString:
    """A part of a page that hangs on these values alone: they are all that its template is given.

    It is rendered once for the same values and kept, since a menu takes as long as the page that it stands beside.
    """
    return _part(current(), static(SPRITE), get_script_prefix(), template_name, tuple(values.items()))


@lru_cache(PARTS)
def _part(
    _language: str, _sprite: str, _prefix: str, template_name: str, values: tuple[tuple[str, Hashable], ...]
) -> SafeString:
    """Kept by the addresses too that the part holds without being told."""
    return render_to_string(template_name, dict(values))


@register.simple_tag
def day_rows(days: Sequence[str], measure: Measure) -> SafeString:
    """The rows of a chart's table: day, a cell for each series, total; without the days to come.

    A month in two measures has some hundred of them; looped over by the template they took a third
    of all its time.
    """
    texts = [series.texts for series in measure.series]
    rows = zip(days, measure.totals, strict=False)
    return SafeString(
        "\n".join(_day_row(day, [text[n] for text in texts], total) for n, (day, total) in enumerate(rows))
    )


def _day_row(day: str, cells: Iterable[str], total: str) -> str:
    between = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
    return f'<tr><th scope="row">{escape(day)}</th>{between}<td><strong>{escape(total)}</strong></td></tr>'


@register.simple_tag
def job_cells(cells: Iterable[JobCell]) -> SafeString:
    """A job's cells between its number and its cost: 400 a page, which a template takes three times as long for."""
    return SafeString("".join(map(_job_cell, cells)))


def _job_cell(cell: JobCell) -> str:
    if cell.name == "state":
        shown: str = job_badge(cell.text)
    else:
        shown = escape(cell.text)
        if cell.style not in {"ct-num", "ct-nowrap"}:
            shown = f'<span class="ct-clip" title="{shown}">{shown}</span>'
    style = f' class="{cell.style}"' if cell.style else ""
    return f'<td data-label="{escape(cell.label)}"{style}>{shown}</td>'


@register.simple_tag
def job_cost(job: Job, cost: Money | None) -> SafeString:
    """What a job costs, or why it has no price, and what may still change it."""
    if job.verdict == Verdict.UNPRICED:
        shown = _titled("ct-badge ct-late", _("Unpriced"), _("No price covers this usage"))
    elif job.verdict == Verdict.WAIVED:
        shown = _titled("ct-badge ct-muted", _("Waived"), _("Not charged by this plan"))
    else:
        shown = f"<strong>{escape(say.money(cost)) if cost is not None else say.NOTHING}</strong>"
    if job.by_total:
        why = _("What it comes to is decided by the total of the period")
        shown += " " + _titled("ct-sofar", _("at the first unit’s price"), why)
    if job.running:
        shown += f' <span class="ct-sofar">{escape(_("so far"))}</span>'
    return SafeString(shown)


def _titled(style: str, text: str, title: str) -> str:
    return f'<span class="{style}" title="{escape(title)}">{escape(text)}</span>'


@register.simple_tag
def stacked_columns(columns: Iterable[Column]) -> SafeString:
    """Of a drawing; looped over by the template, a month in two measures took a tenth of an overview's time."""
    return SafeString("".join(map(_stacked_column, columns)))


def _stacked_column(column: Column) -> str:
    """Its whole numbers are written as SVG reads them, in no language."""
    stack = column.stack
    rectangles = "".join(
        f'<rect class="ct-series-{"other" if part.series is None else part.series + 1}" '
        f'x="{stack.x}" y="{part.y}" width="{stack.width}" height="{part.height}"/>'
        for part in stack.segments
    )
    return (
        f'<a href="{escape(column.href)}" tabindex="-1"><title>{escape(column.title)}</title>{rectangles}</a>'
    )


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
