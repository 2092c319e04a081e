"""What every address of operators shares: it is read with `ops:read`, across all tenants."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from django.db.models import QuerySet

from billing.models import Invoice, InvoiceState
from clusters.models import Cluster
from portal.api import identifiers, parameters
from portal.api.problems import bad_request, not_found
from portal.api.views import Endpoint
from portal.core.audit.actor import acting_as
from portal.core.tenants.models import Tenant

CLUSTER = parameters.text("cluster", "Name of a cluster.", longest=100, example="gpu1")
TENANT = parameters.text("tenant", "Slug of a tenant.", longest=50, example="vision-lab")


class OperatorEndpoint(Endpoint):
    """An address of operators: keys of tenants do not have its scope."""

    scope = "ops:read"

    def narrowed(self, rows: QuerySet[Any, Any], **paths: str) -> QuerySet[Any, Any]:
        """Those that the query's parameters name, each by its path of columns."""
        for name, path in paths.items():
            if self.query.get(name):
                rows = rows.filter(**{f"{path}__in": self.query[name]})
        return rows


class WritingEndpoint(OperatorEndpoint):
    """One that is written, too: PUT creates or replaces, PATCH changes what is given, each with a preview."""

    write_parameters: ClassVar[Sequence[parameters.Parameter]] = (parameters.DRY_RUN,)

    def by(self, reason: str = "") -> AbstractContextManager[None]:
        """The history has the reason, too."""
        return acting_as(self.client.name, why=reason)


def tenant_of(slug: str) -> Tenant:
    """Raises Tenant.DoesNotExist, which is 404."""
    return Tenant.objects.get(slug=slug)


def tenant_in_body(slug: str, pointer: str = "/tenant") -> Tenant:
    """The tenant that a body names. Raises ProblemError 400."""
    row = Tenant.objects.filter(slug=slug).first()
    if row is None:
        sentence = f"There is no tenant {slug[:50]!r}."
        raise bad_request(sentence, (pointer, sentence))
    return row


def cluster_in_body(name: str, pointer: str = "/cluster") -> Cluster:
    """The cluster that a body names. Raises ProblemError 400."""
    row = Cluster.objects.filter(name=name).first()
    if row is None:
        sentence = f"There is no cluster {name[:100]!r}."
        raise bad_request(sentence, (pointer, sentence))
    return row


def invoice_of(name: str) -> Invoice:
    """An issued or void document, by its id or number. Raises ProblemError 404."""
    rows = Invoice.objects.filter(state__in=[InvoiceState.ISSUED, InvoiceState.VOID])
    rows = rows.select_related("tenant", "period")
    matching = (
        rows.filter(pk=identifiers.read("inv", name)) if name.startswith("inv_") else rows.filter(number=name)
    )
    invoice: Invoice | None = matching.first()
    if invoice is None:
        raise not_found()
    return invoice
