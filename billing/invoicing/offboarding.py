"""A tenant that leaves: its accounts and its plan end, a closing invoice bills the rest, and it is archived.

Nothing of what was billed goes. What was kept of its people is erased apart, when that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import Q, Sum

from billing.bank_transfers import erasure
from billing.catalog import billing_periods, subscriptions, third_party_payers
from billing.catalog.tenant_lock import lock
from billing.documents import job_users
from billing.invoicing import statements
from billing.invoicing.active_tenants import list_billable_tenants
from billing.models import (
    Archive,
    AttemptState,
    AutomaticTopUp,
    BillingAccount,
    BillingContact,
    BillingPeriod,
    CheckoutSession,
    Departure,
    GrantKind,
    Invoice,
    ManualLine,
    MethodState,
    Notice,
    NoticeDelivery,
    PaymentAttempt,
    PaymentDispute,
    PaymentLink,
    PaymentRefund,
    RefundState,
    SavedMethod,
    SignUp,
    TopUp,
    Wallet,
    WalletGrant,
)
from billing.models.payment_attempts import OPEN_CHECKOUTS, UNDECIDED, UNDER_WAY
from billing.payments import payment_links
from billing.rating import engine, reratings
from billing.receivables import credit_balance
from billing.rules.money import Money
from portal.core.audit.erasure import WHO, erase_people
from portal.core.tenants import ownership
from portal.core.tenants.models import (
    AccountMail,
    Exclusion,
    IdentityGrant,
    Invitation,
    Membership,
    Ownership,
    Tenant,
    TenantNote,
    User,
)
from portal.core.tenants.ownership import accounts_of

REFUNDING = (RefundState.READY, RefundState.UNKNOWN, RefundState.PENDING)


class ArchiveError(Exception):
    """A tenant cannot be archived or erased yet; `sentences` say all that is left to do."""

    def __init__(self, *sentences: str) -> None:
        self.sentences = sentences
        super().__init__(" ".join(sentences))


@transaction.atomic
def end_services(*, tenant: Tenant, at: datetime) -> int:
    """End the tenant's accounts and its plan at that moment; how many accounts. Asked again, nothing changes.

    What it used before is billed by the close of the period, for the seconds until then. What the
    accounts use afterwards has no owner. Raises PlanError where it goes to another plan later.
    """
    owned = list(
        Ownership.objects.filter(tenant=tenant).select_related("account").order_by("account", "since")
    )
    ending = [row for row in owned if row.until is None or row.until > at]
    for row in ending:
        if row.since is not None and row.since >= at:
            row.delete()
        else:
            ownership.amend(ownership=row, since=row.since, until=at)
    subscriptions.unsubscribe(tenant=tenant, at=at)
    engine.rate_accounts(sorted({row.account_id for row in ending}))
    return len(ending)


@transaction.atomic
def archive_tenant(*, tenant: Tenant, by: str, reason: str, moment: datetime) -> Archive:
    """Keep that the tenant has left, whose payment links open nothing any more. Asked again, the same archive.

    Raises ArchiveError while anything of it is owned, unbilled, unpaid or to be paid back.
    """
    tenant = Tenant.objects.select_for_update().get(pk=tenant.pk)  # nor is an account given to it meanwhile
    existing = Archive.objects.filter(tenant=tenant).first()
    if existing is not None:
        return existing
    if not reason.strip():
        raise ArchiveError("Say why: the reason is kept with the archive.")
    sentences = list(find_obstacles(tenant, moment=moment))
    if sentences:
        raise ArchiveError(*sentences)
    payment_links.revoke_links(tenant=tenant, by=by, moment=moment)
    return Archive.objects.create(tenant=tenant, at=moment, by=by, reason=reason.strip())


def find_obstacles(tenant: Tenant, *, moment: datetime) -> Iterator[str]:
    """What keeps the tenant from being archived, each with what to do."""
    accounts = accounts_of(tenant, at=moment)
    if accounts:
        text = "an account" if len(accounts) == 1 else f"{len(accounts)} accounts"
        yield f"It owns {text}: end that with --leave, or give them to another tenant."
    plan = tenant.subscriptions.filter(until__isnull=True).select_related("plan").first()
    if plan is not None:
        yield f"It is on plan {plan.plan}: end that with --leave."
    if paid := third_party_payers.left(tenant, on=moment.astimezone(tenant.zone).date()):
        yield f"It pays for {paid.tenant.slug}: end that, or have another tenant pay."
    if reratings.find_tenants([tenant.pk]):
        yield f"{reratings.UNDER_WAY}: wait until that is done."
    yield from _find_unbilled(tenant, moment)
    yield from _find_unpaid(tenant)
    yield from _find_under_way(tenant)
    balances = (
        Wallet.objects.filter(tenant=tenant).order_by("unit").values_list("unit").annotate(Sum("balance"))
    )
    for unit, balance in balances:
        if balance:
            what = "pay it back, and take it off the wallet" if balance > 0 else "have it paid"
            yield f"Its wallets hold {Money.from_minor(balance, unit).text} {unit}: {what}."
    for rule in AutomaticTopUp.objects.filter(tenant=tenant, active=True).select_related("wallet"):
        yield f"Its wallet in {rule.wallet.unit} tops itself up from its card: turn that off on the wallet's page."


@transaction.atomic
def erase_tenant(*, tenant: Tenant, moment: datetime) -> list[str]:
    """Erase what is kept of an archived tenant's people; returns who is erased. Again, there is nobody left.

    Memberships and invitations go, and with them the people who belong to no other tenant and are no operators. Its
    contact goes from the tenant and its notices, whose words stay, and what is shown of its cards; and who paid by
    transfer, where all tenants that it was booked on are erased. The history keeps that all of this changed, without
    what it was, and changes that these people made without their names. Users of its jobs become numbers. Invoices and
    what is signed of their evidence, which has these numbers alone, are kept as they were issued, as the law wants
    them. What the gateway keeps is erased there: see `gateway_customer`.
    Raises ArchiveError where the tenant is not archived, or money is under way; NamesInFilesError.
    """
    tenant = lock(tenant)
    existing = Archive.objects.filter(tenant=tenant).first()
    if existing is None:
        raise ArchiveError(f"{tenant.slug} is not archived: `archive_tenant {tenant.slug}` comes first.")
    moving = [*_find_under_way(tenant), *_find_undecided(tenant)]
    if moving:
        raise ArchiveError(*moving)
    people = _people_of(tenant)
    SignUp.objects.filter(tenant=tenant).update(email="")
    Departure.objects.filter(tenant=tenant).update(asked_by=WHO, reason="")
    Membership.objects.filter(tenant=tenant).delete()
    AccountMail.objects.filter(tenant=tenant).delete()
    Invitation.objects.filter(tenant=tenant).delete()
    Exclusion.objects.filter(tenant=tenant).delete()
    BillingContact.objects.filter(tenant=tenant).delete()
    NoticeDelivery.objects.filter(tenant=tenant).delete()
    TenantNote.objects.filter(tenant=tenant).delete()
    IdentityGrant.objects.filter(tenant=tenant).delete()  # nobody comes in again
    staying = set(Membership.objects.filter(user__in=people).values_list("user", flat=True))
    gone = [person for person in people if person.pk not in staying and not person.operator_role]
    emails = [person.email for person in gone]
    User.objects.filter(pk__in=[person.pk for person in gone]).delete()
    tenant.email = tenant.address = tenant.postcode = tenant.city = ""
    tenant.electronic_address = tenant.purchase_order = ""
    tenant.save()
    SavedMethod.objects.filter(tenant=tenant).update(
        brand="",
        last4="",
        exp_month=None,
        exp_year=None,
        fingerprint="",
        state=MethodState.GONE,
        preferred=False,
    )
    PaymentAttempt.objects.filter(tenant=tenant).exclude(paid_with="", requested_by="").update(
        paid_with="", requested_by=""
    )
    BillingAccount.objects.filter(tenant=tenant).update(params={}, automatic=False)
    notices = Notice.objects.filter(tenant=tenant)
    notices.filter(reason__contains="@").update(reason="What the mail server said of its address is erased.")
    notices.update(to=[], refused={})
    payment_links.revoke_links(tenant=tenant, by=WHO, moment=moment)  # made since, as a dispute was lost
    _erase_payers(tenant)
    existing.erased_at = existing.erased_at or moment
    existing.save()
    erasure.erase_payers(tenant=tenant)
    job_users.erase_users(tenant)
    erase_people(tenant_id=tenant.pk, emails=emails)
    return emails


def _people_of(tenant: Tenant) -> list[User]:
    """Its members, and who signed up for it and was refused."""
    of_tenant = User.objects.filter(Q(memberships__tenant=tenant) | Q(sign_ups__tenant=tenant))
    return list(User.objects.filter(pk__in=of_tenant.values("pk")).order_by("pk"))


def _erase_payers(tenant: Tenant) -> None:
    """Who opened a page to pay on, bought credit or set that it buys itself; what the system did itself stays said."""
    CheckoutSession.objects.filter(tenant=tenant, requested_by__contains="@").update(requested_by=WHO)
    links = PaymentLink.objects.filter(tenant=tenant)
    links.exclude(maker="").update(maker=WHO)
    links.exclude(revoked_by="").update(revoked_by=WHO)
    top_ups = TopUp.objects.filter(tenant=tenant, requested_by__contains="@")
    bought = PaymentAttempt.objects.filter(top_up__in=top_ups, external_id__isnull=False)
    grants = WalletGrant.objects.filter(tenant=tenant, kind=GrantKind.TOP_UP)
    grants.filter(key__in=list(bought.values_list("external_id", flat=True))).update(granted_by=WHO)
    top_ups.update(requested_by=WHO)
    AutomaticTopUp.objects.filter(tenant=tenant, set_by__contains="@").update(set_by=WHO)


def gateway_customer(tenant: Tenant) -> str:
    """The customer as whom the gateway still knows the tenant, its contact and its cards; "" where it knows none."""
    account = BillingAccount.objects.filter(tenant=tenant).first()
    return (account.customer or "") if account else ""


def _find_unbilled(tenant: Tenant, moment: datetime) -> Iterator[str]:
    waiting = ManualLine.objects.pending().filter(tenant=tenant).count()
    if waiting:
        text = "1 line" if waiting == 1 else f"{waiting} lines"
        yield f"{text} by hand waits for its next invoice: remove it, or close its month."
    begun = BillingPeriod.objects.filter(tenant=tenant, start__lt=moment).select_related("tenant")
    last = begun.order_by("-start").first()
    if last is None:
        return
    name = billing_periods.name(last)
    if statements.list_unpriced(tenant=tenant, period=last):
        yield f"It has usage until the end of {name} that no price covers: close that month to see which."
    try:
        due = statements.make_statement(tenant=tenant, period=last)
    except statements.MixedCurrenciesError as error:
        yield str(error)
        return
    for statement in (due, *due.others, *due.paid):
        if any(line.amount.amount for line in statement.lines):
            total = sum((line.amount for line in statement.lines), Money.zero(statement.currency))
            remedy = _describe_unbilled(last, total, moment)
            yield f"{total.text} {statement.currency} before tax are not billed yet: {remedy}"


def _describe_unbilled(last: BillingPeriod, total: Money, moment: datetime) -> str:
    """What bills, or gives back, what is left at the end of the last period that has begun."""
    issued = Invoice.objects.issued().of_periods().filter(period=last).exists()
    leaves = last.tenant_id not in list_billable_tenants([last])
    if total.amount < 0 and leaves and last.closed_at is not None and not issued:
        return (
            f"close {billing_periods.name(last)} again, which credits what was billed. What a discount takes off that "
            f"came later stays: take it back, and credit an invoice by hand."
        )
    if issued or (total.amount < 0 and not leaves):  # what it was billed is given back where nothing follows
        following = BillingPeriod.objects.filter(tenant=last.tenant_id, start=last.end).first()
        last = (
            following
            or billing_periods.missing_periods([(last.tenant, last.end, last.end + timedelta(seconds=1))])[0]
        )
    when = "" if last.end <= moment else f", which can be closed from {last.end:%Y-%m-%d %H:%M} UTC on"
    return f"close the months until {billing_periods.name(last)}{when}."


def _find_unpaid(tenant: Tenant) -> Iterator[str]:
    for invoice in Invoice.objects.filter(tenant=tenant).to_settle().order_by("pk"):
        left = invoice.balance.left
        amount_text = f"{Money.from_minor(abs(left), invoice.currency).text} {invoice.currency}"
        if left > 0:
            yield f"{invoice} has {amount_text} due: have it paid, credit it, or write it off."
        elif left < 0:
            yield f"{amount_text} of {invoice} is to be paid back: record that."
    for (_, currency), amount in credit_balance.list_balances([tenant.pk]).items():
        amount_text = f"{Money.from_minor(amount, currency).text} {currency}"
        yield f"Its credit balance is {amount_text}: pay it back, and record that."


def _find_under_way(tenant: Tenant) -> Iterator[str]:
    """Money that may yet come or go at the gateway."""
    for attempt in PaymentAttempt.objects.filter(UNDER_WAY, tenant=tenant).order_by("created_at"):
        yield f"A payment of {_describe_attempt(attempt)} is under way: wait until it is told how that ended."
    pages = PaymentAttempt.objects.filter(
        tenant=tenant, state=AttemptState.OFFERED, checkout__state__in=OPEN_CHECKOUTS
    )
    for attempt in pages.order_by("created_at"):
        described = _describe_attempt(attempt)
        yield f"A page on which {described} can be paid is open: wait until it closes by itself, within a day."
    refunds = PaymentRefund.objects.filter(tenant=tenant, state__in=REFUNDING).select_related("attempt")
    for refund in refunds.order_by("created_at"):
        described = _describe_attempt(refund.attempt, refund.amount)
        yield f"A refund of {described} is under way: wait until it is told how that ended."
    disputes = PaymentDispute.objects.filter(tenant=tenant, state__in=UNDECIDED).select_related("attempt")
    for dispute in disputes.order_by("opened_at"):
        amount_text = _describe_attempt(dispute.attempt, dispute.amount)
        yield f"A payment of {amount_text} is disputed, or a bank asks about it: wait until the bank has decided."


def _find_undecided(tenant: Tenant) -> Iterator[str]:
    for row in erasure.list_waiting(tenant=tenant):
        yield f"A transfer of {row}, from an account that paid for it, waits: book it, or set it aside."
    for entry in erasure.list_unsettled(tenant=tenant):
        place = f"{entry.place} of {entry.statement.file}"
        yield f"An entry in quarantine, {place}, names an account that paid for it: settle it on Transfers."


def _describe_attempt(attempt: PaymentAttempt, amount: int | None = None) -> str:
    money = Money.from_minor(attempt.amount if amount is None else amount, attempt.currency)
    return f"{money.text} {attempt.currency}"
