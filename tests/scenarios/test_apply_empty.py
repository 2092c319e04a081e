"""A text may be left out of a file; where nothing can be billed without it, it is not emptied."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db.models import CharField, Model

from billing.models import Seller
from clusters.models import Cluster
from portal.core.tenants.models import Tenant
from tests.scenarios.configuring import Op

pytestmark = pytest.mark.django_db


@pytest.fixture
def op(tmp_path: Path) -> Op:
    return Op(tmp_path)


@pytest.mark.parametrize(
    ("table", "start", "model"),
    [
        ("cluster", '[[cluster]]\nname = "atlas"\n', Cluster),
        ("tenant", '[[tenant]]\nslug = "bio"\nname = "Biology"\n', Tenant),
        ("seller", '[seller]\nname = "Lab"\n', Seller),
    ],
)
def test_no_text_is_emptied_without_which_there_is_nothing_to_bill_by(
    op: Op, table: str, start: str, model: type[Model]
) -> None:
    """Every text that the table may say and that its column may not lack, by the model: no key is forgotten."""
    allowed = op.is_refused(f'{start}colour = "red"\n')[0].partition("allowed: ")[2].rstrip(".").split(", ")
    columns = {field.name: field for field in model._meta.get_fields() if isinstance(field, CharField)}
    needed = [
        key for key in allowed if key in columns and not columns[key].blank and not columns[key].choices
    ]
    assert set(needed) >= {"cluster": {"timezone"}, "tenant": {"name", "timezone"}, "seller": {"name"}}[table]
    for key in needed:
        lines = [line for line in start.splitlines() if not line.startswith(f"{key} ")]
        for empty in ("", " "):
            sentence = op.is_refused("\n".join([*lines, f'{key} = "{empty}"']))[0]
            assert sentence.endswith(f": {key} is empty.")
