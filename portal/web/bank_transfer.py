"""One bank transfer, to look at: what the bank said, what became of it when and by whom, and what it is booked on."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import Http404, HttpRequest, HttpResponse

from billing.models import Transfer, TransferState
from billing.queries import transfers as reading
from billing.rules.references import in_groups
from portal.web import format as say
from portal.web.access_decorators import answer, operator_page
from portal.web.shapes import Shell
from portal.web.shapes.transfers import StepRow, TransferPage
from portal.web.transfers import BADGES, UTC_ZONE, amount_of, part_of


@operator_page("transfers")
def one_transfer(request: HttpRequest, shell: Shell, *, transfer: int) -> HttpResponse:
    rows = Transfer.objects.select_related("statement", "undoes", "undone_by")
    row = rows.filter(pk=transfer).first() if transfer < 1 << 63 else None
    if row is None:
        raise Http404
    return answer(request, shell, _page(row), whole="operator/transfer.html")


def _page(row: Transfer) -> TransferPage:
    undone = getattr(row, "undone_by", None)
    other, sentence = row.undoes or undone, ""
    if other is not None:
        way = "It takes back" if row.undoes else "It was taken back by"
        sentence = f"{way} the transfer of {amount_of(other)} on {say.day(other.booked_on)}."
    return TransferPage(
        title=f"{amount_of(row)} on {say.day(row.booked_on)}",
        payer=row.payer or "No name",
        badge=BADGES[TransferState(row.state)],
        facts=tuple((label, text) for label, text in _facts(row) if text),
        raw=row.raw,
        steps=tuple(
            StepRow(when=say.moment(step.at, UTC_ZONE), badge=BADGES[step.state], by=step.by, why=step.why)
            for step in reading.steps(row)
        ),
        parts=tuple(part_of(part, row.currency) for part in reading.all_parts(row)),
        undoes=sentence,
        other=other.pk if other is not None else None,
    )


def _facts(row: Transfer) -> Iterator[tuple[str, str]]:
    yield "Paid by" if row.amount > 0 else "Paid to", row.payer
    yield "Their account", in_groups(row.payer_iban)
    yield "Text", " ".join(row.text.split())
    yield "Creditor reference", row.reference
    yield "Payer’s reference", row.end_to_end
    yield "Bank’s reference", row.bank_reference
    yield "Our account", in_groups(row.account)
    yield "Statement", f"{row.statement.name}, {row.statement.file}"
    yield "Taken in", f"{say.moment(row.statement.imported_at, UTC_ZONE)} by {row.statement.imported_by}"
