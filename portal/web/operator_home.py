"""The operator's home: what to do now with the action beside it, revenue, receivables, and what capacity earns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.invoicing import close_runs
from billing.models import CloseKind, CloseRun
from billing.queries import spending
from billing.queries.onboarding import progress as onboarding_progress
from billing.reports import operator_home as reading
from billing.reports.operator_home import Earned, Receivables, Revenue, Waiting
from billing.rules.period import shifted
from clusters import status
from portal.core.tenants.access import Right, rights_of
from portal.core.tenants.unassigned import unassigned
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Tone
from portal.web.close_labels import SHOWN
from portal.web.closing import month_name
from portal.web.page_frame import PageFrame
from portal.web.tiles import Tile, change_of

STALE = timedelta(days=2)
LATELY = timedelta(days=62)  # jobs of these days are looked at for an owner: what lies before is closed
NAMED = 3  # accounts, tenants or clusters that a sentence names


@dataclass(frozen=True, kw_only=True)
class Task:
    """Something that waits for a person, and where it is done."""

    tone: Tone
    title: str  # "Unassigned usage"
    text: str  # "2 accounts used 40.00 GPU-hours"
    act: str  # "Assign"
    url: str
    post: tuple[tuple[str, str], ...] = ()  # what the button sends, where it acts at once


@operator_page("home")
def operator_home(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    """Seventeen queries, whatever there is."""
    now = datetime.now(UTC).replace(microsecond=0)
    today = now.date()
    waiting, owed = reading.waiting(), reading.receivables(today=today)
    earned = reading.earned(moment=now)
    progress = onboarding_progress()
    page = {
        "progress": progress,
        "tasks": [
            *_usage_tasks(now, waiting),
            *(
                _close_tasks(now, waiting, closes=Right.CLOSES in rights_of(request.user))
                if progress.priced
                else ()
            ),
            *_counted_tasks(waiting, owed),
        ],
        "tiles": [_revenue_tile(row) for row in reading.revenue(today=today)],
        "month": month_name(f"{today:%Y-%m}"),
        "receivables": owed,
        "earned": [_earned(row) for row in earned],
        "lacks_costs": any(row.revenue and row.capacity and row.cost is None for row in earned),
    }
    return answer(request, frame, page, whole="operator/home.html")


def _usage_tasks(now: datetime, waiting: Waiting) -> Iterator[Task]:
    unpriced = spending.unpriced()
    if unpriced:
        yield Task(
            tone="late",
            title=_("Unpriced usage"),
            text=_("{hours} GPU-hours of {tenants} have no price: their close is blocked.").format(
                hours=say.hours(sum((seconds for _slug, seconds in unpriced), Fraction(0))),
                tenants=_names([slug for slug, _seconds in unpriced]),
            ),
            act=_("Add a price"),
            url=reverse("operator_plans"),
        )
    if rows := unassigned(begun=now - LATELY):
        yield Task(
            tone="wait",
            title=_("Unassigned usage"),
            text=_("{hours} GPU-hours of {accounts} are billed to nobody.").format(
                hours=say.hours(sum((row.use.gpu_seconds for row in rows), Fraction(0))),
                accounts=_names([row.use.account or _("(no account)") for row in rows]),
            ),
            act=_("Assign"),
            url=reverse("operator_unassigned"),
        )
    if waiting.quarantined:
        yield Task(
            tone="wait",
            title=_("Quarantine"),
            text=_("{rows} could not be true or read, and are not billed.").format(
                rows=say.counted(waiting.quarantined, "row")
            ),
            act=_("Look at them"),
            url=reverse("operator_quarantine"),
        )
    late = [
        row.cluster
        for row in status.cluster_health()
        if row.failures or row.complete_through is None or row.complete_through < now - STALE
    ]
    if late:
        yield Task(
            tone="late",
            title=_("Stale clusters"),
            text=_("No fresh usage of {clusters}: their tenants cannot be invoiced.").format(
                clusters=_names(late)
            ),
            act=_("Check the connection") if len(late) == 1 else _("Check the clusters"),
            url=reverse("operator_cluster", args=[late[0]])
            if len(late) == 1
            else reverse("operator_clusters"),
        )


def _close_tasks(now: datetime, waiting: Waiting, *, closes: bool) -> Iterator[Task]:
    """Of the month before this one; `closes`: for whoever may close, else the page is to be looked at."""
    month = "{:04d}-{:02d}".format(*shifted((now.year, now.month), -1))
    name, address = month_name(month), f"{reverse('operator_close')}?month={month}"
    run = close_runs.get_newest_run(month)
    if run is None:
        yield Task(
            tone="wait",
            title=_("Month-end close"),
            text=_("{month} has no preview yet.").format(month=name),
            act=_("Preview {month}").format(month=name) if closes else _("Month-end close"),
            url=reverse("operator_close"),
            post=(("month", month), ("act", CloseKind.PREVIEW.value)) if closes else (),
        )
    elif run.ended_at is not None and (stuck := _count_blocked(run)):
        yield Task(
            tone="late",
            title=_("Blocked closes"),
            text=_("{tenants} cannot be invoiced for {month}.").format(
                tenants=say.counted(stuck, "tenant"), month=name
            ),
            act=_("See the blockers"),
            url=f"{address}&show=stuck",
        )
    elif run.ended_at is not None and run.kind == CloseKind.PREVIEW:
        yield Task(
            tone="run",
            title=_("Month-end close"),
            text=_("{month} is previewed and not issued.").format(month=name),
            act=_("Issue {month}").format(month=name) if closes else _("Month-end close"),
            url=f"{address}&confirm=yes" if closes else address,
        )
    if waiting.approvals:
        yield Task(
            tone="wait",
            title=_("Approvals"),
            text=_("{invoices} held for approval.").format(
                invoices=say.counted(waiting.approvals, "invoice")
            ),
            act=_("Approve or refuse") if closes else _("Month-end close"),
            url=address,
        )


def _count_blocked(run: CloseRun) -> int:
    return sum(tally.tenants for tally in close_runs.count_outcomes(run) if tally.outcome in SHOWN["stuck"])


def _counted_tasks(waiting: Waiting, owed: list[Receivables]) -> Iterator[Task]:
    """One for each kind of which there is any: tenants, then money."""
    sign_ups, collections = reverse("operator_sign_ups"), reverse("operator_receivables")
    parts: list[tuple[int, Tone, str, Callable[[int], str], str, str]] = [
        (
            waiting.sign_ups, "wait", _("Sign-ups"),
            lambda count: _("{people} waiting for your approval.").format(people=say.counted(count, "sign-up")),
            _("Approve or refuse"), sign_ups,
        ),
        (
            waiting.departures, "wait", _("Departures"),
            lambda count: _("{tenants} asked to leave.").format(tenants=say.counted(count, "tenant")),
            _("Look at them"), sign_ups,
        ),
        (
            waiting.disputes, "late", _("Disputes"),
            lambda count: _("{count} open.").format(count=say.counted(count, "dispute")),
            _("Answer"), collections,
        ),
        (
            waiting.transfers, "wait", _("Bank transfers"),
            lambda count: _("{count} without a match.").format(count=say.counted(count, "transfer")),
            _("Match"), reverse("operator_transfers"),
        ),
        (
            sum(row.owed_back_invoices for row in owed), "wait", _("Refunds owed"),
            lambda count: _("{sums} to be paid back, from {count}.").format(
                sums=say.sums([row.owed_back for row in owed if row.owed_back_invoices]),
                count=say.counted(count, "invoice"),
            ),
            _("Refund"), collections,
        ),
        (
            waiting.reviews, "late", _("Payments to check"),
            lambda count: _("{count} with an unknown outcome.").format(count=say.counted(count, "payment")),
            _("Check"), collections,
        ),
        (
            waiting.differences, "wait", _("Reconciliation"),
            lambda count: _("{count} between Stripe and the ledger.").format(
                count=say.counted(count, "difference")
            ),
            _("Resolve"), reverse("operator_reconciliation"),
        ),
        (
            waiting.damaged_months, "late", _("Sealed months"),
            lambda count: _("Files of {months} are missing or changed: bring them back from a copy.").format(
                months=say.counted(count, "month")
            ),
            _("See which"), reverse("operator_sealed_months"),
        ),
    ]  # fmt: skip
    for count, tone, title, text, act, url in parts:
        if count:
            yield Task(tone=tone, title=title, text=text(count), act=act, url=url)


def _names(names: list[str]) -> str:
    """`a, b, c and 4 more`"""
    rest = len(names) - NAMED
    text = ", ".join(names[:NAMED])
    return _("{names} and {count} more").format(names=text, count=say.whole(rest)) if rest > 0 else text


def _revenue_tile(row: Revenue) -> Tile:
    note = _("vs. {same} in the same days of last month ({whole} in all of it)").format(
        same=say.money(row.same_days.rounded()), whole=say.money(row.last_month.rounded())
    )
    tile = Tile(
        label=_("Revenue ({currency})").format(currency=row.currency),
        value=say.money(row.this_month.rounded()),
        note=note,
        help="revenue",
    )
    return change_of(tile, row.this_month.amount, row.same_days.amount)


def _earned(row: Earned) -> dict[str, object]:
    whole = row.capacity
    return {
        "row": row,
        "used_share": say.percent(row.used, whole) if whole else "",
        "revenue": [money.rounded() for money in row.revenue],
        "cost": row.cost.rounded() if row.cost else None,
        "unused": row.unused.rounded() if row.unused is not None else None,
        "margin": row.margin.rounded() if row.margin else None,
        "is_loss": row.margin is not None and row.margin.amount < 0,
    }
