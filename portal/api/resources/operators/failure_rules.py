"""Failure rules: which jobs are credited because their GPU or node failed."""

from __future__ import annotations

from rest_framework import serializers

from billing.service_credits import rules
from portal.api.entry_fields import body_of
from portal.api.resources.operators.named_rules import NamedRules, OneNamedRule
from portal.config_file.failures import FailureRuleEntry
from portal.ops.service_credits import rule_data


class FailureRuleFields(body_of(FailureRuleEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A rule. The fields are those of `[[failure_rule]]` in a file for `apply`."""

    name = serializers.CharField(required=False, max_length=50, help_text="That of the address.")


class FailureRules(NamedRules):
    """The rules in force, by name."""

    serializer = FailureRuleFields
    in_force, data = staticmethod(rules.list_rules), staticmethod(rule_data)


class OneFailureRule(OneNamedRule):
    """One rule, by its name. PUT creates or replaces it, DELETE ends it: what was credited stays."""

    write_scope = "credits:write"
    serializer = request_serializer = FailureRuleFields
    entry = FailureRuleEntry
    in_force, data, end = (
        staticmethod(rules.list_rules),
        staticmethod(rule_data),
        staticmethod(rules.end_rule),
    )
