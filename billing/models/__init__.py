"""The billing tables, by noun."""

from billing.models.invoices import (
    MOVES,
    CloseProof,
    Invoice,
    InvoiceDocument,
    InvoiceLine,
    InvoiceSeries,
    InvoiceState,
    Payment,
    Seller,
)
from billing.models.plans import Plan, PlanVersion, Price, Subscription
from billing.models.rated import (
    BillingPeriod,
    DayTotal,
    PeriodTotal,
    RatedJob,
    RatedUsage,
    Resource,
    UserTotal,
    Verdict,
)

__all__ = [
    "MOVES",
    "BillingPeriod",
    "CloseProof",
    "DayTotal",
    "Invoice",
    "InvoiceDocument",
    "InvoiceLine",
    "InvoiceSeries",
    "InvoiceState",
    "Payment",
    "PeriodTotal",
    "Plan",
    "PlanVersion",
    "Price",
    "RatedJob",
    "RatedUsage",
    "Resource",
    "Seller",
    "Subscription",
    "UserTotal",
    "Verdict",
]
