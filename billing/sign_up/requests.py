"""Sign-ups on their way: somebody asks for a tenant, saves a card, an operator decides, the plan begins.

Until it is active a tenant is on no plan and owns no account, and the person may only read and pay in it: it costs
nobody anything. Credit is given to nobody whom neither an operator nor a card has proved, and once to each of them.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from allauth.account.models import EmailAddress
from django.db import transaction
from django.db.models import Q, QuerySet
from django.utils.crypto import get_random_string
from django.utils.text import slugify

from billing.catalog import subscriptions
from billing.invoicing import offboarding, sellers
from billing.models import (
    MethodState,
    SavedMethod,
    SignUp,
    SignUpPolicy,
    SignUpState,
    TaxRate,
    Wallet,
    WalletScope,
)
from billing.sign_up import policy as policies
from billing.sign_up.policy import SignUpError
from billing.wallets import grants, wallet_terms
from clusters.models import Cluster
from portal.core import locks
from portal.core.locks import Work
from portal.core.tenants import account_mails, team
from portal.core.tenants.models import (
    AccountMail,
    Membership,
    Role,
    TaxTreatment,
    Tenant,
    User,
)

LONGEST_NAME = 200
LONGEST_REASON = 500
MOST_OF_PERSON = 5  # sign-ups of one person, whatever became of them
MOST_WAITING = 500
DAY = timedelta(days=1)
PATIENCE = timedelta(days=7)  # with who saves no card: from then on they keep nobody else from signing up
COUNTRY = re.compile("[A-Z]{2}")
LETTERS = "bcdfghjkmnpqrstvwxz23456789"  # which make no word
BY_CARD = "sign-up"
"""Who gives the credit where nobody approves."""


@transaction.atomic
def ask(*, user: User, name: str, country: str, plan: str, moment: datetime) -> SignUp:
    """Ask for a tenant of this name on a public plan. It is active at once where neither card nor approval is needed.

    Raises SignUpError while sign-up is closed, for an address that is not proved, a second sign-up that waits, beyond
    the limits, and for what is no name, country or plan of the list.
    """
    locks.hold(Work.SIGNING_UP)
    policy = policies.get_policy()
    if not policies.is_open(policy):
        raise SignUpError("sign-up-closed")
    domain = _allowed_domain(user, policy)
    _refuse_second(user)
    _refuse_beyond_limits(domain, policy.domain_limit, moment)
    chosen = policies.list_public_plans(today=moment.date()).filter(name=plan).first()
    if chosen is None:
        raise SignUpError("sign-up-plan")
    tenant = _make_tenant(user, name, country)
    team.let_in(tenant=tenant, user=user, role=Role.BILLING)
    sign_up = SignUp.objects.create(
        tenant=tenant,
        plan=chosen,
        user=user,
        email=user.email,
        domain=domain,
        state=SignUpState.CARD,
        approval=policy.approval,
        card=policy.card,
        asked_at=moment,
    )
    return _go_on(sign_up, moment)


@transaction.atomic
def go_on(*, sign_up: SignUp, moment: datetime) -> SignUp:
    """Take the next step once the card is saved. Again, nothing changes. Raises SignUpError while it is missing."""
    row = _locked(sign_up)
    if row.state != SignUpState.CARD:
        return row
    row = _go_on(row, moment)
    if row.state == SignUpState.CARD:
        raise SignUpError("sign-up-card-missing")
    return row


@transaction.atomic
def approve(*, sign_up: SignUp, by: str, moment: datetime) -> SignUp:
    """Have the tenant be on its plan from now on, with the plan's starting credit; the person is mailed.

    Raises SignUpError where it does not wait for a decision, or is that of who decides, and as
    `subscriptions.subscribe` and `grants.grant` do.
    """
    row = _locked(sign_up)
    if row.state != SignUpState.APPROVAL:
        raise SignUpError("sign-up-decided")
    if by.lower() == row.email:
        raise SignUpError("sign-up-own")
    return _activate(row, by, moment)


@transaction.atomic
def refuse(*, sign_up: SignUp, by: str, reason: str, moment: datetime) -> SignUp:
    """Archive the tenant, which nobody is in any more; the person is mailed the reason, and may sign up again.

    Raises SignUpError where it waits for nothing, and without a reason.
    """
    text = reason.replace("\0", "").strip()
    if not text or len(text) > LONGEST_REASON:
        raise SignUpError("sign-up-reason", most=LONGEST_REASON)
    row = _waiting(sign_up)
    _mail(row, AccountMail.Kind.REFUSED, moment, reason=text)
    return _end(row, SignUpState.REFUSED, by, text, moment)


@transaction.atomic
def withdraw(*, sign_up: SignUp, moment: datetime) -> SignUp:
    """The person takes it back: the tenant is archived.

    Raises SignUpError where it waits for nothing, or an operator has given the tenant something already.
    """
    row = _waiting(sign_up)
    try:
        return _end(row, SignUpState.WITHDRAWN, row.email, "", moment)
    except offboarding.ArchiveError as error:  # its sentences are for operators
        raise SignUpError("sign-up-begun", tenant=row.tenant) from error


def sign_up_of(user: User) -> SignUp | None:
    """The person's newest one. One query."""
    return SignUp.objects.filter(user=user).select_related("tenant", "plan").order_by("-pk").first()


