"""One bank transfer: the bank's entry, what it is booked on, and its history."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import Http404, HttpRequest, HttpResponse
from django.utils.translation import gettext as _

from billing.models import Transfer, TransferState
from billing.queries import transfers as reading
from billing.rules.references import in_groups
from portal.web.access_decorators import answer, operator_page
from portal.web.page_frame import PageFrame
from portal.web.templatetags.clustertab import moment
from portal.web.transfers import BADGES


@operator_page("transfers")
def one_transfer(request: HttpRequest, frame: PageFrame, *, transfer: int) -> HttpResponse:
    rows = Transfer.objects.select_related("statement", "undoes", "undone_by")
    row = rows.filter(pk=transfer).first() if transfer < 1 << 63 else None
    if row is None:
        raise Http404
    return answer(request, frame, _page(row), whole="operator/transfer.html")


def _page(row: Transfer) -> dict[str, object]:
    undone = getattr(row, "undone_by", None)
    return {
        "transfer": row,
        "badge": BADGES[TransferState(row.state)],
        "facts": [(label, text) for label, text in _facts(row) if text],
        "steps": [(step, BADGES[step.state]) for step in reading.steps(row)],
        "parts": reading.all_parts(row),
        "other": row.undoes or undone,
    }


def _facts(row: Transfer) -> Iterator[tuple[str, str]]:
    yield _("Paid by") if row.amount > 0 else _("Paid to"), row.payer
    yield _("Payer’s account") if row.amount > 0 else _("Payee’s account"), in_groups(row.payer_iban)
    yield _("Text"), " ".join(row.text.split())
    yield _("Creditor reference"), row.reference
    yield _("Payer’s reference"), row.end_to_end
    yield _("Bank’s reference"), row.bank_reference
    yield _("Our account"), in_groups(row.account)
    yield _("Statement"), f"{row.statement.name}, {row.statement.file}"
    imported = _("{at} by {by}")
    yield _("Imported"), imported.format(at=moment(row.statement.imported_at), by=row.statement.imported_by)
