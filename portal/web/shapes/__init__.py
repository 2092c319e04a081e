"""What each page shows, ready to print: views fill these, templates only place them.

Amounts, quantities and moments are strings already formatted for the reader (currency, zone,
grouping). Names of other pages of the same list (`earlier`, `later`, `older`, `more`) are query
strings such as "?period=2026-10"; "" means that there is none. Every template gets `shell` and `page`.
"""

from __future__ import annotations

from portal.web.shapes.cluster import (
    CapacityRow,
    ClusterPage,
    ConnectionPage,
    FieldGroup,
    PassRow,
    VanishedRow,
)
from portal.web.shapes.frame import Area, Badge, Fact, Shell, TenantLink, Tone
from portal.web.shapes.invoices import (
    INVOICE_BADGES,
    BankTransfer,
    InvoicePage,
    InvoiceRow,
    InvoicesPage,
    Line,
    LineGroup,
    LineJob,
    LinePage,
    Party,
    Payment,
)
from portal.web.shapes.jobs import JobFilters, JobPage, JobRow, JobsPage, Option, Piece, job_badge
from portal.web.shapes.live import LivePage, LiveRow, ReadThrough
from portal.web.shapes.operator import (
    ClusterRow,
    ClustersPage,
    QuarantinePage,
    QuarantineRow,
    TenantRow,
    TenantsPage,
    UnownedPage,
    UnownedRow,
)
from portal.web.shapes.overview import Chart, Measure, OverviewPage, Series, SpendRow, Tile

__all__ = [
    "INVOICE_BADGES",
    "Area",
    "Badge",
    "BankTransfer",
    "CapacityRow",
    "Chart",
    "ClusterPage",
    "ClusterRow",
    "ClustersPage",
    "ConnectionPage",
    "Fact",
    "FieldGroup",
    "InvoicePage",
    "InvoiceRow",
    "InvoicesPage",
    "JobFilters",
    "JobPage",
    "JobRow",
    "JobsPage",
    "Line",
    "LineGroup",
    "LineJob",
    "LinePage",
    "LivePage",
    "LiveRow",
    "Measure",
    "Option",
    "OverviewPage",
    "Party",
    "PassRow",
    "Payment",
    "Piece",
    "QuarantinePage",
    "QuarantineRow",
    "ReadThrough",
    "Series",
    "Shell",
    "SpendRow",
    "TenantLink",
    "TenantRow",
    "TenantsPage",
    "Tile",
    "Tone",
    "UnownedPage",
    "UnownedRow",
    "VanishedRow",
    "job_badge",
]
