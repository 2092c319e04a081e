"""Why a job cannot be quoted: the sentence of each code, with its values filled in."""

from __future__ import annotations

from collections.abc import Mapping

from django.utils.translation import gettext_noop as _

SENTENCES: Mapping[str, str] = {
    "account-not-owned": _("{tenant} does not own the account {account} on {cluster} at that time."),
    "account-unknown": _("There is no account {account} on {cluster}."),
    "job-array": _(
        "An array has from 1 to {most:,} tasks, runs at least one at a time, and holds at most {gpus:,} GPUs at once."
    ),
    "job-length": _("A job is quoted for more than no time and for at most 366 days."),
    "no-account-owned": _("{tenant} does not own any account on {cluster} at that time."),
    "of-gpus": _("GPUs"),
    "of-cpus": _("CPU cores"),
    "of-memory": _("GiB of memory"),
    "no-hours": _("{text} is no length of a job: write its hours as a number above 0, up to {most:,}."),
    "no-number": _("{text} is no number of {resource}: write one from 0 to {most:,}."),
    "no-share": _("{text} is no part of a GPU: write one like 1/7."),
    "no-whole-number": _("{text} is no whole number of {resource}; slices are told by their share."),
    "too-early": _("A job is quoted that starts from {earliest:%Y-%m-%d} on: nothing is known of before."),
    "too-late": _("A job is quoted that starts by {latest:%Y-%m-%d}: what holds later is not known yet."),
}
