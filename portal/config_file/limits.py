"""What a tenant may hold at once, in a configuration file and in the bodies of the API."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, ClassVar

from billing.limits.limits import MOST, LimitTerms, LimitTermsError, set_limit
from billing.models import ConcurrencyLimit
from billing.models.quota_terms import LONGEST_NAME, LONGEST_TEXT
from portal.config_file.entries import Entry, Rule
from portal.core.tenants.models import Tenant
from portal.excerpt import quoted

Text = Annotated[str, Rule(longest=LONGEST_TEXT)]
Number = Annotated[int, Rule(lowest=1, highest=MOST)]


class LimitEntry(Entry, frozen=True, kw_only=True):
    noun: ClassVar[str] = "limit"
    named_by: ClassVar[str] = "name"
    name: Annotated[str, Rule(longest=LONGEST_NAME)]
    gpus: Number | None = None
    jobs: Number | None = None
    gpu_model: Text = ""
    project: Annotated[str, Rule(longest=200)] = ""
    account: Text = ""
    cluster: Text = ""

    @property
    def identity(self) -> str:
        return self.name

    def terms(self, tenant: Tenant) -> LimitTerms:
        """As the use case takes it. Raises LimitTermsError where the project is none of the tenant's."""
        project = tenant.projects.filter(name=self.project).first() if self.project else None
        if self.project and project is None:
            raise LimitTermsError("limit-project", tenant=tenant, project=quoted(self.project))
        return LimitTerms(
            gpus=self.gpus,
            jobs=self.jobs,
            gpu_model=self.gpu_model,
            project=project,
            account=self.account,
            cluster=self.cluster,
        )

    def write(self, tenant: Tenant, *, moment: datetime) -> ConcurrencyLimit:
        """Have the limit be so; applied again, nothing changes. Raises LimitTermsError."""
        return set_limit(tenant=tenant, name=self.name, terms=self.terms(tenant), moment=moment)


def described(row: ConcurrencyLimit) -> Mapping[str, Any]:
    """What a list of changes says of it, by its keys in a file."""
    names = ("gpus", "jobs", "gpu_model", "account", "cluster")
    return {name: getattr(row, name) for name in names} | {"project": row.project and row.project.name}
