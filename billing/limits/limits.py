"""Setting and ending limits of what is held at once, and which accounts they are of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from django.core.exceptions import ValidationError
from django.core.validators import validate_slug
from django.db import transaction
from django.db.models import Q, QuerySet

from billing.catalog.tenant_lock import lock
from billing.limits.messages import SENTENCES
from billing.models import ConcurrencyLimit
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from clusters.models import Cluster
from portal.core.tenants.models import Ownership, Project, Tenant
from portal.errors import CodedError
from portal.excerpt import quoted

MOST = 1_000_000
COLUMNS = ("project", "account", "cluster", "gpu_model", "gpus", "jobs")


class LimitTermsError(CodedError):
    """A limit cannot be so; the message says why and what to do."""

    sentences = SENTENCES


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitTerms:
    """What each account in scope may hold at once; None: as many as there are. Texts of the scope: "" is any."""

    gpus: int | None = None
    jobs: int | None = None
    gpu_model: str = ""
    project: Project | None = None
    account: str = ""
    cluster: str = ""

    def check(self) -> None:
        """Raises LimitTermsError."""
        if self.gpus is None and self.jobs is None:
            raise LimitTermsError("limit-empty")
        if self.gpu_model and self.gpus is None:
            raise LimitTermsError("limit-model")
        for number in (self.gpus, self.jobs):
            if number is not None and not 1 <= number <= MOST:
                raise LimitTermsError("limit-range", number=number, most=MOST)
        texts = (self.gpu_model, self.account, self.cluster)
        if any(len(text) > LONGEST_TEXT for text in texts) or set(self.gpu_model) & set(",=/"):
            raise LimitTermsError("limit-text")
        if self.cluster and not Cluster.objects.filter(name=self.cluster).exists():
            raise LimitTermsError("limit-cluster", cluster=quoted(self.cluster))


@transaction.atomic
def set_limit(*, tenant: Tenant, name: str, terms: LimitTerms, moment: datetime) -> ConcurrencyLimit:
    """Have the tenant's limit of this name be so; again with the same, nothing changes. By operators alone.

    A worker writes it to the schedulers. Raises LimitTermsError.
    """
    _check_name(name)
    terms.check()
    tenant = lock(tenant)
    values = {column: getattr(terms, column) for column in COLUMNS}
    row = ConcurrencyLimit.objects.in_force().filter(tenant=tenant, name=name).first()
    if row is None:
        created: ConcurrencyLimit = ConcurrencyLimit.objects.create(
            tenant=tenant, name=name, created_at=moment, **values
        )
        return created
    if any(getattr(row, column) != value for column, value in values.items()):
        for column, value in values.items():
            setattr(row, column, value)
        row.save()
    found: ConcurrencyLimit = row
    return found


@transaction.atomic
def end_limit(*, tenant: Tenant, name: str, moment: datetime) -> bool:
    """End it: its accounts have the limits from before. False where there is none of this name (any more)."""
    tenant = lock(tenant)
    row = ConcurrencyLimit.objects.in_force().filter(tenant=tenant, name=name).first()
    if row is None:
        return False
    row.ended_at = moment
    row.save(update_fields=["ended_at"])
    return True


def list_limits(tenant: Tenant | None = None) -> QuerySet[ConcurrencyLimit]:
    """Those in force, of one tenant or of all, by tenant and name."""
    rows: QuerySet[ConcurrencyLimit] = ConcurrencyLimit.objects.in_force().select_related("tenant", "project")
    if tenant is not None:
        rows = rows.filter(tenant=tenant)
    return rows.order_by("tenant__slug", "name", "pk")


def load_accounts(tenants: Collection[int], *, moment: datetime) -> Mapping[int, list[Ownership]]:
    """By tenant what it owns now, with accounts and clusters. One query."""
    rows = Ownership.objects.filter(Q(until=None) | Q(until__gt=moment), tenant__in=tenants)
    rows = rows.filter(Q(since=None) | Q(since__lte=moment)).select_related("account__cluster")
    by_tenant: dict[int, list[Ownership]] = defaultdict(list)
    for row in rows.order_by("account__cluster__name", "account__name"):
        by_tenant[row.tenant_id].append(row)
    return by_tenant


def in_scope(limit: ConcurrencyLimit | LimitTerms, owned: Sequence[Ownership]) -> list[Ownership]:
    """Those of the accounts that the limit is of."""
    project = limit.project.pk if limit.project is not None else None
    return [
        row
        for row in owned
        if project in (None, row.project_id)
        and limit.account in ("", row.account.name)
        and limit.cluster in ("", row.account.cluster.name)
    ]


def _check_name(name: str) -> None:
    try:
        validate_slug(name)
    except ValidationError as error:
        raise LimitTermsError("limit-name") from error
    if len(name) > LONGEST_NAME or name != name.lower():
        raise LimitTermsError("limit-name")
