"""Op makes keys for scripts on the command line."""

from __future__ import annotations

import json

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.api.door import Door
from tests.web.house import House

pytestmark = pytest.mark.django_db


def key_door(capsys: pytest.CaptureFixture[str], *words: str) -> Door:
    call_command("create_api_key", *words, "--name", "finance", "--json")
    return Door(json.loads(capsys.readouterr().out)["secret"])


def test_op_makes_a_key_for_herself_and_for_ann(house: House, capsys: pytest.CaptureFixture[str]) -> None:
    op = key_door(capsys, house.op.email, "--scope", "ops:read")
    assert op.reads("/me")["tenant"] is None
    assert len(op.all("/invoices")) == 2
    ann = key_door(
        capsys,
        house.ann.email,
        "--scope",
        "invoices:read",
        "--tenant",
        "vision-lab",
        "--expires",
        "2199-01-01",
    )
    assert ann.reads("/me")["expires_at"] == "2199-01-01T00:00:00Z"


def test_nobody_gets_a_key_that_they_could_not_use(house: House) -> None:
    for words, sentence in {
        ("nobody@x.example", "--scope", "ops:read"): "There is no user",
        (house.ann.email, "--scope", "ops:read"): "Only operators",
        (house.ann.email, "--scope", "usage:read", "--tenant", "none"): "There is no tenant none",
        (
            house.ann.email,
            "--scope",
            "usage:read",
            "--tenant",
            "vision-lab",
            "--project",
            "x",
        ): "has no project x",
        (
            house.ben.email,
            "--scope",
            "invoices:read",
            "--tenant",
            "vision-lab",
        ): "The role of ben@vision.example does not allow",
        (
            house.ann.email,
            "--scope",
            "usage:read",
            "--tenant",
            "vision-lab",
            "--expires",
            "soon",
        ): "write a day",
    }.items():
        with pytest.raises(CommandError, match=sentence):
            call_command("create_api_key", *words, "--name", "finance")
