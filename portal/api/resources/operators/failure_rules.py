"""Failure rules: which jobs are credited because their GPU or node failed."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from billing.service_credits import rules
from portal.api import parameters
from portal.api.entry_fields import body_of, entry_of
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint
from portal.config_file.apply import REFUSALS
from portal.config_file.failures import FailureRuleEntry
from portal.ops.service_credits import rule_data


class FailureRuleFields(body_of(FailureRuleEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A rule. The fields are those of `[[failure_rule]]` in a file for `apply`."""

    name = serializers.CharField(required=False, max_length=50, help_text="That of the address.")


class FailureRules(OperatorEndpoint):
    """The rules in force, by name."""

    serializer = FailureRuleFields
    lists = True
    parameters = parameters.LISTS

    def representations(self, rows: Any, **context: Any) -> Any:
        del context
        return [rule_data(row) for row in rows]

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(rules.list_rules(), order=("name",))


class OneFailureRule(WritingEndpoint):
    """One rule, by its name. PUT creates or replaces it, DELETE ends it: what was credited stays."""

    write_scope = "credits:write"
    serializer = FailureRuleFields
    request_serializer = FailureRuleFields
    refusals = REFUSALS

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        return rule_data(row)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(rules.list_rules().get(name=name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        self._match(name)
        values = self.body()
        if values.get("name") not in {None, name}:
            sentence = "name is not that of the address."
            raise bad_request(sentence, ("/name", sentence))
        entry = entry_of(FailureRuleEntry, values | {"name": name}, label=f'failure_rule "{name}"')
        return self.one(entry.write(moment=self.moment.replace(microsecond=0)))

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        if not self._match(name):
            raise not_found()
        rules.end_rule(name=name, moment=self.moment.replace(microsecond=0))
        return HttpResponse(status=204)

    def _match(self, name: str) -> bool:
        """Whether there is one. Raises ProblemError 412 where `If-Match` names another."""
        before = rules.list_rules().select_for_update().filter(name=name).first()
        if before is None:
            self.match_new()
        else:
            self.match(before)
        return before is not None
