"""What stories about quotas begin with: a quota, usage that costs so much, a pass, and what was told."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from typing import Any

from django.core import mail

from billing.emails import delivery
from billing.models import Quota, QuotaEvery, QuotaMeasure
from billing.quotas import quotas, review
from billing.quotas.quotas import Setter
from billing.quotas.review import ReviewTally
from billing.quotas.terms import QuotaTerms
from clusters.models import Cluster
from portal.core.events.models import Event, EventType
from portal.core.tenants.models import Role, Tenant
from tests import builders


def a_quota(tenant: Tenant, name: str = "monthly", made: str = "2026-03-01", **said: Any) -> Quota:
    """A quota, and the first pass over it."""
    row = an_unseen_quota(tenant, name, made, **said)
    look(made)
    return row


def an_unseen_quota(tenant: Tenant, name: str, made: str = "2026-03-01", **said: Any) -> Quota:
    terms: dict[str, Any] = {
        "measure": QuotaMeasure.MONEY,
        "amount": Decimal(1000),
        "every": QuotaEvery.MONTH,
    } | said
    moment = builders.at(made)
    return quotas.set_quota(
        tenant=tenant, name=name, terms=QuotaTerms(**terms), by=Setter.OPERATOR, moment=moment
    )


def a_vision(cluster: Cluster, **roles: Role) -> Tenant:
    """Vision pays 2.00 per GPU-hour on the cluster and is Ann's; beside her those named are in it."""
    tenant = builders.a_tenant("vision", plan=builders.a_plan(), accounts=[(cluster, "vision")])
    builders.a_person("ann@vision.example", tenant, Role.OWNER)
    for name, role in roles.items():
        builders.a_person(f"{name}@vision.example", tenant, role)
    return tenant


def look(moment: str) -> ReviewTally:
    """A pass, and the e-mails that it has written."""
    done = review.review_quotas(moment=builders.at(moment))
    delivery.send_notices(moment=builders.at(moment))
    return done


def read_through(cluster: Cluster, moment: str) -> None:
    """Its scheduler was read up to then, whatever ran."""
    Cluster.objects.filter(pk=cluster.pk).update(complete_through=builders.at(moment))


def spend(cluster: Cluster, dollars: str, day: str = "2026-03-02", **fields: Any) -> str:
    """A job of 100 GPUs that costs so much, at 2.00 per GPU-hour; its id."""
    seconds = int(Decimal(dollars) * 18)
    end = builders.at(f"{day} 00:00") + timedelta(seconds=seconds)
    fact = builders.a_job(**{"started": f"{day} 00:00", "ended": int(end.timestamp()), "gpus": 100} | fields)
    builders.ingest(cluster, fact)
    return fact.job_id


def shrink(cluster: Cluster, job: str, dollars: str, day: str = "2026-03-02") -> None:
    """The job turns out to have cost so much."""
    spend(cluster, dollars, day, job_id=job)


def subjects() -> list[str]:
    return [str(message.subject) for message in mail.outbox]


def told_events() -> list[str]:
    rows = Event.objects.filter(type=EventType.QUOTA_THRESHOLD).order_by("pk")
    return list(rows.values_list("state", flat=True))
