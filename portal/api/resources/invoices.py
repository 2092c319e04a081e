"""Invoices with their lines, and the documents that belong to them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from tempfile import SpooledTemporaryFile
from typing import Any

from django.http import FileResponse, HttpResponse, HttpResponseBase
from rest_framework import serializers

from billing.documents import evidence
from billing.models import DocumentKind, Invoice, InvoiceLine, InvoiceState, Payment
from billing.queries import invoices as queries
from billing.queries import line_usage
from billing.receivables.settlement import Settlement, compute_balance
from portal.api import expansion, identifiers, parameters
from portal.api.cursors import Page
from portal.api.expansion import Expansion, by_owner
from portal.api.fields import IdField, MinorField, MomentField, MoneyField, QuantityField, minor
from portal.api.problems import ProblemError, not_found
from portal.api.resources.payments import PaymentSerializer
from portal.api.views import TenantEndpoint
from portal.core.tenants.scope import tenant_scope
from portal.sentences import sentence

IN_MEMORY = 1 << 20  # bytes of a file, before it goes to disk
SHOWN = (InvoiceState.ISSUED, InvoiceState.VOID)


class PeriodSerializer(serializers.Serializer[Invoice]):
    """Half-open: `from` belongs to it, `to` to what follows."""

    timezone = serializers.CharField(help_text="IANA zone in which the borders were chosen.")

    def get_fields(self) -> dict[str, Any]:
        borders = {"from": MomentField(source="period_start"), "to": MomentField(source="period_end")}
        return borders | super().get_fields()  # `from` is a word of Python


class InvoiceSerializer(serializers.ModelSerializer[Invoice]):
    """An issued or void invoice, or a credit note."""

    id = IdField("inv")
    number = serializers.CharField()
    tenant = serializers.CharField(source="tenant.slug")
    settlement = serializers.ChoiceField(
        choices=[member.value for member in Settlement],
        source="stand.settlement",
        help_text="How its payment stands.",
    )
    period = PeriodSerializer(source="*")
    original = serializers.CharField(
        source="original.number",
        default=None,
        allow_null=True,
        help_text="Number of the invoice that a credit note takes back from.",
    )
    subtotal = MinorField("subtotal", help_text="Before tax.")
    tax = MinorField("tax")
    total = MinorField("total", help_text="= from_wallet + paid + credited + written_off + due.")
    from_wallet = MoneyField(
        source="stand.from_wallet",
        help_text="What a wallet paid at issue, less what credit notes gave back to it.",
    )
    paid = MoneyField(source="stand.paid", help_text="Payments, less what was paid back.")
    credited = MoneyField(
        source="stand.credited", help_text="By credit notes; of a credit note its own total."
    )
    written_off = MoneyField(
        source="stand.written_off", help_text="Given up, less what was paid or credited later."
    )
    due = MoneyField(source="stand.due", help_text="Below zero: it is to be given back.")

    class Meta:
        model = Invoice
        fields = (
            *(
                "id",
                "number",
                "tenant",
                "kind",
                "state",
                "settlement",
                "period",
                "issued_on",
                "due_on",
                "original",
            ),
            *("subtotal", "tax", "total", "from_wallet", "paid", "credited", "written_off", "due"),
        )


class LineSerializer(serializers.ModelSerializer[InvoiceLine]):
    """What one line charges: seconds ÷ 3600 × unit price, rounded once, where it has a unit price."""

    id = IdField("line")
    meter = serializers.CharField()
    seconds = serializers.SerializerMethodField(
        help_text="Resource-seconds, an exact fraction such as 115237 or 50/7."
    )
    unit_price = QuantityField(
        allow_null=True, help_text="Null where a table of tiers or a flat amount applies."
    )
    amount = serializers.SerializerMethodField()
    tax_rate = QuantityField(help_text="Per cent.")

    class Meta:
        model = InvoiceLine
        fields = (
            *("id", "position", "kind", "project", "meter", "description", "seconds", "unit", "unit_price"),
            *("amount", "correction", "tax_category", "tax_rate"),
        )

    def get_seconds(self, line: InvoiceLine) -> str:
        whole = f"{line.seconds_num:f}"
        return whole if line.seconds_den == 1 else f"{whole}/{line.seconds_den}"

    def get_amount(self, line: InvoiceLine) -> dict[str, str]:
        return minor(line.amount, line.invoice.currency)


class InvoiceEndpoint(TenantEndpoint):
    """What hangs from one invoice, found by its id or its number."""

    scope = "invoices:read"
    whole_tenant = True

    def visible(self) -> Any:
        rows = self.of_tenant(Invoice.objects.filter(state__in=SHOWN))
        return rows.select_related("tenant", "original")

    def invoice(self, name: str) -> Invoice:
        """Raises ProblemError 404, also for a draft and for another tenant's."""
        rows = self.visible()
        matching = (
            rows.filter(pk=identifiers.read("inv", name))
            if name.startswith("inv_")
            else rows.filter(number=name)
        )
        invoice: Invoice | None = matching.first()
        if invoice is None:
            raise not_found()
        return invoice

    def with_balances(self, rows: Iterable[Any]) -> list[Any]:
        return with_balances(rows, self.moment)


