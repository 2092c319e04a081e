"""What webhooks refuse, and why an attempt failed: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "address-credentials": _("Leave user and password out of the address: signatures say who sends."),
    "address-fragment": _("Leave the part behind # out of the address: it is never sent."),
    "address-http": _("Write an address that begins with https://."),
    "address-invalid": _("{url} is no address. Write one such as https://hooks.example.org/clustertab."),
    "address-refused": _(
        "{host} has no public address. Webhooks go to the public internet only, and to networks that the operator "
        "has allowed (WEBHOOK_ALLOWED_NETWORKS)."
    ),
    "day-invalid": _("Choose the day since which events are sent again."),
    "event-type-unknown": _("There is no event type {type}; choose among {types}."),
    "name-invalid": _(
        "Write a name of 1 to 60 lower-case letters, digits and hyphens, such as finance-export."
    ),
    "name-taken": _("There is a webhook {name} already: choose another name, or change that one."),
    "no-keys": _("{why}"),
    "not-active": _("{name} is turned off: turn it on first."),
    "overlap-invalid": _("The previous secret can sign for 0 to 168 hours more."),
    "too-many": _("There are {most} webhooks already: delete one that nothing uses."),
    "too-many-waiting": _("{name} has {most} deliveries waiting: send again when they are through."),
}

ERRORS: Mapping[str, str] = {
    "event-gone": _("The event is older than 90 days and no longer stored."),
    "invalid-answer": _("The endpoint did not answer in HTTP."),
    "not-reached": _("No connection: the endpoint refused it or did not answer."),
    "redirect": _("The endpoint redirects. Redirects are not followed: enter the final address."),
    "refused": _("The name has no public address now. Nothing was sent."),
    "secret": _("The signing secret cannot be decrypted. The operator has to check CLUSTERTAB_SECRET_KEYS."),
    "timeout": _("No answer within 15 seconds."),
    "tls": _("The certificate of the endpoint is not valid for its name."),
}
"""Of the last attempt of a delivery, by its stored code."""
