"""Whether people sign up by themselves, and what operators ask of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date

from django.db import transaction
from django.db.models import Exists, OuterRef, QuerySet

from billing.models import Plan, PlanVersion, SignUpPolicy
from billing.payments import gateway_access
from billing.sign_up.messages import SENTENCES
from portal.core.tenants import account_mails
from portal.errors import CodedError
from portal.excerpt import quoted

MOST_A_DAY = 1000
DOMAIN = re.compile(r"(?=.{1,253}$)([a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9-]{2,63}")


class SignUpError(CodedError):
    """It cannot be done so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class SignUpTerms:
    """What is asked of people; `domain_limit` is of one e-mail domain within 24 hours, 0: none."""

    open: bool = False
    approval: bool = True
    card: bool = False
    domain_limit: int = 5
    refused_domains: Sequence[str] = ()

    def check(self) -> None:
        """Raises SignUpError."""
        if not 0 <= self.domain_limit <= MOST_A_DAY:
            raise SignUpError("sign-up-limit", most=MOST_A_DAY)
        for domain in self.refused_domains:
            if not DOMAIN.fullmatch(domain.lower()):
                raise SignUpError("sign-up-no-domain", domain=quoted(domain))


TERMS = tuple(SignUpTerms.__dataclass_fields__)


def get_policy() -> SignUpPolicy:
    """As operators set it; closed where nobody did. One query."""
    return SignUpPolicy.objects.first() or SignUpPolicy(pk=1)


def terms_of(policy: SignUpPolicy) -> SignUpTerms:
    return SignUpTerms(**{name: getattr(policy, name) for name in TERMS})


@transaction.atomic
def set_policy(*, terms: SignUpTerms) -> SignUpPolicy:
    """Have people sign up so from now on; again, nothing changes. Who waits already, waits for what was asked then.

    Raises SignUpError.
    """
    terms.check()
    values = asdict(terms) | {"refused_domains": sorted({domain.lower() for domain in terms.refused_domains})}
    row = SignUpPolicy.objects.select_for_update().first()
    if row is None:
        return SignUpPolicy.objects.create(pk=1, **values)
    if any(getattr(row, name) != value for name, value in values.items()):
        for name, value in values.items():
            setattr(row, name, value)
        row.save()
    return row


def find_obstacles(policy: SignUpPolicy) -> list[str]:
    """What keeps an open sign-up closed all the same, for operators: no query."""
    obstacles = []
    if not account_mails.can_send():
        obstacles.append("E-mail is not configured (EMAIL_URL and PORTAL_URL), so no address can be proved.")
    if policy.card and not gateway_access.is_configured():
        obstacles.append("A card is needed, and no payment gateway is configured (STRIPE_SECRET_KEY).")
    return obstacles


def is_open(policy: SignUpPolicy | None = None) -> bool:
    """Whether people can sign up now. One query, or none where the policy is given."""
    row = policy or get_policy()
    return row.open and not find_obstacles(row)


def refuse_domain(email: str, policy: SignUpPolicy) -> str:
    """The domain of the address. Raises SignUpError for one that operators refuse, or that is below one."""
    domain = email.rpartition("@")[2]
    if any(domain == one or domain.endswith(f".{one}") for one in policy.refused_domains):
        raise SignUpError("sign-up-domain", domain=domain)
    return domain


def list_public_plans(*, today: date) -> QuerySet[Plan]:
    """The plans that people may choose among: public, and with a version in force. By name."""
    begun = PlanVersion.objects.filter(plan=OuterRef("pk"), effective_from__lte=today)
    return Plan.objects.filter(Exists(begun), public=True).order_by("name")
