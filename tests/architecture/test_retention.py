"""Every table of the database is of one kind of the table of retention, in the code and in the docs."""

from __future__ import annotations

import re
from collections import Counter

from django.apps import apps

from portal.env import ROOT
from portal.ops import old_rows
from portal.ops.retention import KINDS

APART = {"migrations.Migration"}
DOCS = ROOT / "docs" / "reference" / "retention.md"


def test_every_table_is_of_one_kind() -> None:
    """A new model has to say how long its rows stay: give it to a kind of `portal.ops.retention`."""
    models = {model._meta.label for model in apps.get_models(include_auto_created=True)} - APART
    named = Counter(name for kind in KINDS for name in kind.models)
    assert {name for name, times in named.items() if times > 1} == set()
    assert models - named.keys() == set()
    assert named.keys() - models == set()


def test_what_a_kind_says_is_erased_is_erased_by_the_command_and_nothing_else_is() -> None:
    assert [kind.name for kind in KINDS if kind.erasable] == list(old_rows.ERASABLE)


def test_the_docs_have_this_table() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (.+?) \| (.+?) \|$", DOCS.read_text(), re.MULTILINE)
    assert rows == [(kind.name, kind.holds, kind.stays) for kind in KINDS]
