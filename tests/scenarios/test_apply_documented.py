"""docs/reference/configuration.md is complete, and what it shows works."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from portal.config_file.schema import ConfigError, parse
from portal.dev.demo_data.seeding import CONFIG
from portal.env import ROOT
from tests.scenarios.configuring import Op

PAGE = (ROOT / "docs" / "reference/configuration.md").read_text()
COOKBOOK = (ROOT / "docs" / "how-to/pricing.md").read_text()
EXAMPLES = re.findall(r"^```toml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

# What has to stand around a table for its keys to be asked for, and how the sentences call it.
TABLES = {
    "[brand]": ("[brand]\n{}", "brand"),
    "[seller]": ("[seller]\n{}", "seller"),
    "approval_limits": ("[seller]\n[seller.approval_limits]\n{}", "seller, approval_limits"),
    "dunning": ("[seller]\n[seller.dunning]\n{}", "seller, dunning"),
    "[close]": ("[close]\n{}", "the file, close"),
    "[[tax_rate]]": ("[[tax_rate]]\n{}", "tax_rate 1"),
    "[[cluster]]": ("[[cluster]]\n{}", "cluster 1"),
    "[[cluster.node]]": ("[[cluster]]\n[[cluster.node]]\n{}", "cluster 1, node 1"),
    "[cluster.connection]": ("[[cluster]]\n[cluster.connection]\n{}", "cluster 1, connection"),
    "[cluster.telemetry]": ("[[cluster]]\n[cluster.telemetry]\n{}", "cluster 1, telemetry"),
    "[[meter]]": ("[[meter]]\n{}", "meter 1"),
    "[[plan]]": ("[[plan]]\n{}", "plan 1"),
    "[[plan.price]]": ("[[plan]]\n[[plan.price]]\n{}", "plan 1, price 1"),
    "where": ("[[plan]]\n[[plan.price]]\n[plan.price.where]\n{}", "plan 1, price 1, where"),
    "hours": ("[[plan]]\n[[plan.price]]\n[plan.price.hours]\n{}", "plan 1, price 1, hours"),
    "[[waste_rule]]": ("[[waste_rule]]\n{}", "waste_rule 1"),
    "[[failure_rule]]": ("[[failure_rule]]\n{}", "failure_rule 1"),
    "[[operating_cost]]": ("[[operating_cost]]\n{}", "operating_cost 1"),
    "[[tenant.wallet]]": ("[[tenant]]\n[[tenant.wallet]]\n{}", "tenant 1, wallet 1"),
    "[[tenant]]": ("[[tenant]]\n{}", "tenant 1"),
    "accounts": ("[[tenant]]\n[[tenant.accounts]]\n{}", "tenant 1, account 1"),
    "[[tenant.phase]]": ("[[tenant]]\n[[tenant.phase]]\n{}", "tenant 1, phase 1"),
    "[[identity_provider]]": ("[[identity_provider]]\n{}", "identity_provider 1"),
    "[[identity_provider.grant]]": (
        "[[identity_provider]]\n[[identity_provider.grant]]\n{}",
        "identity_provider 1, grant 1",
    ),
    "[[tenant.member]]": ("[[tenant]]\n[[tenant.member]]\n{}", "tenant 1, member 1"),
}


def documented(heading: str) -> set[str]:
    section = re.search(rf"^#+ `{re.escape(heading)}`\n(.*?)(?=^#)", f"{PAGE}\n#", re.MULTILINE | re.DOTALL)
    assert section, heading
    first_cells = re.findall(r"^\| (`[^|]*`) \|", section[1], re.MULTILINE)
    return {key for cell in first_cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_documented_and_every_documented_key_exists(heading: str) -> None:
    text, name = TABLES[heading]
    with pytest.raises(ConfigError) as refusal:
        parse(text.format("no_such_key = 1"))
    start = f"{name}: there is no key 'no_such_key'; allowed: "
    (sentence,) = [line for line in refusal.value.sentences if line.startswith(start)]
    assert documented(heading) == set(sentence.removeprefix(start).rstrip(".").split(", "))


@pytest.mark.django_db
def test_the_examples_apply_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JWT", "a.b.c")
    op = Op(tmp_path)
    assert len(EXAMPLES) == 6
    for example in EXAMPLES:
        assert op.applies(example) != ["Nothing to change."]
        assert op.applies(example) == ["Nothing to change."]


@pytest.mark.django_db
@pytest.mark.parametrize("recipe", re.findall(r"^```toml\n(.*?)^```", COOKBOOK, re.MULTILINE | re.DOTALL))
def test_each_recipe_of_the_cookbook_applies_as_it_stands(recipe: str, tmp_path: Path) -> None:
    op = Op(tmp_path)
    assert op.applies(recipe) != ["Nothing to change."]
    assert op.applies(recipe) == ["Nothing to change."]


@pytest.mark.django_db
def test_the_demonstrations_file_applies_twice(tmp_path: Path) -> None:
    op = Op(tmp_path)
    op.applies(CONFIG.read_text())
    assert op.applies(CONFIG.read_text()) == ["Nothing to change."]
