"""Applying files as Op does, for the stories of configuration."""

from __future__ import annotations

import io
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from billing.models import PeriodTotal, Price
from billing.rules.money import decimal_text
from portal.ops.cli import RefusedError

PHILLY = """
[[cluster]]
name = "philly"
kind = "import"
timezone = "UTC"

[[plan]]
name = "standard"
currency = "USD"
charges = ["gpu"]
[[plan.price]]
meter = "gpu-hour"
where = { gpu_model = "a100" }
unit_price = "1.10"
from = 2026-01-01

[[tenant]]
slug = "vision-lab"
name = "Vision Lab"
plan = "standard"
plan_from = 2026-01-01
accounts = [{ cluster = "philly", account = "vision" }]
"""
"""One cluster, one plan, one tenant: what most stories begin with."""


class Op:
    """The operator at a shell, with one file that she edits."""

    def __init__(self, directory: Path) -> None:
        self.file = directory / "site.toml"

    def applies(self, text: str, *options: str) -> list[str]:
        """The lines that `apply` prints."""
        self.file.write_text(text)
        return run("apply", str(self.file), *options).splitlines()

    def is_refused(self, text: str) -> list[str]:
        """The sentences with which the file is refused; the exit code has to say so."""
        self.file.write_text(text)
        with pytest.raises(RefusedError) as refusal:
            run("apply", str(self.file))
        assert refusal.value.returncode == 2
        *sentences, last = refusal.value.sentences
        assert last == "Nothing was changed."
        return sentences


def run(command: str, *arguments: str) -> str:
    out = io.StringIO()
    call_command(command, *arguments, stdout=out)
    return out.getvalue()


def run_json(command: str, *arguments: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run(command, *arguments, "--json"))
    return answer


def owed(tenant: str) -> dict[str, str]:
    """GPU-hours × price of each price that the tenant was charged, as `{"1.1": "2.2"}`: price → amount."""
    amounts: dict[str, str] = {}
    charged = PeriodTotal.objects.filter(tenant__slug=tenant, verdict="charged", resource="gpu").exclude(
        units=0
    )
    for total in charged:
        price = Price.objects.get(pk=total.price_id or 0)
        amount = Fraction(total.units * price.unit_price) / total.share_den / 3600
        amounts[f"{price.unit_price.normalize():f}"] = decimal_text(amount, 6)
    return amounts


def gpu_seconds(tenant: str) -> int:
    """All whole-GPU seconds that are rated to the tenant."""
    totals = PeriodTotal.objects.filter(tenant__slug=tenant, resource="gpu")
    return sum(int(total.units) for total in totals)
