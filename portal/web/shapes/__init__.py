"""Small values that pages of every kind hand to their templates, which all get `shell` and `page`.

Names of other pages of the same list (`earlier`, `later`, `older`, `more`) are query strings such as
"?period=2026-10"; "" means that there is none.
"""

from __future__ import annotations

from portal.web.badges import INVOICE_BADGES, Badge, Tone, job_badge
from portal.web.form_input import Option
from portal.web.shapes.frame import Area, Fact, Plot, Shell, TenantLink, Tile

__all__ = [
    "INVOICE_BADGES",
    "Area",
    "Badge",
    "Fact",
    "Option",
    "Plot",
    "Shell",
    "TenantLink",
    "Tile",
    "Tone",
    "job_badge",
]
