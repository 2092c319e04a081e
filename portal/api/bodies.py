"""Bodies of requests: what is no field of theirs is refused by name, like a misspelt parameter."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rest_framework import serializers

from portal.api.fields import MoneyField

__all__ = ["Body", "MoneyField", "NoBody"]


class Body(serializers.Serializer[Any]):
    """A JSON object of the fields that it declares."""

    def to_internal_value(self, data: Any) -> Any:
        if isinstance(data, Mapping) and (unknown := sorted({*data} - {*self.fields})):
            known = ", ".join(sorted(self.fields)) or "none"
            sentence = f"There is no such field; known are: {known}."
            raise serializers.ValidationError({name[:80]: [sentence] for name in unknown})
        return super().to_internal_value(data)


class NoBody(Body):
    """Nothing: an empty object, or no body at all."""
