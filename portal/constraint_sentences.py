"""What a form says where a constraint of its table refuses what was entered: by the constraint, what to enter."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any, Final

from django import forms
from django.core.exceptions import ValidationError
from django.db.models import Model

_COUNTRY = "Write the country as two capital letters, such as DE."
_CURRENCY = "Write the currency's code of ISO 4217 in capital letters, such as USD or EUR."
_SCHEME = "Write the electronic address with its scheme, such as 0204:991-12345-06."
_PREFIX = (
    "A prefix of numbers begins with a letter or digit, and has only those, dots, hyphens and underscores."
)
_CHOICE = "Select one of the choices."
_END = "It has to end later than it begins."
_DATES = "Terms of one tenant need their first day; those of all subscribers have no days of their own."

SENTENCES: Final[Mapping[str, str]] = {
    "allowance_ends_after_it_starts": _END,
    "allowance_has_its_name_alone": "The plan's version has an allowance of this name already.",
    "allowance_is_above_zero": "Enter the hours above zero; zero only for one tenant, which then has none.",
    "allowance_of_one_tenant_has_dates": _DATES,
    "approval_limit_is_not_negative": "Enter a limit of zero or more.",
    "approval_limit_is_set_once": "There is such a limit already: change that one.",
    "approval_limit_metric_is_known": _CHOICE,
    "approval_limit_of_a_total_has_a_currency": "A total needs a currency; other limits have none.",
    "commitment_ends_after_it_starts": _END,
    "commitment_is_above_zero": (
        "Enter an amount above zero, or zero only for one tenant, which then has none; and an overage factor of 1 "
        "or more."
    ),
    "commitment_of_one_tenant_has_dates": _DATES,
    "credit_prefix_stands_in_an_address": _PREFIX,
    "days_of_dunning_are_days": "Enter days from 0 to 3650.",
    "discount_ends_after_it_starts": _END,
    "discount_has_its_name_alone": "The plan's version has a discount of this name from this day already.",
    "discount_is_a_percentage_or_an_amount": (
        "Enter either a percentage above 0 and up to 100, or an amount above zero; 0 percent only for one tenant, "
        "which then has no such discount."
    ),
    "dunning_policy_begins_once_a_day": "There is a policy from this day already: change that one.",
    "fee_ends_after_it_starts": _END,
    "fee_has_its_name_alone": "The plan's version has a fee of this name already.",
    "fee_is_not_negative": "Enter an amount of zero or more; what is taken off is a discount.",
    "fee_of_one_tenant_has_dates": _DATES,
    "invoice_is_not_late_when_due": "An invoice is late from one day after it is due at the earliest: enter 1 or more.",
    "invoice_prefix_stands_in_an_address": _PREFIX,
    "membership_role_is_known": _CHOICE,
    "meter_is_said_in_words": "Enter the title and the unit.",
    "meter_name_is_one_word": "Write the name in small letters, digits and hyphens, such as llm-tokens.",
    "meter_unit_code_is_one": "Write the unit's code of two or three capital letters and digits, such as C62.",
    "meter_unit_is_counted": "A unit is 1 to 1,000,000,000 of what is counted, with at most 9 decimals.",
    "operating_cost_begins_once_a_day": "There is such a cost from this day already: change that one.",
    "operating_cost_has_a_currency": _CURRENCY,
    "operating_cost_is_not_negative": "Enter a cost of zero or more.",
    "ownership_ends_after_it_starts": _END,
    "payer_ends_no_earlier_than_it_begins": (
        "It has to end on a later day than it begins, or on the same day, and then it never holds."
    ),
    "payer_is_another_tenant": "Choose another tenant as the payer: each tenant pays for itself otherwise.",
    "plan_currency_is_iso_4217": _CURRENCY,
    "plan_settlement_is_known": _CHOICE,
    "seller_corrections_are_known": _CHOICE,
    "seller_country_is_two_letters": _COUNTRY,
    "seller_electronic_address_has_a_scheme": _SCHEME,
    "seller_numbers_credit_notes_apart": "Credit notes need another prefix than invoices.",
    "seller_zero_invoices_are_known": _CHOICE,
    "starting_credit_is_of_a_plan_with_a_wallet": "Only a plan that a wallet pays has a starting credit.",
    "tax_rate_country_is_two_letters": _COUNTRY,
    "tax_rate_is_a_percentage": "Enter the tax rate as a percentage from 0 to 100.",
    "tenant_anchor_is_a_day": "Enter the day on which billing periods begin, from 1 to 31.",
    "tenant_corrections_are_known": _CHOICE,
    "tenant_country_is_two_letters": _COUNTRY,
    "tenant_electronic_address_has_a_scheme": _SCHEME,
    "tenant_exemption_says_why": "Enter why the tenant is exempt from tax: invoices have to say it.",
    "tenant_language_is_known": _CHOICE,
    "tenant_of_reverse_charge_has_country_and_vat_id": "Reverse charge needs the tenant's country and VAT ID.",
    "tenant_tax_is_a_percentage": "Enter the tax rate as a percentage from 0 to 100.",
    "tenant_tax_treatment_is_known": _CHOICE,
    "tenant_zero_invoices_are_known": _CHOICE,
    "tokens_are_paid_by_wallet": "A plan in tokens is paid by wallets.",
    "version_has_one_commitment": "The plan's version has a commitment already.",
}


class SentenceForm(forms.BaseModelForm[Model]):
    """Has Django's error, which names the constraint, say what to enter."""

    def add_error(self, field: str | None, error: Any) -> None:
        if isinstance(error, ValidationError):
            sentences = {
                str(constraint.get_violation_error_message()): SENTENCES[constraint.name]
                for constraint in self._meta.model._meta.constraints
                if constraint.name in SENTENCES
            }
            by_field = error.error_dict.values() if hasattr(error, "error_dict") else [error.error_list]
            for one in chain.from_iterable(by_field):
                one.message = sentences.get(str(one.message), one.message)
        super().add_error(field, error)
