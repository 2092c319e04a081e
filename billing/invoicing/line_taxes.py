"""How lines are taxed, and what a document's taxes come to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from django.db.models import Q, Sum
from django.db.models.functions import Coalesce
from django.utils.translation import gettext as _

from billing.catalog import billing_periods
from billing.documents import vat_ids
from billing.models import (
    BillingPeriod,
    Invoice,
    InvoiceLine,
    InvoiceState,
    InvoiceTax,
    Seller,
    TaxCategory,
    TaxRate,
)
from billing.rules import supply
from billing.rules import tax as rules
from billing.rules.money import Money
from billing.rules.supply import Party, Rate, Rates, TaxError
from billing.rules.tax import Tax, TaxRow
from portal.core.tenants.models import TaxTreatment, Tenant

__all__ = ["TaxError", "Taxes", "load_taxes"]


@dataclass(frozen=True)
class Taxes:
    """How some tenants are taxed by their seller."""

    seller: Party
    rates: Rates = field(default_factory=lambda: Rates([]))

    def of(self, tenant: Tenant, supplied: BillingPeriod) -> Tax:
        """How what the tenant used in that service period is taxed: by the rates of the period's last day.

        Raises TaxError.
        """
        if not tenant.tax_treatment:
            return Tax(TaxCategory.STANDARD if tenant.tax_rate else TaxCategory.ZERO, tenant.tax_rate)
        if refusal := self.refusal(tenant):
            raise TaxError("tax-unknown", tenant=tenant.slug, cause=refusal)
        if tenant.tax_treatment != TaxTreatment.BY_COUNTRY:
            return Tax(STATED[tenant.tax_treatment], supply.NOTHING)
        try:
            return supply.taxed_by_country(
                seller=self.seller,
                buyer=_make_buyer(tenant),
                category=tenant.tax_category,
                on=date_of_supply(supplied),
                rates=self.rates,
            )
        except TaxError as error:
            raise TaxError("tax-unknown", tenant=tenant.slug, cause=error) from error

    def reverses(self, tenant: Tenant) -> bool:
        """Whether it is taxed by reverse charge, for which its VAT id has to be a valid one."""
        by_vat_id = tenant.tax_treatment in {TaxTreatment.BY_COUNTRY, TaxTreatment.REVERSE_CHARGE}
        return by_vat_id and supply.may_reverse_charge(self.seller, _make_buyer(tenant))

    def refusal(self, tenant: Tenant) -> str:
        """Why the tenant cannot be taxed as it says, as a sentence, on any day; "" where it can."""
        if wrong := vat_ids.problem(tenant.vat_id, tenant.country):
            return _("its vat_id {wrong}").format(wrong=wrong)
        if tenant.tax_treatment == TaxTreatment.EXEMPT and not tenant.tax_reason:
            return _("an exemption stands on invoices with its reason: give it a `tax_reason`.")
        if tenant.tax_treatment == TaxTreatment.REVERSE_CHARGE and not supply.may_reverse_charge(
            self.seller, _make_buyer(tenant)
        ):
            return _(
                "reverse charge is for a seller and a tenant in different states of the EU, both with a VAT id: "
                "give both a `country` and a `vat_id`, or another tax_treatment."
            )
        return ""


STATED: Mapping[str, TaxCategory] = {
    TaxTreatment.REVERSE_CHARGE: TaxCategory.REVERSE_CHARGE,
    TaxTreatment.EXEMPT: TaxCategory.EXEMPT,
    TaxTreatment.OUTSIDE: TaxCategory.OUTSIDE,
}
"""What a treatment says by itself."""


def load_taxes(tenants: Iterable[Tenant], seller: Seller) -> Taxes:
    """How they are taxed. One query where one of them is taxed by country, none otherwise."""
    party = Party(seller.country, vat_id=seller.vat_id)
    if all(tenant.tax_treatment != TaxTreatment.BY_COUNTRY for tenant in tenants):
        return Taxes(party)
    columns = ("country", "region", "category", "since", "rate")
    return Taxes(party, Rates([Rate(*row) for row in TaxRate.objects.values_list(*columns)]))


def date_of_supply(supplied: BillingPeriod) -> date:
    """The last day of the service period: what is billed by the period is supplied when it ends (article 64)."""
    return billing_periods.last_day(supplied)


def set_tax(line: InvoiceLine, tax: Tax) -> InvoiceLine:
    """The line, taxed so."""
    line.tax_category, line.tax_rate = tax.category, tax.rate
    return line


def sum_taxes(lines: Iterable[InvoiceLine], currency: str) -> list[TaxRow]:
    """The taxes of an invoice of these lines."""
    return rules.breakdown(_line_amounts(lines, currency))


def total_with_tax(taxes: Iterable[TaxRow], currency: str) -> Money:
    """Of net and tax together."""
    return sum((row.net + row.tax for row in taxes), Money.zero(currency))


def credit_taxes(lines: Iterable[InvoiceLine], original: Invoice) -> list[TaxRow]:
    """The taxes of a credit note of these lines, by which the original's are used up to the cent. One query."""
    left = load_left([original.pk])[original.pk]
    return rules.credited(_line_amounts(lines, original.currency), left=left)


