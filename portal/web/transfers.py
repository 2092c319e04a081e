"""Bank transfers: statements are uploaded, and what nobody could be sure of is decided."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TypeVar
from urllib.parse import urlencode
from zoneinfo import ZoneInfo

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import reverse

from billing.bank_transfers import manual_matching, suggestions
from billing.bank_transfers.entities import StatementError
from billing.bank_transfers.manual_matching import DecisionError
from billing.bank_transfers.suggestions import Hint
from billing.models import RefusedEntry, Seller, Transfer, TransferPart, TransferState
from billing.queries import transfers as reading
from billing.receivables import credit_balance
from billing.receivables.credit_balance import CreditBalanceError
from billing.rules.money import Money
from billing.rules.references import in_groups
from portal.core.audit import acting_as
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted
from portal.web import form_input
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import Badge, CloseTile, Shell
from portal.web.shapes.transfers import (
    CreditRow,
    HintRow,
    PartRow,
    RefusedRow,
    StatementRow,
    TransferRow,
    TransfersPage,
)
from portal.web.statement_upload import OPTIONS, upload, with_fields

M = TypeVar("M", Transfer, RefusedEntry)

UTC_ZONE = ZoneInfo("UTC")
SHOWN: dict[str, tuple[TransferState, ...]] = {
    "": (TransferState.WAITING, TransferState.NEW),
    "booked": (TransferState.BOOKED,),
    "back": (TransferState.RETURNED,),
    "aside": (TransferState.ASIDE,),
}
"""By the name in an address, the states that it shows."""
TITLES = {"": "To be looked at", "booked": "Booked", "back": "Went back", "aside": "Set aside"}
NONE = {
    "": "Every transfer is booked or set aside.",
    "booked": "Nothing is booked yet: upload a statement of the bank.",
    "back": "No transfer went back.",
    "aside": "Nothing is set aside.",
}
BADGES = {
    TransferState.NEW: Badge(label="To be matched", tone="run"),
    TransferState.WAITING: Badge(label="Waits for you", tone="wait"),
    TransferState.BOOKED: Badge(label="Booked", tone="ok"),
    TransferState.RETURNED: Badge(label="Went back", tone="late"),
    TransferState.ASIDE: Badge(label="Set aside", tone="muted"),
}


@operator_page("transfers", acts=True)
def transfers(request: HttpRequest, shell: Shell) -> HttpResponse:
    show = (request.POST if request.method == "POST" else request.GET).get("show", "")
    show = show if show in SHOWN else ""
    if request.method == "POST":
        _act(request, datetime.now(UTC).replace(microsecond=0))
        return redirect(f"{reverse('operator_transfers')}{_href(show)}")
    options = form_input.last(request, request.path)
    return answer(request, shell, _page(show, request.GET, options), whole="operator/transfers.html")


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
        messages.error(request, str(refusal))


def _assign(posted: QueryDict, by: str, now: datetime) -> str:
    slug = _words(posted, "tenant")
    tenant = Tenant.objects.filter(slug=slug).first() if slug else None
    if slug and tenant is None:
        raise DecisionError(f"There is no tenant {quoted(slug)}.")
    numbers = _words(posted, "invoices").replace(",", " ").split()
    row = manual_matching.assign_transfer(
        transfer=_transfer(posted), numbers=numbers, tenant=tenant, by=by, moment=now
    )
    return f"{amount_of(row)} booked."


def _aside(posted: QueryDict, by: str, now: datetime) -> str:
    row = manual_matching.ignore_transfer(
        transfer=_transfer(posted), why=_words(posted, "why"), by=by, moment=now
    )
    return f"{amount_of(row)} set aside."


def _again(posted: QueryDict, by: str, now: datetime) -> str:
    row = manual_matching.reopen_transfer(
        transfer=_transfer(posted), why=_words(posted, "why"), by=by, moment=now
    )
    if row.amount < 0:
        return f"{amount_of(row)} waits again, and so does what it took back."
    return f"{amount_of(row)} waits again; what it paid is due again."


def _returns(posted: QueryDict, by: str, now: datetime) -> str:
    original = _found(Transfer, posted.get("original", ""))
    row = manual_matching.match_return(transfer=_transfer(posted), original=original, by=by, moment=now)
    return f"{amount_of(row)} takes back the transfer of {say.day(original.booked_on)}."


def _settle(posted: QueryDict, by: str, now: datetime) -> str:
    del now
    manual_matching.settle_entry(
        entry=_found(RefusedEntry, posted.get("entry", "")), why=_words(posted, "why"), by=by
    )
    return "Settled."


def _pay_back(posted: QueryDict, by: str, now: datetime) -> str:
    tenant = Tenant.objects.filter(slug=_words(posted, "tenant")).first()
    if tenant is None:
        raise Http404
    currency, reference = _words(posted, "currency")[:3], _words(posted, "reference")
    try:
        amount = Money.of(_words(posted, "amount"), currency)
        amount.check_bookable()
    except ValueError as error:
        raise CreditBalanceError(str(error)) from error
    credit_balance.record_payout(
        tenant=tenant, currency=currency, amount=amount, reference=reference, by=by, at=now
    )
    return f"{say.money(amount)} of {tenant} are paid back."


def _words(posted: QueryDict, name: str) -> str:
    return " ".join(posted.get(name, "").replace("\0", "").split())[:500]


def _transfer(posted: QueryDict) -> Transfer:
    return _found(Transfer, posted.get("transfer", ""))


def _found(model: type[M], text: str) -> M:
    row = model.objects.filter(pk=int(text[:18])).first() if text.isascii() and text.isdecimal() else None
    if row is None:
        raise Http404
    return row


def _page(show: str, query: QueryDict, options: Mapping[str, str]) -> TransfersPage:
    before = query.get("before", "")
    place = int(before) if before.isascii() and before.isdecimal() and len(before) < 19 else 0
    rows, older = reading.transfers(states=SHOWN[show], before=place)
    waiting = [row for row in rows if row.state == TransferState.WAITING]
    hints, undone, parts = suggestions.list_hints(waiting), reading.taken_back(waiting), reading.parts(rows)
    account = next(iter(Seller.objects.order_by("pk").values_list("iban", flat=True)), "")
    return TransfersPage(
        tiles=_tiles(show),
        title=TITLES[show],
        empty=NONE[show],
        rows=tuple(
            _row(row, hints.get(row.pk, ()), undone.get(row.pk, ()), parts.get(row.pk, ())) for row in rows
        ),
        older=_href(show, before=str(older)) if older else "",
        show=show,
        refused=tuple(
            RefusedRow(
                pk=row.pk,
                place=row.place,
                statement=str(row.statement),
                reason=with_fields(row.reason),
                raw=row.raw,
            )
            for row in reading.refused()
        ),
        credits=tuple(
            CreditRow(
                slug=tenant.slug,
                tenant=tenant.name,
                currency=currency,
                amount=say.minor(amount, currency),
                plain=Money.from_minor(amount, currency).text,
            )
            for tenant, currency, amount in reading.credit_balances()
        ),
        statements=_statements(),
        account=in_groups(account.replace(" ", "")),
        options={name: text for name, text in options.items() if text},
    )


def _href(show: str, **more: str) -> str:
    parameters = {name: value for name, value in {"show": show, **more}.items() if value}
    return f"?{urlencode(parameters)}" if parameters else ""


def _tiles(show: str) -> tuple[CloseTile, ...]:
    tallies = reading.tallies()
    tiles = []
    for name, states in SHOWN.items():
        own = [tallies[state] for state in states if state in tallies]
        sums: dict[str, int] = {}
        for _, amounts in own:
            for currency, amount in amounts.items():
                sums[currency] = sums.get(currency, 0) + amount
        tiles.append(
            CloseTile(
                label=TITLES[name],
                value=say.whole(sum(count for count, _ in own)),
                note=" + ".join(say.minor(amount, currency) for currency, amount in sums.items()) or "none",
                href=_href(name) or reverse("operator_transfers"),
                current=name == show,
            )
        )
    return tuple(tiles)


def _row(
    row: Transfer, hints: Sequence[Hint], undone: Sequence[Transfer], parts: Sequence[TransferPart]
) -> TransferRow:
    decided = f"{row.decided_by}, {say.moment(row.decided_at, UTC_ZONE)}" if row.decided_at else ""
    mays = [
        HintRow(
            value=hint.number,
            label=f"{hint.number} of {hint.tenant}",
            amount=say.minor(hint.left, hint.currency),
            why=hint.why,
        )
        for hint in hints
    ]
    mays += [
        HintRow(
            value=str(other.pk),
            label=f"{say.day(other.booked_on)}, {other.payer or 'no name'}",
            amount=amount_of(other),
            why=f"{other.get_state_display().lower()}, same amount",
        )
        for other in undone
    ]
    return TransferRow(
        pk=row.pk,
        amount=amount_of(row),
        out=row.amount < 0,
        day=say.day(row.booked_on),
        payer=row.payer or "No name",
        account=in_groups(row.payer_iban),
        text=row.text,
        name=row.bank_reference,
        badge=BADGES[TransferState(row.state)],
        why=row.why,
        decided=decided,
        hints=tuple(mays),
        parts=tuple(part_of(part, row.currency) for part in parts),
        waits=row.state == TransferState.WAITING,
        may_return=row.state in {TransferState.BOOKED, TransferState.ASIDE},
    )


def part_of(part: TransferPart, currency: str) -> PartRow:
    label = number = ""
    if part.payment is not None:
        label = number = part.payment.invoice.number or ""
    elif part.grant is not None:
        label = "Top-up of a wallet"
    else:
        label = "Credit"
    return PartRow(
        label=f"{label}, {part.tenant.name}",
        slug=part.tenant.slug,
        number=number,
        amount=say.minor(part.amount, currency),
        back=part.amount < 0,
    )


def _statements() -> tuple[StatementRow, ...]:
    return tuple(
        StatementRow(
            name=row.name,
            account=in_groups(row.account),
            file=row.file,
            opening=say.minor(row.opening, row.currency) if row.opening is not None else "not checked",
            closing=say.minor(row.closing, row.currency) if row.closing is not None else "not checked",
            entries=f"{say.whole(row.entries)}, {say.whole(row.new)} new",
            taken=f"{say.moment(row.imported_at, UTC_ZONE)} by {row.imported_by}",
        )
        for row in reading.statements()
    )


def amount_of(row: Transfer) -> str:
    return say.minor(row.amount, row.currency)