def with_balances(rows: Iterable[Any], moment: datetime) -> list[Any]:
    """How the payment of each stands, in its tenant's zone."""
    for row in rows:
        row.stand = compute_balance(invoice=row, on=moment.astimezone(row.tenant.zone).date())
    return list(rows)


def _lines(view: Any, invoices: Sequence[Any]) -> Mapping[Any, Sequence[Any]]:
    del view
    rows = InvoiceLine.objects.filter(invoice__in=invoices).order_by("invoice", "position")
    return by_owner(rows[: expansion.MOST + 1], invoices, "invoice")


def _payments(view: Any, invoices: Sequence[Any]) -> Mapping[Any, Sequence[Any]]:
    del view
    rows = Payment.objects.filter(invoice__in=invoices).select_related("tenant")
    return by_owner(rows.order_by("-received_on", "-pk")[: expansion.MOST + 1], invoices, "invoice")


def _credit_notes(view: Any, invoices: Sequence[Any]) -> Mapping[Any, Sequence[Any]]:
    rows = Invoice.objects.filter(original__in=invoices, state__in=SHOWN).select_related("tenant")
    notes = rows.with_balance().order_by("pk")[: expansion.MOST + 1]
    return by_owner(with_balances(notes, view.moment), invoices, "original")


LINES = Expansion(LineSerializer, _lines)
EXPANSIONS: Mapping[str, Expansion] = {
    "lines": LINES,
    "payments": Expansion(PaymentSerializer, _payments),
    "credit_notes": Expansion(InvoiceSerializer, _credit_notes, {"lines": LINES}),
}


