"""Declared meters: what programs push sums of, and plans price."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse
from rest_framework import serializers

from clusters import meters
from clusters.models import DeclaredMeter
from portal.api import parameters
from portal.api.entry_fields import as_data, body_of, entry_of
from portal.api.fields import MomentField
from portal.api.problems import bad_request, not_found
from portal.api.resources.operators.endpoint import OperatorEndpoint, WritingEndpoint
from portal.config_file.apply import REFUSALS
from portal.config_file.meters import MeterEntry, meter_entry


class MeterFields(body_of(MeterEntry)):  # type: ignore[misc]  # its fields are those of the file
    """A meter. The fields are those of `[[meter]]` in a file for `apply`."""

    name = serializers.CharField(required=False, max_length=40, help_text="That of the address.")
    first_used_at = MomentField(
        read_only=True, allow_null=True, help_text="Since then only dimensions can be added."
    )


def _data(meter: DeclaredMeter) -> dict[str, Any]:
    used = meter.first_used_at
    return as_data(meter_entry(meter)) | {
        "first_used_at": used.isoformat().replace("+00:00", "Z") if used else None
    }


class Meters(OperatorEndpoint):
    """All declared meters, by name. What runs hold is metered without being declared."""

    serializer = MeterFields
    lists = True
    parameters = parameters.LISTS

    def representations(self, rows: Any, **context: Any) -> Any:
        del context
        return [_data(row) for row in rows]

    def get(self, request: Any) -> HttpResponse:
        del request
        return self.page(DeclaredMeter.objects.all(), order=("name",))


class OneMeter(WritingEndpoint):
    """One declared meter, by its name. PUT declares it; as soon as a sum of it came, only dimensions can be added.

    DELETE takes away a meter of which no sum came and that no plan charges.
    """

    write_scope = "plans:write"
    serializer = MeterFields
    request_serializer = MeterFields
    refusals = REFUSALS

    def representation(self, row: Any, **context: Any) -> Any:
        del context
        return _data(row)

    def get(self, request: Any, name: str) -> HttpResponse:
        del request
        return self.one(DeclaredMeter.objects.get(name=name))

    def put(self, request: Any, name: str) -> HttpResponse:
        del request
        before = DeclaredMeter.objects.select_for_update().filter(name=name).first()
        if before is None:
            self.match_new()
        else:
            self.match(before)
        values = self.body()
        if values.get("name") not in {None, name}:
            sentence = "name is not that of the address."
            raise bad_request(sentence, ("/name", sentence))
        return self.one(entry_of(MeterEntry, values | {"name": name}, label=f'meter "{name}"').write())

    def delete(self, request: Any, name: str) -> HttpResponse:
        del request
        meter = DeclaredMeter.objects.select_for_update().filter(name=name).first()
        if meter is None:
            raise not_found()
        self.match(meter)
        meters.remove_meter(meter=meter)
        return HttpResponse(status=204)
