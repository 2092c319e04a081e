"""The settings of a tenant: one area of pages with one list of tabs. A page joins by a line here."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

from portal.core.tenants.access import Action
from portal.web.page_frame import Area, SettingsTab


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """One tab: the name of its URL, and what a person has to be allowed to see it."""

    label: Promise
    url: str
    action: Action


SETTINGS: Mapping[Area, SettingsPage] = {
    "team": SettingsPage(_("Team"), "team", Action.READ),
    "billing_settings": SettingsPage(_("Billing"), "billing_settings", Action.READ_INVOICES),
    "notifications": SettingsPage(_("Notifications"), "notifications", Action.READ),
    "api_keys": SettingsPage(_("API keys"), "api_keys", Action.MANAGE),
    "webhooks": SettingsPage(_("Webhooks"), "webhooks", Action.MANAGE),
    "history": SettingsPage(_("History"), "history", Action.MANAGE),
}
"""By area, in the order of the tabs."""


def tabs(*, slug: str, area: Area, may: Collection[Action]) -> tuple[SettingsTab, ...]:
    """Those that the person may open, while a page of the area is shown; none on other pages. No query."""
    if area not in SETTINGS:
        return ()
    return tuple(
        SettingsTab(label=str(page.label), url=reverse(page.url, args=[slug]), is_current=name == area)
        for name, page in SETTINGS.items()
        if page.action in may
    )
