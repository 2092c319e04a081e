"""Meters that the operator declares: what programs push sums of, in which unit, by which dimensions."""

from __future__ import annotations

from typing import ClassVar

import pgtrigger
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q

from portal.core.audit import track

NAME = r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$"
LONGEST_NAME = 40
DIMENSION = r"^[a-z][a-z0-9_]{0,39}$"
MOST_PARTS = 10**9
JOULES = 3_600_000
"""In a kWh: the parts of a meter by which a cluster counts energy."""

_GUARD = """
IF TG_OP = 'DELETE' OR (to_jsonb(NEW) - '{dimensions,first_used_at}'::text[])
                       IS DISTINCT FROM (to_jsonb(OLD) - '{dimensions,first_used_at}'::text[])
   OR NOT NEW.dimensions @> OLD.dimensions OR NEW.first_used_at IS DISTINCT FROM OLD.first_used_at THEN
    RAISE EXCEPTION 'Usage was counted by this meter: it stays, and dimensions may only be added.';
END IF;
RETURN NEW;
"""


@track()
class DeclaredMeter(models.Model):
    """What is counted besides what runs hold: tokens, stored bytes, licenses, kWh.

    Usage comes as sums of `counted`, exact to `decimals`. Prices are per `unit`, which is `per_unit` of `counted`.
    """

    name = models.CharField(
        max_length=LONGEST_NAME, unique=True, help_text="As events, prices and plans name it: llm-tokens."
    )
    title = models.CharField(max_length=60, help_text="As invoices call it: LLM tokens.")
    unit = models.CharField(
        max_length=40, help_text="What a price is per, as it is read behind a number: million tokens."
    )
    counted = models.CharField(
        max_length=40, blank=True, help_text="What a quantity counts: tokens. Left out, the unit."
    )
    per_unit = models.BigIntegerField(default=1, help_text="How many of those make one unit.")
    decimals = models.PositiveSmallIntegerField(default=0, help_text="Decimals that a quantity may have.")
    dimensions = ArrayField(
        models.CharField(max_length=LONGEST_NAME),
        default=list,
        blank=True,
        help_text="By which a sum may be told apart: model, direction.",
    )
    unit_code = models.CharField(
        max_length=3,
        default="C62",
        help_text="The unit's code for e-invoices, of UN/ECE recommendation 20: C62 where it has none.",
    )
    first_used_at = models.DateTimeField(
        null=True,
        editable=False,
        help_text="When the first sum of it came: since then only dimensions are added.",
    )

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(name__regex=NAME), name="meter_name_is_one_word"),
            models.CheckConstraint(
                condition=~Q(title="") & ~Q(unit="") & ~Q(counted=""), name="meter_is_said_in_words"
            ),
            models.CheckConstraint(
                condition=Q(per_unit__gte=1, per_unit__lte=MOST_PARTS, decimals__lte=9),
                name="meter_unit_is_counted",
            ),
            models.CheckConstraint(
                condition=Q(unit_code__regex="^[A-Z0-9]{2,3}$"), name="meter_unit_code_is_one"
            ),
        ]
        triggers: ClassVar = [
            pgtrigger.Trigger(
                name="used_meter_is_kept",
                when=pgtrigger.Before,
                operation=pgtrigger.Update | pgtrigger.Delete,
                condition=pgtrigger.Condition("OLD.first_used_at IS NOT NULL"),
                func=_GUARD,
            )
        ]

    def __str__(self) -> str:
        return self.name

    @property
    def parts(self) -> int:
        """The smallest quantities that make one unit."""
        return int(self.per_unit * 10**self.decimals)
