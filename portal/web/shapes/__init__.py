"""What each page shows, ready to print: views fill these, templates only place them.

Amounts, quantities and moments are strings already formatted for the reader (currency, zone,
grouping). Names of other pages of the same list (`earlier`, `later`, `older`, `more`) are query
strings such as "?period=2026-10"; "" means that there is none. Every template gets `shell` and `page`.
"""

from __future__ import annotations

from portal.web.badges import INVOICE_BADGES, Badge, Tone, job_badge
from portal.web.form_input import Option
from portal.web.shapes.blocks import BlockPreview, BlockRow, BlocksPage, ReasonRow
from portal.web.shapes.books import (
    BooksPage,
    DifferenceRow,
    MovementRow,
    PayoutPage,
    PayoutRow,
    RunRow,
)
from portal.web.shapes.closing import (
    ClosePage,
    CloseRow,
    CloseTile,
    Draft,
    DraftsPage,
    InTheWay,
    IssueConfirmation,
    PendingRow,
)
from portal.web.shapes.cluster import (
    CapacityRow,
    ClusterPage,
    ConnectionPage,
    FieldGroup,
    PassRow,
    UnseenRow,
    VanishedRow,
)
from portal.web.shapes.collecting import CollectingPage, LateRow, LookRow
from portal.web.shapes.frame import Area, Fact, Plot, Shell, TenantLink, Tile
from portal.web.shapes.operator import (
    ClusterRow,
    ClustersPage,
    QuarantinePage,
    QuarantineRow,
    UnassignedPage,
    UnassignedRow,
)
from portal.web.shapes.plans import (
    Bill,
    Curve,
    CurveRow,
    EditorPage,
    PlanPage,
    PlanRow,
    PlansPage,
    PriceLine,
    VersionCard,
)
from portal.web.shapes.reports import NodesRow, PeriodChoice, ReportPage, SplitRow, Stretch

__all__ = [
    "INVOICE_BADGES",
    "Area",
    "Badge",
    "Bill",
    "BlockPreview",
    "BlockRow",
    "BlocksPage",
    "BooksPage",
    "CapacityRow",
    "ClosePage",
    "CloseRow",
    "CloseTile",
    "ClusterPage",
    "ClusterRow",
    "ClustersPage",
    "CollectingPage",
    "ConnectionPage",
    "Curve",
    "CurveRow",
    "DifferenceRow",
    "Draft",
    "DraftsPage",
    "EditorPage",
    "Fact",
    "FieldGroup",
    "InTheWay",
    "IssueConfirmation",
    "LateRow",
    "LookRow",
    "MovementRow",
    "NodesRow",
    "Option",
    "PassRow",
    "PayoutPage",
    "PayoutRow",
    "PendingRow",
    "PeriodChoice",
    "PlanPage",
    "PlanRow",
    "PlansPage",
    "Plot",
    "PriceLine",
    "QuarantinePage",
    "QuarantineRow",
    "ReasonRow",
    "ReportPage",
    "RunRow",
    "Shell",
    "SplitRow",
    "Stretch",
    "TenantLink",
    "Tile",
    "Tone",
    "UnassignedPage",
    "UnassignedRow",
    "UnseenRow",
    "VanishedRow",
    "VersionCard",
    "job_badge",
]
