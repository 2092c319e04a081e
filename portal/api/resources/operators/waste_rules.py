"""Waste rules: which jobs that do not use their GPUs are told of, or ended."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.models import WasteRule
from billing.waste import rules
from portal.api import parameters
from portal.api.entry_fields import body_of, entry_of
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint
from portal.config_file.apply import REFUSALS
from portal.config_file.waste import WasteRuleEntry
from portal.ops.waste import rule_data


class WasteRuleFields(body_of(WasteRuleEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A rule. The fields are those of `[[waste_rule]]` in a file for `apply`."""

    name = serializers.CharField(required=False, max_length=50, help_text="That of the address.")


class WasteRules(OperatorEndpoint):
    """The rules in force, by name."""

    serializer = WasteRuleFields
    lists = True
    parameters = parameters.LISTS

    def representations(self, rows: Any, **context: Any) -> Any:
        del context
        return [rule_data(row) for row in rows]

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(WasteRule.objects.in_force(), order=("name",))


class OneWasteRule(WritingEndpoint):
    """One rule, by its name. PUT creates or replaces it, DELETE ends it: what it has announced ends no job then."""

    write_scope = "jobs:act"
    serializer = WasteRuleFields
    request_serializer = WasteRuleFields
    refusals = REFUSALS

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        return rule_data(row)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(WasteRule.objects.in_force().get(name=name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        self._match(name)
        values = self.body()
        if values.get("name") not in {None, name}:
            sentence = "name is not that of the address."
            raise bad_request(sentence, ("/name", sentence))
        entry = entry_of(WasteRuleEntry, values | {"name": name}, label=f'waste_rule "{name}"')
        return self.one(entry.write(moment=self.moment.replace(microsecond=0)))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        if not self._match(name):
            raise not_found()
        rules.end_rule(name=name, moment=self.moment.replace(microsecond=0))
        return HttpResponse(status=204)

    def _match(self, name: str) -> bool:
        """Whether there is one. Raises ProblemError 412 where `If-Match` names another."""
        before = WasteRule.objects.in_force().select_for_update().filter(name=name).first()
        if before is None:
            self.match_new()
        else:
            self.match(before)
        return before is not None
