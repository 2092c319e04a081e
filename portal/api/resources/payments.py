"""Payments that came, and wallets with what was booked on them."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import EntrySide, Payment, Wallet, WalletEntry
from portal.api import identifiers, parameters
from portal.api.fields import IdField, MomentField, minor
from portal.api.problems import not_found
from portal.api.views import TenantEndpoint


class PaymentSerializer(serializers.ModelSerializer[Payment]):
    """Money that was booked on an invoice; below zero, money that went back."""

    id = IdField("pay")
    tenant = serializers.CharField(source="tenant.slug")
    invoice = serializers.CharField(source="invoice.number")
    amount = serializers.SerializerMethodField()

    class Meta:
        model = Payment
        fields = ("id", "tenant", "invoice", "amount", "received_on", "reference")

    def get_amount(self, payment: Payment) -> dict[str, str]:
        return minor(payment.amount, payment.invoice.currency)


class Payments(TenantEndpoint):
    """What was paid, the newest first."""

    scope = "invoices:read"
    whole_tenant = True
    serializer = PaymentSerializer
    lists = True
    parameters = (
        parameters.TENANT,
        parameters.text("invoice", "Number of an invoice.", longest=40, example="INV-2026-0001"),
        parameters.day("received_from", "Received on this day or later."),
        parameters.day("received_to", "Received before this day."),
        *parameters.LISTS,
    )

    def get(self, request: Any) -> HttpResponse:
        del request
        rows, query = self.of_tenant(Payment.objects.select_related("tenant", "invoice")), self.query
        if query["invoice"]:
            rows = rows.filter(invoice__number__in=query["invoice"])
        if query["received_from"]:
            rows = rows.filter(received_on__gte=query["received_from"])
        if query["received_to"]:
            rows = rows.filter(received_on__lt=query["received_to"])
        return self.page(rows, order=("-received_on", "-pk"))


class WalletSerializer(serializers.ModelSerializer[Wallet]):
    """A prepaid balance: of a tenant, a project or a user."""

    id = IdField("wal")
    tenant = serializers.CharField(source="tenant.slug")
    project = serializers.CharField(source="project.name", default=None, allow_null=True)
    user = serializers.CharField(help_text="Empty: it is not one user's.")
    unit = serializers.CharField(help_text="A currency, or TOK for tokens.")
    balance = serializers.SerializerMethodField(help_text="What may be spent, and what is on hold.")
    on_hold = serializers.SerializerMethodField(help_text="Set aside for admitted work.")
    opened_at = MomentField()

    class Meta:
        model = Wallet
        fields = ("id", "tenant", "project", "user", "unit", "balance", "on_hold", "opened_at")

    def get_balance(self, wallet: Wallet) -> dict[str, str]:
        return minor(wallet.balance, wallet.unit)

    def get_on_hold(self, wallet: Wallet) -> dict[str, str]:
        return minor(wallet.held, wallet.unit)


class WalletEntrySerializer(serializers.ModelSerializer[WalletEntry]):
    """One movement of a wallet: the entries of a booking add up to what its balance moved by."""

    id = IdField("ent")
    amount = serializers.SerializerMethodField(help_text="Signed.")
    at = MomentField()
    booking = serializers.CharField(help_text="The same for all entries that were booked together.")

    class Meta:
        model = WalletEntry
        fields = ("id", "booking", "side", "amount", "day", "at", "memo")

    def get_amount(self, entry: WalletEntry) -> dict[str, str]:
        return minor(entry.amount, self.context["unit"])


class WalletEndpoint(TenantEndpoint):
    scope = "wallets:read"

    def wallets(self) -> Any:
        rows = self.of_tenant(Wallet.objects.select_related("tenant", "project"))
        project = self.client.key.project_id
        return rows.filter(project=project) if project is not None else rows


class Wallets(WalletEndpoint):
    """The wallets, in the order of their opening."""

    serializer = WalletSerializer
    lists = True
    parameters = (parameters.TENANT, *parameters.LISTS)

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.wallets(), order=("pk",))


class WalletEntries(WalletEndpoint):
    """What was booked on a wallet, the newest first."""

    serializer = WalletEntrySerializer
    lists = True
    parameters = (parameters.TENANT, *parameters.LISTS)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        wallet = self.wallets().filter(pk=identifiers.read("wal", name)).first()
        if wallet is None:
            raise not_found()
        rows = WalletEntry.objects.filter(wallet=wallet, side=EntrySide.BALANCE)
        return self.page(rows, order=("-pk",), unit=wallet.unit)
