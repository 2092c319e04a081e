"""Rules that operators set by name, with the fields of an entry of a file for `apply`: their list, and one."""

from __future__ import annotations

from typing import Any, ClassVar

from django.db.models import QuerySet
from django.http import HttpResponse

from portal.api import parameters
from portal.api.entry_fields import entry_of
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint
from portal.config_file.apply import REFUSALS


class _Named:
    """`in_force` lists the rules, `data` is what is answered of one."""

    in_force: ClassVar[staticmethod[[], QuerySet[Any]]]
    data: ClassVar[staticmethod[..., Any]]


class NamedRules(_Named, OperatorEndpoint):
    lists = True
    parameters = parameters.LISTS

    def representations(self, rows: Any, **context: Any) -> Any:
        del context
        return [type(self).data(row) for row in rows]

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(type(self).in_force(), order=("name",))


class OneNamedRule(_Named, WritingEndpoint):
    """`end` ends the rule of a name."""

    refusals = REFUSALS
    entry: ClassVar[type[Any]]
    end: ClassVar[staticmethod[..., bool]]

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        return type(self).data(row)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(type(self).in_force().get(name=name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        self._match(name)
        values = self.body()
        if values.get("name") not in {None, name}:
            sentence = "name is not that of the address."
            raise bad_request(sentence, ("/name", sentence))
        entry = entry_of(self.entry, values | {"name": name}, label=f'{self.entry.noun} "{name}"')
        return self.one(entry.write(moment=self.moment.replace(microsecond=0)))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        if not self._match(name):
            raise not_found()
        type(self).end(name=name, moment=self.moment.replace(microsecond=0))
        return HttpResponse(status=204)

    def _match(self, name: str) -> bool:
        """Whether there is one. Raises ProblemError 412 where `If-Match` names another."""
        before = type(self).in_force().select_for_update().filter(name=name).first()
        if before is None:
            self.match_new()
        else:
            self.match(before)
        return before is not None
