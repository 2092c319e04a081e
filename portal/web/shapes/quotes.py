"""What a job would cost, asked before it is submitted."""

from __future__ import annotations

from dataclasses import dataclass, field

from portal.web.form_input import Option
from portal.web.shapes.frame import Fact


@dataclass(frozen=True, kw_only=True)
class QuoteRow:
    description: str  # "GPU time, H100"
    note: str  # how the price depends on the quantity; "" where every unit costs the same
    quantity: str  # "100.00 GPU-hours"
    unit_price: str  # "$2.00", "" where no one price tells it
    amount: str


@dataclass(frozen=True, kw_only=True)
class QuoteField:
    """One thing that is asked of the job."""

    name: str
    label: str
    value: str
    hint: str = ""
    kind: str = "text"  # of the control
    numeric: bool = False
    offered: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class QuoteAnswer:
    total: str  # "$250.00", "" where it cannot be told
    window: str  # "20 Mar 2026, 10:00 – 22:00"
    account: str
    rows: tuple[QuoteRow, ...] = ()
    terms: tuple[Fact, ...] = ()
    unpriced: str = ""  # "12.00 gpu-hours"


@dataclass(frozen=True, kw_only=True)
class QuotePage:
    zone: str
    complete_through: str
    clusters: tuple[Option, ...]
    fields: tuple[QuoteField, ...] = field(default=())
    error: str = ""
    answer: QuoteAnswer | None = None
