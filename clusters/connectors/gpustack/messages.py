"""What a person is told of each `ConnectorError` of GPUStack: its sentence by its code."""

from __future__ import annotations

from collections.abc import Mapping


def _(text: str) -> str:
    """Marks a sentence for gettext, which translates it where it is said."""
    return text


SENTENCES: Mapping[str, str] = {
    "gpustack-key": _(
        "{address} does not accept the key: create an API key as an administrator of GPUStack and enter it as the "
        "token."
    ),
    "gpustack-not-admin": _(
        "The key sees usage of its own user or organization only, so the rest would not be billed: enter a key that an "
        "administrator of GPUStack created without an organization."
    ),
    "gpustack-answer": _(
        "{address} answered {path} with status {status}: check that the address is that of a GPUStack 2.3 or later."
    ),
    "gpustack-too-many": _(
        "{address} refused to list the usage of {day} in one answer: raise "
        "GPUSTACK_USAGE_BREAKDOWN_MAX_NO_PAGINATION_ROWS there."
    ),
    "gpustack-shape": _(
        "{address} answered {path} with something else than a list of usage: check that the address is that of a "
        "GPUStack 2.3 or later, and the proxies before it."
    ),
    "gpustack-part": _("{address} listed {count} of {total} rows of {path}: nothing of it was used."),
    "gpustack-zone": _(
        "GPUStack counts its days at UTC{theirs} and the time zone of this cluster is at UTC{ours}: give the cluster "
        "the zone of GPUSTACK_TIMEZONE before its first sync."
    ),
    "gpustack-options": _(
        'Say in the options which meters are read, like gpu = "gpu-hours"; allowed: {allowed}.'
    ),
}
