"""What payers are asked to write, and what of it is found again in what banks made of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import iso11649

from billing.rules.references import creditor_reference, in_groups, numbers_in, wallets_in

SERIES = ("INV-2026", "INV-2025", "NW/A-2026")


def test_a_reference_is_made_of_the_number_and_has_check_digits() -> None:
    assert creditor_reference("539007547034") == "RF18539007547034"  # the standard's own example
    reference = creditor_reference("INV-2026-0001")
    assert reference.endswith("INV20260001")
    assert iso11649.is_valid(reference)
    assert in_groups("RF18539007547034") == "RF18 5390 0754 7034"


@pytest.mark.parametrize("name", ["", "RÉSUMÉ-2026-0001", "A-VERY-LONG-PREFIX-2026-000001"])
def test_a_name_that_has_no_place_in_a_reference_makes_none(name: str) -> None:
    assert creditor_reference(name) == ""


@pytest.mark.parametrize(
    "written",
    [
        "INV-2026-0001",
        "inv-2026-0001",
        "Invoice INV 2026 0001 of March",
        "INV20260001",
        "Rg.INV2026-0001/Vision Lab",
        "INV-2026-00 01",  # broken by the end of a line of 35 characters
        "INV-2026-0001 100.00 EUR",
        f"{creditor_reference('INV-2026-0001')}",
        f"{in_groups(creditor_reference('INV-2026-0001'))} thank you",
        f"Ref:{creditor_reference('INV-2026-0001').lower()}.",
    ],
)
def test_a_number_is_found_however_it_is_written(written: str) -> None:
    assert numbers_in([written], SERIES) == ["INV-2026-0001"]


@pytest.mark.parametrize(
    "written",
    [
        "",
        "thank you",
        "0001",
        "INV-2024-0001",  # no such series
        "XINV-2026-0001",  # another word
        "INV-2026-001",
        "INV-2026-00001",  # not as numbers are written
        "RF00INV20260001",  # a typing mistake: its check digits are wrong
        "INV-2026-١٢٣٤",
    ],
)
def test_what_is_not_sure_is_not_found(written: str) -> None:
    assert numbers_in([written], SERIES) == []


def test_several_numbers_are_found_each_once_in_their_order() -> None:
    text = f"INV-2026-0002, INV-2025-0117 and INV-2026-12345; {creditor_reference('INV-2026-0002')}"
    assert numbers_in([text, "NW/A-2026-0003"], SERIES) == [
        "INV-2026-0002",
        "INV-2025-0117",
        "INV-2026-12345",
        "NW/A-2026-0003",
    ]


def test_a_wallet_is_named_by_its_reference_alone() -> None:
    reference = creditor_reference("WALLET42")
    assert wallets_in([f"top-up {in_groups(reference)}"]) == [42]
    assert wallets_in(["WALLET42", "WALLET 42"]) == []
    assert numbers_in([reference], SERIES) == []


@given(number=st.integers(1, 99_999), before=st.text(max_size=40), after=st.text(max_size=40))
def test_a_reference_is_found_between_any_other_words(number: int, before: str, after: str) -> None:
    invoice_number = f"INV-2026-{number:04d}"
    assert invoice_number in numbers_in([f"{before} {creditor_reference(invoice_number)}; {after}"], SERIES)


@given(text=st.text(max_size=300))
def test_no_text_breaks_the_search(text: str) -> None:
    numbers_in([text], SERIES)
    wallets_in([text])