def load_left(invoices: Iterable[int]) -> dict[int, list[TaxRow]]:
    """What is left of issued invoices and their credit notes, by tax. One query."""
    sums = (
        InvoiceTax.objects.filter(
            Q(invoice__in=invoices) | Q(invoice__original__in=invoices), invoice__state=InvoiceState.ISSUED
        )
        .values_list(Coalesce("invoice__original", "invoice"), "category", "rate", "invoice__currency")
        .annotate(Sum("net"), Sum("tax"))
        .order_by()
    )
    left: dict[int, list[TaxRow]] = defaultdict(list)
    for invoice, category, rate, currency, net, tax in sums:
        net_left, tax_left = (Money.from_minor(int(minor), currency) for minor in (net, tax))
        left[invoice].append(TaxRow(Tax(category, rate), net_left, tax_left))
    return left


def make_tax_rows(invoice: Invoice, taxes: Iterable[TaxRow], reasons: Mapping[str, str]) -> list[InvoiceTax]:
    """The rows to keep, not saved yet; `reasons` by category, as `load_reasons` has them."""
    return [
        InvoiceTax(
            invoice=invoice,
            tenant_id=invoice.tenant_id,
            category=row.kind.category,
            rate=row.kind.rate,
            net=row.net.minor,
            tax=row.tax.minor,
            reason=reasons.get(row.kind.category, ""),
        )
        for row in taxes
    ]


def load_reasons(documents: Sequence[tuple[Invoice, Sequence[TaxRow]]]) -> list[dict[str, str]]:
    """Of each document, by category, why no tax is charged: as stated for what it credits or corrects.

    Where nothing was, in the tenant's words, or in ours. One query where a category charges none, else no one.
    """
    tenant_ids = {
        invoice.tenant_id
        for invoice, taxes in documents
        if any(row.kind.category in supply.REASONS for row in taxes)
    }
    if not tenant_ids:
        return [{} for _ in documents]
    stored_reasons: dict[tuple[str, int, str], str] = {}
    invoice_taxes = InvoiceTax.objects.filter(
        tenant__in=tenant_ids, invoice__state=InvoiceState.ISSUED
    ).exclude(reason="")
    columns = ("tenant", "invoice", "category", "reason")
    for tenant, invoice, category, reason in invoice_taxes.order_by("pk").values_list(*columns):
        stored_reasons["tenant", tenant, category] = stored_reasons["invoice", invoice, category] = reason
    return [
        _load_reasons(invoice, stored_reasons) if invoice.tenant_id in tenant_ids else {}
        for invoice, _ in documents
    ]


def _load_reasons(invoice: Invoice, stored_reasons: Mapping[tuple[str, int, str], str]) -> dict[str, str]:
    if invoice.original_id is not None:
        original_reasons = {
            category: stored_reasons.get(("invoice", invoice.original_id, category))
            for category in supply.REASONS
        }
        return {category: words or supply.REASONS[category] for category, words in original_reasons.items()}
    tenant = invoice.tenant
    own = STATED.get(tenant.tax_treatment)
    before = {category: stored_reasons.get(("tenant", tenant.pk, category)) for category in supply.REASONS}
    reasons = {category: words or supply.REASONS[category] for category, words in before.items()}
    return reasons if own is None else reasons | {own: tenant.tax_reason or supply.REASONS[own]}


def _make_buyer(tenant: Tenant) -> Party:
    return Party(tenant.country, tenant.region, tenant.vat_id)


def _line_amounts(lines: Iterable[InvoiceLine], currency: str) -> list[tuple[Tax, Money]]:
    return [(line.taxed_as, Money.from_minor(line.amount, currency)) for line in lines]
