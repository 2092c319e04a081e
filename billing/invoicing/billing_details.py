"""What stands on a tenant's invoices from now on, as its owners and billing members set it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from datetime import datetime

from django.core.exceptions import ValidationError
from django.db import transaction

from billing.catalog.tenant_lock import lock
from billing.emails import contacts
from billing.invoicing import line_taxes, sellers
from billing.invoicing.details_messages import FIELDS, SENTENCES
from portal.core.tenants.models import TaxTreatment, Tenant
from portal.errors import CodedError


class DetailsError(CodedError):
    """Invoices cannot be issued with such details; the message says which and why."""

    sentences = SENTENCES


@transaction.atomic
def set_billing_details(
    *, tenant: Tenant, values: Mapping[str, str], moment: datetime, by_operator: bool
) -> Tenant:
    """Have the next documents say this; what is issued stays as it is, and what is not mentioned. Again, the same.

    Raises as `checked`, and ContactError for what is no address.
    """
    tenant = lock(tenant)
    changed = checked(tenant, values, by_operator=by_operator)
    columns = [name for name in FIELDS if name != "email" and getattr(changed, name) != getattr(tenant, name)]
    if columns:
        changed.save(update_fields=columns)
    return contacts.set_billing_email(tenant=changed, email=changed.email, moment=moment)


def checked(tenant: Tenant, values: Mapping[str, str], *, by_operator: bool) -> Tenant:
    """A copy of the tenant as it would be, which is not saved. Two queries at most.

    Raises DetailsError for what no invoice can say or be taxed by, and for a VAT id that the tenant itself enters and
    that would have reverse charge: who sells is liable for the tax of an id whose validity nobody has had confirmed
    (Regulation (EU) 282/2011, article 18), so an operator enters it.
    """
    changed = copy(tenant)
    for name in FIELDS:
        if name in values:
            text = _plain(name, values[name])
            if not all(line.isprintable() for line in text.split("\n")):
                raise DetailsError("details-characters", field=DetailsError(name))
            setattr(changed, name, text)
    others = [field.name for field in Tenant._meta.fields if field.name not in FIELDS]
    try:
        changed.clean_fields(exclude=others)
    except ValidationError as error:
        name, whys = next(iter(error.message_dict.items()))
        raise DetailsError("details-field", field=DetailsError(name), why=whys[0]) from error
    seller = sellers.load_seller()
    taxes = line_taxes.load_taxes([], seller)
    if refusal := taxes.refusal(changed):
        raise DetailsError("details-taxes", why=refusal)
    if not by_operator and changed.vat_id != tenant.vat_id and taxes.reverses(changed):
        raise DetailsError("details-vat-id", seller=seller.email or seller.name)
    return changed


def describe_changes(before: Tenant, after: Tenant) -> list[tuple[str, str, str]]:
    """Name, old and new value of each field that differs."""
    return [
        (label, getattr(before, name), getattr(after, name))
        for name, label in FIELDS.items()
        if getattr(before, name) != getattr(after, name)
    ]


def changes_taxes(before: Tenant, after: Tenant) -> bool:
    """Whether other taxes may stand on the next invoices: the VAT id decides where the country does."""
    return before.vat_id != after.vat_id and before.tax_treatment == TaxTreatment.BY_COUNTRY


def _plain(name: str, text: str) -> str:
    """Without blanks around lines, and of one line where the column has one."""
    text = text.replace("\0", "")
    if name == "vat_id":
        return "".join(text.split()).upper()
    lines = [" ".join(line.split()) for line in text.splitlines()]
    return ("\n" if name == "address" else " ").join(filter(None, lines))
