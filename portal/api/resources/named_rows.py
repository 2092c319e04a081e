"""What a tenant has by name, with terms that somebody set and figures that move: quotas, limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from django.http import HttpResponse

from portal.api import cursors
from portal.api.answers import as_json
from portal.api.parameters import DRY_RUN, LISTS, TENANT, Parameter
from portal.api.problems import not_found
from portal.api.views import TenantEndpoint
from portal.core.tenants.models import Tenant


class NamedEndpoint(TenantEndpoint):
    """The key's tenant, or the one that an operator names; of a key of one project that project's rows alone."""

    acts = True
    parameters: ClassVar[Sequence[Parameter]] = (TENANT,)
    write_parameters = (TENANT, DRY_RUN)

    def in_force(self, tenant: Tenant | None) -> Any:
        """The rows of the tenant, of all where it is None."""
        raise NotImplementedError

    def data(self, rows: Sequence[Any]) -> list[dict[str, Any]]:
        """Each with its figures as they are now."""
        raise NotImplementedError

    def terms(self, row: Any) -> Mapping[str, Any]:
        """What was set: figures that move refuse no change."""
        raise NotImplementedError

    def rows(self) -> Any:
        rows = self.in_force(self.tenant)
        project = self.client.key.project_id
        return rows if project is None else rows.filter(project=project)

    def row(self, name: str) -> Any:
        """None where there is none."""
        return self.rows().filter(name=name, tenant=self.needed_tenant()).first()

    def answer(self, row: Any) -> HttpResponse:
        (data,) = self.data([row])
        return self.tagged(as_json(self.representation(data)), self.terms(row))

    def match_terms(self, row: Any) -> None:
        """Raises ProblemError 412 where `If-Match` names other terms than it has, or there is none."""
        if row is None:
            self.match_new()
        else:
            self.match_settled(self.terms(row))


class NamedList(NamedEndpoint):
    lists = True
    parameters = (TENANT, *LISTS)

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(self.rows(), order=("pk",))

    def prepared(self, page: cursors.Page[Any]) -> Sequence[Any]:
        return self.data(list(page.rows))


class OneNamed(NamedEndpoint):
    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        row = self.row(name)
        if row is None:
            raise not_found()
        return self.answer(row)
