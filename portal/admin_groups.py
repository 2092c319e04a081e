"""The administration's tables by task: what each group is for, and where on the portal its daily work is done."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Group:
    """`tables` in the order in which they are listed; `pages` of the portal as (name of the address, title)."""

    key: str  # of its heading on the start page
    title: str
    purpose: str
    pages: tuple[tuple[str, str], ...]
    tables: tuple[str, ...]


def _named(text: str) -> tuple[str, ...]:
    return tuple(text.split())


GROUPS = (
    Group(
        "people",
        "Tenants and people",
        "Who is billed, who signs in, and whose account is whose: tax, address and time zone are changed here.",
        (("tenants", "Tenants"), ("operator_sign_ups", "Sign-ups"), ("operator_people", "Operators")),
        _named(
            "tenants.Tenant tenants.Membership tenants.Ownership billing.Payer billing.Archive billing.Erasure "
            "tenants.User mfa.Authenticator socialaccount.SocialAccount"
        ),
    ),
    Group(
        "clusters",
        "Clusters and usage",
        "Where usage comes from and what was read: nothing that a scheduler said is edited.",
        (
            ("operator_clusters", "Clusters"),
            ("operator_unassigned", "Unassigned usage"),
            ("operator_quarantine", "Quarantine"),
            ("operator_meters", "Declared meters"),
        ),
        _named(
            "clusters.Cluster clusters.Connection clusters.Telemetry clusters.ApiServer clusters.Account "
            "clusters.DeclaredMeter clusters.UsageRecord clusters.CapacityInterval clusters.Pull "
            "clusters.Quarantined clusters.Act clusters.AccountBlock"
        ),
    ),
    Group(
        "plans",
        "Plans and prices",
        "What usage costs and who is on which plan; terms of one tenant and operating costs are entered here.",
        (
            ("operator_plans", "Plans"),
            ("operator_plan_editor", "Plan editor"),
            ("operator_reports", "Reports"),
        ),
        _named(
            "billing.Plan billing.PlanVersion billing.Subscription billing.Allowance billing.Fee "
            "billing.Commitment billing.Discount billing.OperatingCost"
        ),
    ),
    Group(
        "invoices",
        "Invoices and closes",
        "What was invoiced, by whom and with which tax; invoices are credited, voided and written off, never edited.",
        (("operator_close", "Month-end close"), ("operator_sealed_months", "Sealed months")),
        _named(
            "billing.Invoice billing.ManualLine billing.PendingApproval billing.ApprovalLimit billing.Seller "
            "billing.TaxRate billing.CloseProof billing.MonthProof"
        ),
    ),
    Group(
        "payments",
        "Payments and dunning",
        "Money that came in, was refunded or disputed, and what follows if none comes.",
        (
            ("operator_receivables", "Collections"),
            ("operator_transfers", "Bank transfers"),
            ("operator_reconciliation", "Reconciliation"),
        ),
        _named(
            "billing.Payment billing.PaymentAttempt billing.PaymentRefund billing.PaymentDispute "
            "billing.GatewayEvent billing.BillingAccount billing.SavedMethod billing.DunningPolicy "
            "billing.DunningPause billing.Suspension billing.SuspendedAccount billing.WriteOff"
        ),
    ),
    Group(
        "wallets",
        "Wallets",
        "Prepaid balances, how they fill, and each booking: to look at. Credit is granted on a tenant’s page.",
        (("tenants", "Tenants"),),
        _named(
            "billing.Wallet billing.WalletEntry billing.WalletGrant billing.WalletScheme billing.TopUp "
            "billing.AutomaticTopUp"
        ),
    ),
    Group(
        "quotas",
        "Quotas and limits",
        "How much may be used in a period, and which thresholds were crossed.",
        (("operator_budgets", "Budgets"), ("operator_limits", "Limits")),
        _named("billing.Quota billing.QuotaPeriod billing.QuotaCrossing"),
    ),
    Group(
        "messages",
        "E-mails and background work",
        "What was sent to whom, and what is on its way or late.",
        (("operator_notifications", "Notifications"),),
        _named("billing.Notice billing.NoticeDelivery billing.OperatorDelivery outbox.OutboxMessage"),
    ),
    Group(
        "history",
        "History of changes",
        "Who changed what and when, before and after.",
        (("operator_history", "History"),),
        _named("audit.AuditEntry"),
    ),
)
"""Every table stands in one group (tests/scenarios/test_admin_start.py)."""