def has_its_card(row: SignUp) -> bool:
    """Whether it waits for a card that is saved by now. One query, or none."""
    return row.state == SignUpState.CARD and _cards(row.tenant).exists()


def _allowed_domain(user: User, policy: SignUpPolicy) -> str:
    if user.operator_role:
        raise SignUpError("sign-up-operator")
    if not EmailAddress.objects.filter(user=user, email=user.email, verified=True).exists():
        raise SignUpError("sign-up-unproved")
    return policies.refuse_domain(user.email, policy)


def _refuse_second(user: User) -> None:
    own = SignUp.objects.filter(user=user)
    waiting = own.waiting().select_related("tenant").first()
    if waiting is not None:
        raise SignUpError("sign-up-waits", tenant=waiting.tenant)
    if own.count() >= MOST_OF_PERSON:
        raise SignUpError("sign-up-too-many", most=MOST_OF_PERSON)


def _refuse_beyond_limits(domain: str, limit: int, moment: datetime) -> None:
    of_domain = SignUp.objects.filter(domain=domain, asked_at__gt=moment - DAY)
    if limit and of_domain.count() >= limit:
        raise SignUpError("sign-up-domain-limit", domain=domain)
    abandoned = Q(state=SignUpState.CARD, asked_at__lte=moment - PATIENCE)
    if SignUp.objects.waiting().exclude(abandoned).count() >= MOST_WAITING:
        raise SignUpError("sign-up-full")


def _make_tenant(user: User, name: str, country: str) -> Tenant:
    """In the clusters' zone, and taxed by country where the seller has rates."""
    title = " ".join(name.replace("\0", "").split())
    if not title or len(title) > LONGEST_NAME or not title.isprintable():
        raise SignUpError("sign-up-name", most=LONGEST_NAME)
    code = country.strip().upper()
    if not COUNTRY.fullmatch(code):
        raise SignUpError("sign-up-country")
    cluster = Cluster.objects.order_by("pk").first()
    taxed = TaxRate.objects.filter(country=sellers.load_seller().country or "-").exists()
    return Tenant.objects.create(
        slug=_free_slug(title),
        name=title,
        country=code,
        timezone=cluster.timezone if cluster else "UTC",
        tax_treatment=TaxTreatment.BY_COUNTRY if taxed else TaxTreatment.FIXED,
        **({"language": user.language} if user.language else {}),
    )


def _free_slug(title: str) -> str:
    """Drawn whether or not the name is taken: who signs up must not learn by it who else is a tenant."""
    begins = slugify(title)[:40].strip("-_") or "tenant"
    while Tenant.objects.filter(slug=(slug := f"{begins}-{get_random_string(4, LETTERS)}")).exists():
        pass
    return slug


