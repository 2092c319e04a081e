"""How the operator calls itself, and looks, where people would else read ClusterTab."""

from __future__ import annotations

from typing import ClassVar

from django.db import models
from django.db.models import Q

from portal.core.audit import track

LONGEST_NAME = 40  # characters


class BrandLogo(models.Model):
    """A logo as we encoded it, under the digest of its bytes. It never changes and stays: documents name it."""

    digest = models.CharField(
        max_length=64, primary_key=True, help_text="SHA-256 of the PNG, in hexadecimal."
    )
    png = models.BinaryField()
    width = models.PositiveSmallIntegerField(help_text="Pixels.")
    height = models.PositiveSmallIntegerField(help_text="Pixels.")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(width__gt=0, height__gt=0), name="brand_logo_has_a_size"),
        ]

    def __str__(self) -> str:
        return self.digest[:12]


@track()
class Brand(models.Model):
    """The operator's own name, color and logo; what is empty is ClusterTab's. One row, or none."""

    id = models.SmallIntegerField(primary_key=True, default=1, editable=False)
    name = models.CharField(max_length=LONGEST_NAME, blank=True, help_text="Empty: ClusterTab.")
    color = models.CharField(max_length=7, blank=True, help_text="#rrggbb. Empty: the blue of ClusterTab.")
    logo = models.ForeignKey(BrandLogo, on_delete=models.PROTECT, null=True, blank=True, related_name="+")

    class Meta:
        constraints: ClassVar = [
            models.CheckConstraint(condition=Q(id=1), name="there_is_one_brand"),
            models.CheckConstraint(
                condition=Q(color="") | Q(color__regex="^#[0-9a-f]{6}$"), name="brand_color_is_a_color"
            ),
        ]

    def __str__(self) -> str:
        return self.name or "ClusterTab"
