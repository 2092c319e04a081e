"""The columns of a FOCUS 1.2 dataset as we write it: those that every dataset has, those that apply to us, and ours."""

from __future__ import annotations

from enum import StrEnum

VERSION = "1.2"


class Kind(StrEnum):
    """What a column holds."""

    TEXT = "text"  # of ours: letters that nobody but us chooses
    FREE = "free text"  # what people or schedulers wrote
    DECIMAL = "decimal"
    MOMENT = "moment"  # UTC, to the second
    COUNT = "count"


MANDATORY = {
    "BilledCost": Kind.DECIMAL,
    "BillingAccountId": Kind.TEXT,
    "BillingAccountName": Kind.FREE,
    "BillingCurrency": Kind.TEXT,
    "BillingPeriodEnd": Kind.MOMENT,
    "BillingPeriodStart": Kind.MOMENT,
    "ChargeCategory": Kind.TEXT,
    "ChargeClass": Kind.TEXT,
    "ChargeDescription": Kind.FREE,
    "ChargePeriodEnd": Kind.MOMENT,
    "ChargePeriodStart": Kind.MOMENT,
    "ContractedCost": Kind.DECIMAL,
    "EffectiveCost": Kind.DECIMAL,
    "InvoiceIssuerName": Kind.FREE,
    "ListCost": Kind.DECIMAL,
    "PricingQuantity": Kind.DECIMAL,
    "PricingUnit": Kind.TEXT,
    "ProviderName": Kind.FREE,
    "PublisherName": Kind.FREE,
    "ServiceCategory": Kind.TEXT,
    "ServiceName": Kind.TEXT,
}
"""Present in every dataset: the requirements model of FOCUS 1.2 asks for them without any condition."""

APPLICABLE = {
    "BillingAccountType": Kind.TEXT,
    "ChargeFrequency": Kind.TEXT,
    "ConsumedQuantity": Kind.DECIMAL,
    "ConsumedUnit": Kind.TEXT,
    "ContractedUnitPrice": Kind.DECIMAL,
    "InvoiceId": Kind.TEXT,
    "ListUnitPrice": Kind.DECIMAL,
    "PricingCategory": Kind.TEXT,
    "ResourceId": Kind.TEXT,  # it begins with "clusters/", whatever follows
    "ResourceName": Kind.FREE,
    "ResourceType": Kind.TEXT,
    "ServiceSubcategory": Kind.TEXT,
    "SkuId": Kind.TEXT,
    "SkuMeter": Kind.TEXT,
    "SkuPriceId": Kind.TEXT,
    "SubAccountId": Kind.TEXT,
    "SubAccountName": Kind.FREE,
    "SubAccountType": Kind.TEXT,
    "Tags": Kind.TEXT,  # JSON: it begins with a brace, whatever is in it
}
"""Of those that a provider has where they apply to it."""

OWN = {
    "x_DocumentType": Kind.TEXT,
    "x_InvoiceLine": Kind.COUNT,
    "x_LineType": Kind.TEXT,
    "x_CorrectedInvoiceId": Kind.TEXT,
    "x_JobCount": Kind.COUNT,
    "x_Status": Kind.TEXT,
}

COLUMNS = MANDATORY | APPLICABLE | OWN
"""In the order of the file."""
PLACE = {name: place for place, name in enumerate(COLUMNS)}


class Status(StrEnum):
    """Whether a charge can still change."""

    FINAL = "final"
    PRELIMINARY = "preliminary"
