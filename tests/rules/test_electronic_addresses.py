"""Where a party takes e-invoices, and by what a public buyer routes them: mistakes are found when they are entered."""

from __future__ import annotations

import re

import pytest
from django.core.exceptions import ValidationError

from portal.core.tenants.electronic_address import SCHEMES, buyer_reference, electronic_address, parted
from tests.en16931 import CEN, rules_file


def test_the_schemes_are_those_of_the_standards_own_rules() -> None:
    lists = re.findall(r"contains\(' (0002 [^']* EM) '", rules_file(*CEN).read_text())
    assert lists
    assert {frozenset(members.split()) for members in lists} == {SCHEMES}


@pytest.mark.parametrize("good", ["0204:04011000-1234512345-06", "9930:DE811234565", "EM:ann@vision.example"])
def test_an_address_has_a_scheme_of_the_list(good: str) -> None:
    electronic_address(good)
    assert ":".join(parted(good, "other@vision.example")) == good


def test_without_one_it_is_the_e_mail() -> None:
    assert parted("", "ann@vision.example") == ("EM", "ann@vision.example")


@pytest.mark.parametrize(
    "bad", ["04011000-1234512345-06", "0001:x", "0204:", "0204:a b", "em:ann@vision.example"]
)
def test_what_is_none_is_refused(bad: str) -> None:
    with pytest.raises(ValidationError, match="is no electronic address: write its scheme"):
        electronic_address(bad)


@pytest.mark.parametrize(
    "good", ["04011000-1234512345-06", "PO 2291", "Institute 3, Dr. Ann", "4500012345-01"]
)
def test_a_reference_is_the_buyers_affair(good: str) -> None:
    buyer_reference(good)


@pytest.mark.parametrize("bad", ["04011000-1234512345-07", "04011000-1234512354-06"])
def test_a_leitweg_id_with_a_mistake_is_refused(bad: str) -> None:
    with pytest.raises(ValidationError, match="written as a Leitweg-ID, and its check digits do not fit"):
        buyer_reference(bad)
