"""Waste rules: which jobs that do not use their GPUs are told of, or ended."""

from __future__ import annotations

from rest_framework import serializers

from billing.models import WasteRule
from billing.waste import rules
from portal.api.entry_fields import body_of
from portal.api.resources.operators.named_rules import NamedRules, OneNamedRule
from portal.config_file.waste import WasteRuleEntry
from portal.ops.waste import rule_data


class WasteRuleFields(body_of(WasteRuleEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A rule. The fields are those of `[[waste_rule]]` in a file for `apply`."""

    name = serializers.CharField(required=False, max_length=50, help_text="That of the address.")


class WasteRules(NamedRules):
    """The rules in force, by name."""

    serializer = WasteRuleFields
    in_force, data = staticmethod(WasteRule.objects.in_force), staticmethod(rule_data)


class OneWasteRule(OneNamedRule):
    """One rule, by its name. PUT creates or replaces it, DELETE ends it: what it has announced ends no job then."""

    write_scope = "jobs:act"
    serializer = request_serializer = WasteRuleFields
    entry = WasteRuleEntry
    in_force, data, end = (
        staticmethod(WasteRule.objects.in_force),
        staticmethod(rule_data),
        staticmethod(rules.end_rule),
    )
