"""Bank transfers: statements are imported, and transfers without a clear match are decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlencode

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_noop

from billing.bank_transfers import manual_matching, suggestions
from billing.bank_transfers.entities import StatementError
from billing.bank_transfers.manual_matching import DecisionError
from billing.bank_transfers.suggestions import Hint
from billing.models import RefusedEntry, Seller, Transfer, TransferPart, TransferState
from billing.queries import transfers as reading
from billing.receivables import credit_balance
from billing.receivables.credit_balance import CreditBalanceError
from billing.rules.money import Money
from portal.core.audit import acting_as
from portal.core.tenants.access import Right
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.sentences import sentence
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.badges import Badge
from portal.web.page_frame import PageFrame
from portal.web.statement_upload import OPTIONS, upload, with_fields

M = TypeVar("M", Transfer, RefusedEntry)

SHOWN: dict[str, tuple[TransferState, ...]] = {
    "": (TransferState.WAITING, TransferState.NEW),
    "booked": (TransferState.BOOKED,),
    "back": (TransferState.RETURNED,),
    "aside": (TransferState.IGNORED,),
}
"""By the name in an address, the states that it shows."""
TITLES = {
    "": gettext_noop("Unmatched"),
    "booked": gettext_noop("Matched"),
    "back": gettext_noop("Returned"),
    "aside": gettext_noop("Ignored"),
}
NONE = {
    "": gettext_noop("Every transfer is matched or ignored."),
    "booked": gettext_noop("No transfer is matched yet. Import a bank statement."),
    "back": gettext_noop("No transfer was returned."),
    "aside": gettext_noop("No transfer is ignored."),
}
BADGES = {
    TransferState.NEW: Badge(label=gettext_noop("Matching"), tone="run"),
    TransferState.WAITING: Badge(label=gettext_noop("Needs review"), tone="wait"),
    TransferState.BOOKED: Badge(label=gettext_noop("Matched"), tone="ok"),
    TransferState.RETURNED: Badge(label=gettext_noop("Returned"), tone="late"),
    TransferState.IGNORED: Badge(label=gettext_noop("Ignored"), tone="muted"),
}


@dataclass(frozen=True, kw_only=True)
class TransferRow:
    transfer: Transfer
    badge: Badge
    hints: Sequence[Hint]  # open invoices that it may pay
    originals: Sequence[Transfer]  # that it may return, where it is a debit
    parts: Sequence[TransferPart]
    waits: bool
    may_undo: bool  # what was decided can be undone


@operator_page("transfers", acts=Right.PAYMENTS)
def transfers(request: HttpRequest, frame: PageFrame) -> HttpResponse:
    show = (request.POST if request.method == "POST" else request.GET).get("show", "")
    show = show if show in SHOWN else ""
    if request.method == "POST":
        _act(request, datetime.now(UTC).replace(microsecond=0))
        return redirect(f"{reverse('operator_transfers')}{_href(show)}")
    options = form_input.last(request, request.path)
    return answer(request, frame, _page(show, request.GET, options), whole="operator/transfers.html")


def _act(request: HttpRequest, now: datetime) -> None:
    acts: dict[str, Callable[[QueryDict, str, datetime], str]] = {
        "assign": _assign,
        "aside": _aside,
        "again": _again,
        "returns": _returns,
        "settle": _settle,
        "pay-back": _pay_back,
    }
    act, by = request.POST.get("act", ""), str(request.user)
    try:
        with acting_as(by, why=_words(request.POST, "why")):
            if act in {"upload", "preview"}:
                form_input.keep(request, *OPTIONS)  # a preview is followed by the import of the same file
                messages.success(request, upload(request, by=by, now=now, preview=act == "preview"))
                if act == "upload":
                    form_input.last(request, request.path)
            elif act in acts:
                messages.success(request, acts[act](request.POST, by, now))
    except (StatementError, DecisionError, CreditBalanceError) as refusal:
        messages.error(request, sentence(refusal))


def _assign(posted: QueryDict, by: str, now: datetime) -> str:
    slug = _words(posted, "tenant")
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    if slug and tenant is None:
        raise DecisionError("no-tenant", tenant=quoted(slug))
    numbers = _words(posted, "invoices").replace(",", " ").split()
    row = manual_matching.assign_transfer(
        transfer=_transfer(posted), numbers=numbers, tenant=tenant, by=by, moment=now
    )
    return _("{amount} matched.").format(amount=amount_of(row))


def _aside(posted: QueryDict, by: str, now: datetime) -> str:
    row = manual_matching.ignore_transfer(
        transfer=_transfer(posted), reason=_words(posted, "why"), by=by, moment=now
    )
    return _("{amount} ignored.").format(amount=amount_of(row))


def _again(posted: QueryDict, by: str, now: datetime) -> str:
    row = manual_matching.reopen_transfer(
        transfer=_transfer(posted), reason=_words(posted, "why"), by=by, moment=now
    )
    if row.amount < 0:
        return _("{amount} needs review again, and so does the transfer it returned.").format(
            amount=amount_of(row)
        )
    return _("{amount} needs review again. What it paid is due again.").format(amount=amount_of(row))


def _returns(posted: QueryDict, by: str, now: datetime) -> str:
    original = _row_of(Transfer, posted.get("original", ""))
    row = manual_matching.match_return(transfer=_transfer(posted), original=original, by=by, moment=now)
    return _("{amount} returns the transfer of {day}.").format(
        amount=amount_of(row), day=say.day(original.booked_on)
    )


def _settle(posted: QueryDict, by: str, now: datetime) -> str:
    del now
    manual_matching.settle_entry(
        entry=_row_of(RefusedEntry, posted.get("entry", "")), reason=_words(posted, "why"), by=by
    )
    return _("Entry settled.")


def _pay_back(posted: QueryDict, by: str, now: datetime) -> str:
    tenant = Tenant.objects.filter(slug=_words(posted, "tenant")).first()
    if tenant is None:
        raise Http404
    currency, reference = _words(posted, "currency")[:3], _words(posted, "reference")
    try:
        amount = Money.of(_words(posted, "amount"), currency)
        amount.check_bookable()
    except ValueError as error:
        raise CreditBalanceError(sentence(error)) from error
    credit_balance.record_payout(
        tenant=tenant, currency=currency, amount=amount, reference=reference, by=by, at=now
    )
    return _("Recorded: {amount} paid back to {tenant}.").format(amount=say.money(amount), tenant=tenant)


def _words(posted: QueryDict, name: str) -> str:
    return " ".join(posted.get(name, "").replace("\0", "").split())[:500]


def _transfer(posted: QueryDict) -> Transfer:
    return _row_of(Transfer, posted.get("transfer", ""))


def _row_of(model: type[M], text: str) -> M:
    row = model.objects.filter(pk=int(text[:18])).first() if text.isascii() and text.isdecimal() else None
    if row is None:
        raise Http404
    return row


def _page(show: str, query: QueryDict, options: Mapping[str, str]) -> dict[str, object]:
    before = query.get("before", "")
    place = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else 0
    rows, older = reading.transfers(states=SHOWN[show], before=place)
    waiting = [row for row in rows if row.state == TransferState.WAITING]
    hints, originals, parts = (
        suggestions.list_hints(waiting),
        reading.taken_back(waiting),
        reading.parts(rows),
    )
    return {
        "tiles": _tiles(show),
        "title": TITLES[show],
        "empty": NONE[show],
        "rows": [
            TransferRow(
                transfer=row,
                badge=BADGES[TransferState(row.state)],
                hints=hints.get(row.pk, ()),
                originals=originals.get(row.pk, ()),
                parts=parts.get(row.pk, ()),
                waits=row.state == TransferState.WAITING,
                may_undo=row.state in {TransferState.BOOKED, TransferState.IGNORED},
            )
            for row in rows
        ],
        "older": _href(show, before=str(older)) if older else "",
        "show": show,
        "refused": [(row, with_fields(row.reason)) for row in reading.refused()],
        "credits": [
            (tenant, Money.from_minor(amount, currency))
            for tenant, currency, amount in reading.credit_balances()
        ],
        "statements": reading.statements(),
        "account": Seller.objects.order_by("pk").values_list("iban", flat=True).first() or "",
        "options": {name: text for name, text in options.items() if text},
    }


def _href(show: str, **more: str) -> str:
    parameters = {name: value for name, value in {"show": show, **more}.items() if value}
    return f"?{urlencode(parameters)}" if parameters else ""


def _tiles(show: str) -> list[dict[str, object]]:
    tallies = reading.tallies()
    tiles = []
    for name, states in SHOWN.items():
        own = [tallies[state] for state in states if state in tallies]
        sums: dict[str, int] = {}
        for _count, amounts in own:
            for currency, amount in amounts.items():
                sums[currency] = sums.get(currency, 0) + amount
        tiles.append(
            {
                "label": TITLES[name],
                "count": sum(count for count, _amounts in own),
                "sums": [Money.from_minor(amount, currency) for currency, amount in sums.items()],
                "href": _href(name) or reverse("operator_transfers"),
                "current": name == show,
            }
        )
    return tiles


def amount_of(row: Transfer) -> str:
    return say.minor(row.amount, row.currency)