def _locked(sign_up: SignUp) -> SignUp:
    locks.hold(Work.SIGNING_UP)
    rows = SignUp.objects.select_for_update(of=("self",)).select_related("tenant", "plan", "user")
    row: SignUp = rows.get(pk=sign_up.pk)
    return row


def _waiting(sign_up: SignUp) -> SignUp:
    row = _locked(sign_up)
    if row.state not in {SignUpState.CARD, SignUpState.APPROVAL}:
        raise SignUpError("sign-up-decided")
    return row


def _go_on(row: SignUp, moment: datetime) -> SignUp:
    """A plan that is not public any more, or another than an operator has given, begins only if one approves it."""
    if row.card and not _cards(row.tenant).exists():
        return row
    if not row.approval and row.plan.public and not row.tenant.subscriptions.exists():
        return _activate(row, "", moment)
    row.state = SignUpState.APPROVAL
    row.save(update_fields=["state"])
    return row


def _activate(row: SignUp, by: str, moment: datetime) -> SignUp:
    if row.user is None or not row.user.is_active:
        raise SignUpError("sign-up-nobody")
    subscriptions.subscribe(tenant=row.tenant, plan=row.plan, since=moment)
    row.credit = _give_credit(row, by, moment)
    row.state, row.decided_at, row.decided_by = SignUpState.ACTIVE, moment, by
    row.save()
    if not Membership.objects.filter(tenant=row.tenant, user=row.user).update(role=Role.OWNER):
        team.let_in(tenant=row.tenant, user=row.user, role=Role.OWNER)  # who had left it while they waited
    _mail(row, AccountMail.Kind.APPROVED, moment)
    return row


def _give_credit(row: SignUp, by: str, moment: datetime) -> int:
    """In smallest units; nothing to whom nobody has proved, and to a person or a card that had some before.

    What the gateway tells apart by no fingerprint, such as an account of a wallet, proves nobody: it could come again.
    """
    plan = row.plan
    proved = by or (row.card and _cards(row.tenant).exclude(fingerprint="").exists())
    if not plan.starting_credit or not proved or _had_credit(row):
        return 0
    wallet_terms.set_scheme(
        tenant=row.tenant, unit=plan.currency, scope=WalletScope.TENANT, overdraft=0, since=moment
    )
    grants.grant(
        wallet=Wallet.objects.get(tenant=row.tenant, unit=plan.currency),
        amount=plan.starting_credit,
        key="sign-up",
        who=by or BY_CARD,
        why="Starting credit",
        moment=moment,
    )
    return plan.starting_credit


def _had_credit(row: SignUp) -> bool:
    """The person, also under a variant of the address (`dan+2@`), or a card of the tenant under another person."""
    earlier = SignUp.objects.filter(credit__gt=0).exclude(pk=row.pk)
    prints = _cards(row.tenant).exclude(fingerprint="").values_list("fingerprint", flat=True)
    mailbox = re.escape(row.email.partition("@")[0].partition("+")[0])
    variants = Q(domain=row.domain, email__regex=rf"^{mailbox}(\+[^@]*)?@")
    cards = SavedMethod.objects.filter(fingerprint__in=list(prints)).exclude(tenant=row.tenant)
    return earlier.filter(Q(user=row.user_id) | variants | Q(tenant__in=cards.values("tenant"))).exists()


def _cards(tenant: Tenant) -> QuerySet[SavedMethod]:
    return SavedMethod.objects.filter(tenant=tenant, state=MethodState.USABLE)


def _end(row: SignUp, state: SignUpState, by: str, reason: str, moment: datetime) -> SignUp:
    Membership.objects.filter(tenant=row.tenant).delete()
    offboarding.archive_tenant(
        tenant=row.tenant, by=by, reason=reason or "The sign-up was withdrawn.", moment=moment
    )
    row.state, row.decided_at, row.decided_by, row.reason = state, moment, by, reason
    row.save()
    return row


def _mail(row: SignUp, kind: AccountMail.Kind, moment: datetime, reason: str = "") -> None:
    account_mails.write(
        kind=kind,
        to=row.email,
        tenant=row.tenant,
        moment=moment,
        values={"plan": row.plan.name, "reason": reason},
    )
