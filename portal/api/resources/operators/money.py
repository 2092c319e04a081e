"""What operators do with money: credit notes, write-offs, grants, payments by hand, pauses of dunning."""

from __future__ import annotations

from datetime import UTC, date
from typing import Any, ClassVar

from django.http import HttpResponse
from rest_framework import serializers

from billing.catalog import billing_periods
from billing.invoicing import credit_notes
from billing.models import DunningPause, GrantKind, Invoice
from billing.receivables import manual_payments, pauses, settlement, write_offs
from billing.rules.money import Money
from billing.wallets import grants
from billing.wallets.entries import WalletError
from portal.api import identifiers, parameters
from portal.api.answers import as_json
from portal.api.bodies import Body
from portal.api.fields import DayField, MomentField, MoneyField, minor, money
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import WritingEndpoint, invoice_of, tenant_of
from portal.api.resources.wallets import GrantSerializer, WalletEndpoint

REASON = 500  # characters


class BalanceSerializer(serializers.Serializer[Any]):
    """How an invoice stands afterwards. The fields are those of the command's `--json`."""

    invoice = serializers.CharField(help_text="Number.")
    from_wallet = MoneyField()
    paid = MoneyField()
    credited = MoneyField(help_text="By credit notes.")
    written_off = MoneyField()
    due = MoneyField(help_text="Below zero: it is to be given back.")
    status = serializers.CharField()


def balance_data(invoice: Invoice, on: date) -> dict[str, Any]:
    """As `BalanceSerializer` has it."""
    balance = settlement.load_balance(invoice=invoice, on=on)
    sums = ("from_wallet", "paid", "credited", "written_off", "due")
    return {
        "invoice": str(invoice.number),
        **{name: money(getattr(balance, name)) for name in sums},
        "status": balance.settlement.value,
    }


class MoneyEndpoint(WritingEndpoint):
    """It moves money or issues a document: it needs an Idempotency-Key, and can be previewed."""

    needs_idempotency = True
    request: Any

    def today(self, invoice: Invoice) -> date:
        """Where the invoice was issued."""
        return billing_periods.day_of(self.moment, invoice.period)

    def not_later(self, on: date, today: date) -> None:
        if on > today:
            sentence = f"on lies in the future: it is {today} there."
            raise bad_request(sentence, ("/on", sentence))


class NewCreditNote(Body):
    reason = serializers.CharField(
        max_length=REASON, allow_blank=True, help_text="It stands on the credit note."
    )
    net = MoneyField(required=False, help_text="Before tax; all that is left of it unless said.")
    line = serializers.IntegerField(
        required=False, min_value=1, max_value=10**6, help_text="Of this line alone."
    )
    on = DayField(required=False, help_text="The day of the credit note; today.")


class CreditNoteSerializer(BalanceSerializer):
    """The credit note, and how its invoice stands. The fields are those of `credit_invoice --json`."""

    credit_note = serializers.CharField(
        allow_null=True, help_text="Its number; null in a preview, which uses none."
    )
    total = MoneyField(help_text="Of the credit note, with tax: below zero.")


class CreditNotes(MoneyEndpoint):
    """Issue a credit note for an issued invoice: for all that is left of it, for one line, or for an amount."""

    write_scope = "credits:write"
    serializer = CreditNoteSerializer
    request_serializer = NewCreditNote
    refusals = (credit_notes.CreditError,)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice, values = invoice_of(name), self.body()
        today = self.today(invoice)
        on = values.get("on", today)
        self.not_later(on, today)
        with self.by(values["reason"]):
            note = credit_notes.issue_credit_note(
                invoice=invoice,
                reason=values["reason"],
                by=self.client.name,
                on=on,
                net=values.get("net"),
                position=values.get("line"),
                moment=self.moment,
            )
        number = None if self.query["dry_run"] else note.number
        total = minor(note.total, note.currency)
        return as_json({"credit_note": number, "total": total, **balance_data(invoice, today)}, status=201)


class NewWriteOff(Body):
    reason = serializers.CharField(max_length=REASON, allow_blank=True, help_text="Kept in the history.")
    take_back = serializers.BooleanField(
        required=False, default=False, help_text="Have what is written off due again instead."
    )


class WriteOffs(MoneyEndpoint):
    """Give up what an issued invoice has due, or take that back."""

    write_scope = "credits:write"
    serializer = BalanceSerializer
    request_serializer = NewWriteOff
    refusals = (write_offs.WriteOffError,)

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice, values = invoice_of(name), self.body()
        today, reason, by = self.today(invoice), values["reason"], self.client.name
        with self.by(reason):
            if values["take_back"]:
                write_offs.reverse_write_off(invoice=invoice, reason=reason, by=by, moment=self.moment)
            else:
                write_offs.write_off_invoice(invoice=invoice, reason=reason, by=by, on=today)
        return as_json(balance_data(invoice, today), status=201)


class NewTransfer(Body):
    amount = MoneyField(help_text="In the invoice's currency; below zero takes one back.")
    reference = serializers.CharField(max_length=200, help_text="As on the bank statement.")
    on = DayField(required=False, help_text="The day it arrived; today.")


class TransferSerializer(BalanceSerializer):
    """The payment, and how its invoice stands. The fields are those of `record_payment --json`."""

    payment = serializers.CharField(help_text="Id of the payment.")
    amount = MoneyField()
    to_credit = MoneyField(help_text="What went to the tenant's credit balance; below zero: came from there.")


