"""What an operator does to an issued invoice: credit it, write it off, have it due again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from django.http import Http404, HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.translation import gettext as _

from billing.catalog import billing_periods
from billing.invoicing import credit_note_previews, credit_notes
from billing.invoicing.credit_notes import CreditError
from billing.models import Invoice, InvoiceState
from billing.receivables import write_offs
from billing.receivables.write_offs import WriteOffError
from billing.rules.money import Money
from portal.core.tenants.access import Right
from portal.web import acts
from portal.web import format as say
from portal.web.access_decorators import operator_page
from portal.web.acts import Act, ActError, Field, Preview, Values
from portal.web.form_input import Option
from portal.web.page_frame import PageFrame

WHOLE = "0"  # of the field `line`


@operator_page("tenants", acts=Right.CREDITS)
def credit_invoice(request: HttpRequest, frame: PageFrame, *, tenant: str, number: str) -> HttpResponse:
    """For all that is left of it, one line, or an amount before tax."""
    invoice, now = _invoice(tenant, number), datetime.now(UTC)
    today = billing_periods.day_of(now, invoice.period)

    def preview(values: Values) -> Preview:
        _reason(values)
        seen = credit_note_previews.preview_credit(
            invoice=invoice, on=today, moment=now, net=_net(values, invoice), position=_line(values)
        )
        notes = Invoice.objects.filter(original=invoice).count()  # one more of the same amount reads alike
        return Preview([seen.sentence], key=str(notes))

    def carry_out(values: Values) -> str:
        note = credit_notes.issue_credit_note(
            invoice=invoice,
            reason=_reason(values),
            by=str(request.user),
            on=today,
            net=_net(values, invoice),
            position=_line(values),
            moment=now,
        )
        return _("{invoice} is credited by {note}.").format(invoice=invoice, note=note)

    lines = [
        Option(
            value=str(line.position),
            label=f"{line.position}. {line.description}, {say.minor(line.amount, invoice.currency)}",
        )
        for line in invoice.lines.order_by("position")
    ]
    fields = [
        Field(
            name="line",
            label=_("What is credited"),
            kind="select",
            options=[Option(value=WHOLE, label=_("The whole invoice")), *lines],
        ),
        Field(
            name="net",
            label=_("Amount before tax ({currency})").format(currency=invoice.currency),
            kind="number",
            hint=_(
                "Blank = all that is left of it. Over the whole invoice, an amount is shared by its lines."
            ),
        ),
        _why(_("It stands on the credit note.")),
    ]
    title = _("Credit {invoice}").format(invoice=invoice)
    act = _act(
        invoice, title, _("Issue credit note"), fields, preview, carry_out, (CreditError,), Right.CREDITS
    )
    return acts.conduct(request, frame, act)


@operator_page("tenants", acts=Right.CREDITS)
def write_off(request: HttpRequest, frame: PageFrame, *, tenant: str, number: str) -> HttpResponse:
    """All that it has due."""
    invoice, now = _invoice(tenant, number), datetime.now(UTC)
    today = billing_periods.day_of(now, invoice.period)

    def preview(values: Values) -> Sequence[str]:
        return acts.undone(
            lambda: write_offs.write_off_invoice(
                invoice=invoice, reason=_reason(values), by="preview", on=today
            ),
            write_offs.describe_effect(invoice, on=today),
        )

    def carry_out(values: Values) -> str:
        row = write_offs.write_off_invoice(
            invoice=invoice, reason=_reason(values), by=str(request.user), on=today
        )
        amount = say.minor(row.amount, invoice.currency)
        return _("{amount} of {invoice} written off.").format(amount=amount, invoice=invoice)

    title = _("Write off {invoice}").format(invoice=invoice)
    fields = [_why(_("Kept in the history. Money that comes later counts before it."))]
    return acts.conduct(
        request,
        frame,
        _act(invoice, title, _("Write off"), fields, preview, carry_out, (WriteOffError,), Right.CREDITS),
    )


@operator_page("tenants", acts=Right.CREDITS)
def reverse_write_off(request: HttpRequest, frame: PageFrame, *, tenant: str, number: str) -> HttpResponse:
    """Have it due again."""
    invoice, now = _invoice(tenant, number), datetime.now(UTC)

    def reverse_it(values: Values, by: str) -> None:
        write_offs.reverse_write_off(invoice=invoice, reason=_reason(values), by=by, moment=now)

    def carry_out(values: Values) -> str:
        reverse_it(values, str(request.user))
        return _("{invoice} is due again.").format(invoice=invoice)

    title = _("Reverse the write-off of {invoice}").format(invoice=invoice)
    act = _act(
        invoice,
        title,
        _("Reverse write-off"),
        [_why(_("Kept in the history."))],
        lambda values: acts.undone(
            lambda: reverse_it(values, "preview"), write_offs.describe_reversal(invoice)
        ),
        carry_out,
        (WriteOffError,),
        Right.CREDITS,
    )
    return acts.conduct(request, frame, act)


def _invoice(slug: str, number: str) -> Invoice:
    rows = Invoice.objects.select_related("tenant", "period").exclude(state=InvoiceState.DRAFT)
    invoice = rows.filter(tenant__slug=slug, number=number).first()
    if invoice is None:
        raise Http404("no such invoice")
    return invoice


def _act(
    invoice: Invoice,
    title: str,
    button: str,
    fields: Sequence[Field],
    preview: Callable[[Values], Preview | Sequence[str]],
    carry_out: Callable[[Values], str],
    refusals: tuple[type[Exception], ...],
    right: Right,
) -> Act:
    return Act(
        title=title,
        button=button,
        lead=invoice.tenant.name,
        right=right,
        fields=fields,
        preview=preview,
        carry_out=carry_out,
        refusals=refusals,
        back=reverse("invoice", args=[invoice.tenant.slug, invoice.number]),
        back_label=str(invoice),
        needs_proof=True,
    )


def _why(hint: str) -> Field:
    return Field(name="why", label=_("Reason"), required=True, hint=hint)


def _reason(values: Values) -> str:
    if not values["why"]:
        raise ActError(_("Give a reason: it stays in the history."))
    return values["why"]


def _line(values: Values) -> int | None:
    text = values["line"]
    if text in {"", WHOLE}:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 7):
        raise ActError(_("Choose a line of the invoice."))
    return int(text)


def _net(values: Values, invoice: Invoice) -> Money | None:
    return acts.amount(values["net"], invoice.currency) if values["net"] else None
