"""What stays how long: every table is of one kind, and a kind says whether, when and by what its rows are erased.

The table of docs/reference/retention.md is this one; a test compares both, and every table of the database with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from billing.admission import follow
from billing.reports import focus_exports
from billing.reports.snapshots import MOST_KEPT, RETENTION
from clusters import pull_schedule
from portal.api import idempotency
from portal.core.events import numbering
from portal.core.tenants import account_mails
from portal.core.webhooks import deliveries
from portal.web import previews

LAW = "for good; nothing erases it"
ISSUED = "for good, once issued; drafts can be deleted"
TERMS = "for good; what operators delete stays in the history"
REPLACED = "for good; what is read or computed again replaces it"
OPEN = "until it is dealt with"
USE = "while it is used"
PERSON = "until the person leaves, or `erase_tenant`"
YEARS = "`erase_old`"


@dataclass(frozen=True, slots=True)
class Kind:
    """Tables by their models. `stays`: until when, in words; `erasable`: by `erase_old`, after its years."""

    name: str
    holds: str
    stays: str
    models: tuple[str, ...]

    @property
    def erasable(self) -> bool:
        return self.stays == YEARS


def years_before(moment: datetime, years: int) -> datetime:
    """The same day so many years earlier; of 29 February, the 28th where there is none."""
    day = 28 if (moment.month, moment.day) == (2, 29) else moment.day
    return moment.replace(year=moment.year - years, day=day)


def _span(time: timedelta) -> str:
    """In words: `1 year`, `90 days`, `48 hours`."""
    if time.days == 365:
        return "1 year"
    return f"{time.days} days" if time.days > 2 else f"{time // timedelta(hours=1)} hours"


def _of(app: str, names: str) -> tuple[str, ...]:
    return tuple(f"{app}.{name}" for name in names.split())


KINDS = (
    Kind("documents", "invoices, credit notes, their lines, taxes, PDFs, evidence and keys", ISSUED, _of("billing", """
        Invoice InvoiceLine InvoiceTax InvoiceDocument InvoiceSeries Evidence Voiding LineJobs BilledJob SigningKey
        ManualLine BillingPeriod PendingApproval WriteOff PriceCorrection ServiceCredit InvoiceBalance
        InvoiceRemainder""")),
    Kind("money", "payments, refunds, disputes, wallets, bank transfers, what Stripe said", LAW, _of("billing", """
        Payment PaymentAttempt PaymentRefund PaymentDispute MovedMoney MovedCredit CheckoutSession CreditEntry
        BankStatement Transfer TransferPart RefusedEntry Wallet WalletEntry WalletGrant WalletHold WalletDay
        WalletTotal WalletBooking Accrual TopUp GatewayEvent GatewayPayout GatewayMovement Reconciliation
        Difference""")),
    Kind("history", "the history of changes, without the names that were erased", LAW, (
        "audit.AuditEntry", "audit.AuditCommit", "billing.Erasure")),
    Kind("proofs", "what was proved, and when", LAW, _of("billing", "CloseProof MonthProof")),
    Kind("sealed-months", "what was sealed, with the digests of its files, and which records came late to it",
         "until the month is unsealed",
         _of("billing", "SealedMonth SealedFile LateRecord")),
    Kind("usage", "what was used, and what it was rated as", LAW, (
        *_of("clusters", """UsageRecord UsageRevision UsageKey PushedRun UtilisationHour CapacityInterval GpuError
            GpuErrorReading"""),
        *_of("billing", "RatedUsage PeriodTotal DayTotal UsageSeries PeriodJobs WasteFinding"))),
    Kind("sums", "jobs with their costs, usage by day, the dearest jobs, sums of proofs, bills of providers", REPLACED,
         _of("billing", "RatedJob DailyUsage PeriodTopJob MonthSum CostCharge")),
    Kind("marks", "runs that vanished, hours not read, months to prove, changed budgets to look at", OPEN, (
        *_of("clusters", "VanishedRun IncompleteHour"), *_of("billing", "ProofMark QuotaChange"))),
    Kind("efficiency", "figures of pages about efficiency, and numbers of runs",
         f"the newest {MOST_KEPT} of a tenant or cluster, for {_span(RETENTION)}",
         _of("billing", "EfficiencySnapshot RunCountSnapshot")),
    Kind("terms", "tenants and their accounts, plans, prices, rules and settings", TERMS, (
        *_of("tenants", "Tenant Project Ownership Brand BrandLogo"),
        *_of("clusters", "Cluster Account DeclaredMeter DeclaredNode"),
        *_of("billing", """Plan PlanVersion Price PlanQuota Subscription Allowance Fee Commitment Discount Payer
            Seller TaxRate ApprovalLimit DunningPolicy DunningPause Archive Departure SignUp SignUpPolicy WalletScheme
            GrantRule DebtTerms OperatingCost CostImport FailureRule WasteRule WasteChoice
            ConcurrencyLimit Quota CloseSchedule GatewayAccount""")),
    ),
    Kind("acts", "blocks, limits, suspensions, closes, sealings and budgets as they came to act", LAW, (
        *_of("clusters", "Act AccountBlock BlockReason AccountLimit"),
        *_of("billing", """Suspension SuspendedAccount LimitedAccount QuotaPeriod QuotaCrossing QuotaReview QuotaBlock
            QuotaRelease QuotaEnding CloseRun CloseReport ScheduledClose SealRun"""), "tenants.SupportView")),
    Kind("reservations", "what jobs reserved of budgets and wallets", f"{_span(follow.RETENTION)} after it is released",
         _of("billing", "Reservation ReservedAmount ReservationRun")),
    Kind("close-results", "what a close or its preview came to, by tenant",
         "until the month is closed or previewed again", ("billing.CloseResult",)),
    Kind("connections", "addresses and secrets of clusters, providers, webhooks and keys", USE, (
        *_of("clusters", "Connection ApiServer Telemetry"), "webhooks.Webhook", "api.ApiKey",
        *_of("tenants", "IdentityProvider IdentityGrant"),
        *_of("socialaccount", "SocialApp"))),
    Kind("people", "accounts of people, what they may do and how they sign in", PERSON, (
        *_of("tenants", """User User_groups User_user_permissions Membership Invitation Exclusion TenantNote"""),
        *_of("account", "EmailAddress EmailConfirmation"), "mfa.Authenticator",
        *_of("socialaccount", "SocialAccount SocialToken"),
        *_of("billing", """BillingContact BillingAccount SavedMethod PaymentLink AutomaticTopUp NoticePreference
            OperatorSubscription"""))),
    Kind("job-users", "names of the scheduler's users, in jobs and usage", YEARS, ("billing.JobUser",)),
    Kind("notices", "addresses that e-mails to tenants went to; their text stays", YEARS, ("billing.Notice",)),
    Kind("deliveries", "e-mails to single members and operators", YEARS,
         _of("billing", "NoticeDelivery OperatorDelivery")),
    Kind("sessions", "sessions that have ended, with their network addresses", YEARS,
         ("sessions.Session", "usersessions.UserSession")),
    Kind("outbox", "work that is done", YEARS, ("outbox.OutboxMessage",)),
    Kind("quarantine", "the text of rows that were refused and are settled", YEARS, ("clusters.Quarantined",)),
    Kind("webhook-deliveries", "attempts to deliver webhooks", _span(deliveries.RETENTION), ("webhooks.Delivery",)),
    Kind("events", "events for webhooks and streams", _span(numbering.RETENTION), _of("events", "Event EventCounter")),
    Kind("account-mails", "e-mails to people about their accounts", _span(account_mails.RETENTION),
         ("tenants.AccountMail",)),
    Kind("api-answers", "answers to requests with an idempotency key", _span(idempotency.LIFETIME),
         ("api.IdempotentRequest",)),
    Kind("syncs", "what each sync read", f"{_span(pull_schedule.RETENTION)}; with something new for good; "
         f"failed ones {_span(pull_schedule.RETENTION_FAILED)}",
         ("clusters.Pull",)),
    Kind("files", "usage files; their content goes once they are imported", USE,
         _of("clusters", "UsageFile UsageFilePart")),
    Kind("focus-exports", "files with the charges of all tenants in a month",
         f"{_span(focus_exports.RETENTION)}; less once the month is written again",
         _of("billing", "FocusExport FocusExportPart")),
    Kind("previews", "documents before a close and drafts of plans, as operators previewed them",
         _span(previews.RETENTION), ("billing.Preview",)),
    Kind("administration", "the administration's own tables", USE, (
        "admin.LogEntry", *_of("auth", "Permission Group Group_permissions"), "contenttypes.ContentType")),
)  # fmt: skip