class ManualPayments(MoneyEndpoint):
    """Record a bank transfer for an issued invoice. The same transfer again changes nothing."""

    write_scope = "payments:record"
    serializer = TransferSerializer
    request_serializer = NewTransfer
    refusals = manual_payments.REFUSALS

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        invoice, values = invoice_of(name), self.body()
        today = self.moment.astimezone(UTC).date()
        transfer = manual_payments.record_transfer(
            invoice=invoice,
            amount=values["amount"],
            received_on=values.get("on", today),
            reference=values["reference"],
            recorded_by=self.client.name,
            at=self.moment,
        )
        data = {
            "payment": identifiers.write("pay", transfer.payment.pk),
            "amount": money(values["amount"]),
            "to_credit": money(transfer.to_credit),
        }
        return as_json(data | balance_data(invoice, today), status=201)


class NewGrant(Body):
    amount = MoneyField(help_text="In the wallet's unit.")
    reference = serializers.CharField(max_length=200, help_text="What it is given for; given once under it.")
    why = serializers.CharField(required=False, default="", allow_blank=True, max_length=REASON)
    expires = DayField(required=False, help_text="The first day that it does not pay for.")
    top_up = serializers.BooleanField(
        required=False, default=False, help_text="It was paid for, rather than given away."
    )


class WalletStateSerializer(serializers.Serializer[Any]):
    """How the wallet stands. The fields are those of `grant_credit --json`."""

    tenant = serializers.CharField()
    owner = serializers.CharField(help_text="A project or a scheduler's user; empty: the tenant.")
    unit = serializers.CharField()
    balance = MoneyField()
    held = MoneyField()
    overdraft = MoneyField()


class Grants(WalletEndpoint, MoneyEndpoint):
    """What was given to a wallet, the newest first. POST gives it credit, once under each reference."""

    write_scope = "credits:write"
    serializer = GrantSerializer
    created_serializer = WalletStateSerializer
    request_serializer = NewGrant
    refusals = (WalletError,)
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.flag("left", "Only those of which something is left."),
        *parameters.LISTS,
    )

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = self.wallet(name).grants.all()
        return self.page(rows.filter(left__gt=0) if self.query["left"] else rows, order=("-pk",))

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        wallet, values = self.wallet(name), self.body()
        amount: Money = values["amount"]
        if amount.currency != wallet.unit:
            sentence = f"The wallet holds {wallet.unit}."
            raise bad_request(sentence, ("/amount/currency", sentence))
        with self.by(values["why"]):
            grants.grant(
                wallet=wallet,
                amount=amount.minor,
                key=values["reference"],
                who=self.client.name,
                why=values["why"],
                moment=self.moment.replace(microsecond=0),
                kind=GrantKind.TOP_UP if values["top_up"] else GrantKind.GIFT,
                expires_on=values.get("expires"),
            )
        wallet = self.wallet(name)
        data = {
            "tenant": wallet.tenant.slug,
            "owner": wallet.user or (wallet.project.name if wallet.project else ""),
            "unit": wallet.unit,
            "balance": minor(wallet.balance, wallet.unit),
            "held": minor(wallet.held, wallet.unit),
            "overdraft": minor(wallet.scheme.overdraft, wallet.unit),
        }
        return as_json(data, status=201)


class PauseSerializer(serializers.ModelSerializer[DunningPause]):
    """That nothing is charged, written or suspended meanwhile. The fields are those of `pause_dunning --json`."""

    tenant = serializers.CharField(source="tenant.slug")
    invoice = serializers.CharField(
        source="invoice.number", default=None, allow_null=True, help_text="Null: all of them."
    )
    why = serializers.CharField(source="reason")
    since = MomentField()

    class Meta:
        model = DunningPause
        fields = ("tenant", "invoice", "until", "why", "by", "since")


class NewPause(Body):
    invoice = serializers.CharField(required=False, allow_null=True, help_text="Number; null: all of them.")
    until = DayField(required=False, allow_null=True, help_text="Null: until it is resumed.")
    why = serializers.CharField(max_length=REASON, allow_blank=True, help_text="Kept with the pause.")


class Pauses(WritingEndpoint):
    """Pauses of dunning that hold. POST lets the tenant's invoices rest, or one; DELETE goes on."""

    write_scope = "payments:record"
    serializer = PauseSerializer
    request_serializer = NewPause
    refusals = (pauses.PauseError,)
    lists = True
    write_parameters: ClassVar = (
        parameters.DRY_RUN,
        parameters.text("invoice", "With DELETE: number of the invoice that is resumed.", many=False),
    )
    parameters = parameters.LISTS

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        rows = DunningPause.objects.filter(tenant=tenant_of(name), ended_at=None)
        return self.page(rows.select_related("tenant", "invoice"), order=("-pk",))

    def invoice(self, name: str, number: str | None) -> Invoice | None:
        if not number:
            return None
        invoice = invoice_of(number)
        if invoice.tenant.slug != name:
            raise not_found()
        return invoice

    def post(self, request: Any, name: str) -> HttpResponse:
        del request
        values = self.body()
        tenant, invoice = tenant_of(name), self.invoice(name, values.get("invoice"))
        with self.by(values["why"]):
            row = pauses.pause_dunning(
                tenant=tenant,
                invoice=invoice,
                until=values.get("until"),
                reason=values["why"],
                by=self.client.name,
                moment=self.moment,
            )
        return self.one(row, status=201)

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        tenant, invoice = tenant_of(name), self.invoice(name, self.query["invoice"])
        if not pauses.resume_dunning(tenant=tenant, invoice=invoice, by=self.client.name, moment=self.moment):
            raise not_found()
        return HttpResponse(status=204)