class Invoices(InvoiceEndpoint):
    """The issued and void invoices and the credit notes, the newest period first."""

    serializer = InvoiceSerializer
    lists = True
    expansions = EXPANSIONS
    parameters = (
        parameters.TENANT,
        expansion.parameter(EXPANSIONS),
        parameters.text("number", "The document's number.", longest=40, example="INV-2026-0001"),
        parameters.choice("kind", [member.value for member in DocumentKind], "Which documents."),
        parameters.choice("state", [member.value for member in SHOWN], "Issued or void."),
        parameters.day("issued_from", "Issued on this day or later."),
        parameters.day("issued_to", "Issued before this day."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows, query = self.visible(), self.query
        for name in ("number", "kind", "state"):
            if query[name]:
                rows = rows.filter(**{f"{name}__in": query[name]})
        if query["issued_from"]:
            rows = rows.filter(issued_on__gte=query["issued_from"])
        if query["issued_to"]:
            rows = rows.filter(issued_on__lt=query["issued_to"])
        return self.page(rows.with_balance(), order=("-period_start", "-pk"))

    def prepared(self, page: Page[Any]) -> list[Any]:
        return self.with_balances(page.rows)


class OneInvoice(InvoiceEndpoint):
    """One document, by its id or number."""

    serializer = InvoiceSerializer
    expansions = EXPANSIONS
    parameters = (parameters.TENANT, expansion.parameter(EXPANSIONS))

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice = self.invoice(name)
        rows = self.visible().filter(pk=invoice.pk).with_balance()
        return self.one(self.with_balances(rows)[0])


class Lines(InvoiceEndpoint):
    """The lines of a document, in their order."""

    serializer = LineSerializer
    lists = True
    parameters = (parameters.TENANT, *parameters.LISTS)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice = self.invoice(name)
        return self.page(invoice.lines.all(), order=("position", "pk"))


class Document(InvoiceEndpoint):
    """A file of a document: the very bytes of the portal. 409 with Retry-After while it is not rendered."""

    parameters = (parameters.TENANT,)
    content_type = "application/octet-stream"

    def file(self, name: str, content: bytes | None, content_type: str) -> HttpResponse:
        if content is None:
            raise _not_ready()
        disposition = f'attachment; filename="{name}"'
        return HttpResponse(content, content_type=content_type, headers={"Content-Disposition": disposition})

    def within(self, invoice: Invoice) -> AbstractContextManager[None]:
        """An operator's key has no scope, and rows of dropped months are read in their tenant's alone."""
        return tenant_scope(invoice.tenant) if self.client.tenant is None else nullcontext()

    def stream(self, invoice: Invoice, pieces: Iterable[bytes], suffix: str) -> HttpResponseBase:
        """Read whole before it is sent: a slow reader holds neither a transaction nor a connection."""
        file = SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115 - closed with the answer
        for piece in pieces:
            file.write(piece)
        file.seek(0)
        name = f"{invoice.number}{suffix}"
        return FileResponse(file, as_attachment=True, filename=name, content_type=self.content_type)


class Pdf(Document):
    """The document as PDF."""

    content_type = "application/pdf"

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice = self.invoice(name)
        return self.file(f"{invoice.number}.pdf", queries.document(invoice), self.content_type)


class EInvoice(Document):
    """The document as EN 16931 states it, in CII."""

    content_type = "application/xml"

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice = self.invoice(name)
        content = queries.einvoice(invoice)
        if content is None and queries.document(invoice) is not None:
            raise not_found()
        return self.file(f"{invoice.number}.xml", content, self.content_type)


class JobsCsv(Document):
    """The jobs behind each line, as CSV."""

    content_type = "text/csv; charset=utf-8"

    def get(self, request: Any, name: str) -> HttpResponseBase:
        del request
        invoice = self.invoice(name)
        lines = list(invoice.lines.select_related("service_period").order_by("position"))
        with self.within(invoice):
            return self.stream(invoice, line_usage.as_csv(invoice, lines), ".csv")


class Evidence(Document):
    """All that it takes to compute the document again, and the program that does: a ZIP."""

    content_type = "application/zip"

    def get(self, request: Any, name: str) -> HttpResponseBase:
        del request
        invoice = self.invoice(name)
        try:
            with self.within(invoice):
                return self.stream(invoice, evidence.bundle(invoice), "-evidence.zip")
        except evidence.NotReadyError:
            raise _not_ready() from None
        except evidence.EvidenceError as error:
            raise ProblemError(
                409, "evidence-differs", "The evidence cannot be given", sentence(error)
            ) from None


def _not_ready() -> ProblemError:
    detail = "The document is being rendered; ask again in a few seconds."
    return ProblemError(409, "not-ready", "It is not ready yet", detail, headers={"Retry-After": "5"})


FILES: dict[str, Callable[..., Any]] = {
    "pdf": Pdf.as_view(),
    "einvoice.xml": EInvoice.as_view(),
    "jobs.csv": JobsCsv.as_view(),
    "evidence.zip": Evidence.as_view(),
}
