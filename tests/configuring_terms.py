"""Applying a file that is written out in a test."""

from __future__ import annotations

import tempfile
from pathlib import Path

from tests.scenarios.configuring import Op

SELLER = '[seller]\nname = "Northern Compute GmbH"\naddress = "Hafenstraße 1"\n\n'
"""Without one nothing is issued."""


def apply(text: str) -> list[str]:
    """The lines that `apply` prints."""
    with tempfile.TemporaryDirectory() as directory:
        return Op(Path(directory)).applies(text)


def refused(text: str) -> list[str]:
    """The sentences with which the file is refused."""
    with tempfile.TemporaryDirectory() as directory:
        return Op(Path(directory)).is_refused(text)
