"""Wallets, what was granted and booked, and top-ups: to look at. Use cases alone write them."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.forms.models import BaseInlineFormSet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from billing.admin.amounts import money
from billing.models import (
    AutomaticTopUp,
    GrantRule,
    TopUp,
    Wallet,
    WalletEntry,
    WalletGrant,
    WalletHold,
    WalletScheme,
)
from portal.admin import ReadOnly, ReadOnlyInline, portal_page

NEWEST = 50  # rows beside a wallet; one that pays usage has hundreds of thousands


class NewestRows(BaseInlineFormSet[Any, Any, Any]):
    """No more of them than can be read."""

    def get_queryset(self) -> QuerySet[Any]:
        if not hasattr(self, "_newest"):
            self._newest = super().get_queryset()[:NEWEST]
        return self._newest


class RuleInline(ReadOnlyInline):
    model = GrantRule
    amount_text = money("amount", "amount", currency="scheme.unit")
    cap_text = money("cap", "fills up to", currency="scheme.unit")
    fields = ("amount_text", "every", "begins_at", "ends_at", "cap_text", "priority", "lasts_days")
    readonly_fields = ("amount_text", "cap_text")
    ordering = ("begins_at", "pk")


@admin.register(WalletScheme)
class WalletSchemeAdmin(ReadOnly[WalletScheme]):
    """The terms by which a tenant's wallets open and fill; the configuration file and the API set them."""

    overdraft_text = money("overdraft", "overdraft", currency="unit")

    list_display = ("tenant", "unit", "scope", "overdraft_text", "credits", "since")
    list_filter = ("unit", "scope", "tenant")
    list_select_related = ("tenant",)
    search_fields = ("tenant__slug", "tenant__name")
    ordering = ("tenant__slug", "unit")
    fields = ("tenant", "unit", "scope", "overdraft_text", "credits", "since")
    readonly_fields = ("overdraft_text",)
    inlines = (RuleInline,)


class GrantInline(ReadOnlyInline):
    model = WalletGrant
    formset = NewestRows
    verbose_name_plural = gettext_lazy("newest grants")
    amount_text = money("amount", "amount", currency="wallet.unit")
    left_text = money("left", "left", currency="wallet.unit")
    fields = (
        "kind",
        "amount_text",
        "left_text",
        "priority",
        "usable_from",
        "expires_on",
        "granted_by",
        "reason",
    )
    readonly_fields = ("amount_text", "left_text")
    ordering = ("-pk",)


class HoldInline(ReadOnlyInline):
    model = WalletHold
    formset = NewestRows
    verbose_name_plural = gettext_lazy("newest holds")
    amount_text = money("amount", "amount", currency="wallet.unit")
    fields = ("amount_text", "placed_at", "released_at")
    readonly_fields = ("amount_text",)
    ordering = ("-pk",)


class EntryInline(ReadOnlyInline):
    model = WalletEntry
    formset = NewestRows
    verbose_name_plural = gettext_lazy("newest entries")
    amount_text = money("amount", "amount", currency="wallet.unit")
    fields = ("at", "side", "amount_text", "day", "grant", "invoice", "memo")
    readonly_fields = ("amount_text",)
    ordering = ("-pk",)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        return super().get_queryset(request).select_related("wallet", "grant", "invoice")


@admin.register(Wallet)
class WalletAdmin(ReadOnly[Wallet]):
    view_on_site = portal_page("wallet", "tenant.slug", "pk")
    balance_text = money("balance", "balance", currency="unit")
    held_text = money("held", "held", currency="unit")

    list_display = ("__str__", "tenant", "unit", "balance_text", "held_text", "opened_at")
    list_filter = ("unit", "tenant")
    list_select_related = ("tenant", "project")
    search_fields = ("tenant__slug", "tenant__name", "project__name", "user")
    ordering = ("tenant__slug", "pk")
    fields = (
        *("tenant", "scheme", "project", "user", "unit", "opened_at", "balance_text", "held_text"),
        "all_entries",
    )
    readonly_fields = ("balance_text", "held_text", "all_entries")
    inlines = (GrantInline, HoldInline, EntryInline)

    @admin.display(description=gettext_lazy("entries"))
    def all_entries(self, wallet: Wallet) -> SafeString:
        address = reverse("admin:billing_walletentry_changelist")
        return format_html('<a href="{}?wallet__id__exact={}">{}</a>', address, wallet.pk, _("All entries"))


@admin.register(WalletGrant)
class WalletGrantAdmin(ReadOnly[WalletGrant]):
    view_on_site = portal_page("wallet", "tenant.slug", "wallet_id")
    amount_text = money("amount", "amount", currency="wallet.unit")
    left_text = money("left", "left", currency="wallet.unit")
    expired_text = money("expired", "expired", currency="wallet.unit")

    list_display = (
        *("key", "tenant", "wallet", "kind", "amount_text", "left_text", "expires_on", "granted_at"),
        *("granted_by", "reason"),
    )
    list_filter = ("kind", "tenant")
    list_select_related = ("tenant", "wallet__tenant", "wallet__project")
    search_fields = ("key", "tenant__slug")
    ordering = ("-pk",)
    fields = (
        *("tenant", "wallet", "kind", "rule", "key", "amount_text", "left_text", "expired_text", "priority"),
        *("usable_from", "expires_on", "gone_on", "granted_at", "granted_by", "reason"),
    )
    readonly_fields = ("amount_text", "left_text", "expired_text")


@admin.register(WalletEntry)
class WalletEntryAdmin(ReadOnly[WalletEntry]):
    """Both sides of each booking; they add up to zero."""

    view_on_site = portal_page("wallet", "tenant.slug", "wallet_id")
    amount_text = money("amount", "amount", currency="wallet.unit")

    list_display = ("at", "tenant", "wallet", "side", "amount_text", "day", "grant", "invoice", "memo")
    list_filter = ("side", "tenant")
    list_select_related = ("tenant", "wallet__tenant", "wallet__project", "grant", "invoice")
    search_fields = ("=booking",)
    ordering = ("-pk",)
    fields = (
        *("booking", "tenant", "wallet", "at", "side", "amount_text", "day", "grant", "invoice", "memo"),
    )
    readonly_fields = ("amount_text",)


@admin.register(TopUp)
class TopUpAdmin(ReadOnly[TopUp]):
    amount_text = money("amount", "amount", currency="wallet.unit")

    list_display = ("created_at", "tenant", "wallet", "amount_text", "requested_by")
    list_filter = ("tenant",)
    list_select_related = ("tenant", "wallet__tenant", "wallet__project")
    ordering = ("-created_at",)
    fields = ("tenant", "wallet", "amount_text", "created_at", "requested_by")
    readonly_fields = ("amount_text",)


@admin.register(AutomaticTopUp)
class AutomaticTopUpAdmin(ReadOnly[AutomaticTopUp]):
    threshold_text = money("threshold", "when less is left than", currency="wallet.unit")
    amount_text = money("amount", "top up by", currency="wallet.unit")
    limit_text = money("monthly_limit", "monthly limit", currency="wallet.unit")

    list_display = ("tenant", "wallet", "active", "threshold_text", "amount_text", "limit_text", "set_by")
    list_filter = ("active", "tenant")
    list_select_related = ("tenant", "wallet__tenant", "wallet__project")
    ordering = ("tenant__slug", "pk")
    fields = ("tenant", "wallet", "active", "threshold_text", "amount_text", "limit_text", "set_at", "set_by")
    readonly_fields = ("threshold_text", "amount_text", "limit_text")
