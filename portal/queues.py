"""One queue for each kind of work, so that none waits behind another kind: a long pull delays no charge.

Redis keeps a list for each. A worker takes from those that it names (`--queues`), or from all where it names none.
"""

from __future__ import annotations

from typing import Any

WAKE = "wake"
"""What only looks who is due and tells others, in milliseconds; every effect that names no kind of its own, too."""

KINDS: dict[str, tuple[str, ...]] = {
    WAKE: (
        "portal.core.outbox.tasks.dispatch",
        "portal.core.outbox.tasks.consume",  # goes to the queue of its effect
        "portal.core.events.tasks.forget_old",
        "portal.core.webhooks.tasks.place_events",
        "portal.core.webhooks.tasks.forget_old",
        "billing.tasks.pull_due",
        "billing.tasks.closes_due",
        "billing.tasks.files_due",
        "billing.tasks.schedule_closes",
        "billing.tasks.request_reconciliation",
        "billing.sealed_months.tasks.seal_runs_due",
        "billing.reports.tasks.focus_exports_due",
        "billing.reports.tasks.forget_old_focus_exports",
        "billing.reports.tasks.forget_names_in_focus_exports",
        "portal.api.tasks.forget_answers",
        "portal.web.tasks.previews_due",
        "portal.web.tasks.forget_old_previews",
        "portal.core.tenants.tasks.forget_account_mails",
    ),
    "pull": (
        "billing.tasks.pull_usage",
        "billing.tasks.end_jobs",  # after a pull of its own
        "billing.tasks.end_waste",
        "billing.tasks.import_file",
        "billing.tasks.forget_passes",
        "billing.tasks.flag_silent_runs",
        "billing.tasks.review_failures",
    ),
    "rate": (
        "billing.tasks.rate_accounts",
        "billing.tasks.rate_tenants",
        "billing.tasks.perform_close",
        "billing.tasks.book_wallets",
        "billing.tasks.tend_wallets",
    ),
    "collect": (
        "billing.tasks.collect",
        "billing.tasks.apply_event",
        "billing.tasks.advance_sign_up",
        "billing.tasks.match_transfers",
        "billing.tasks.dun",
    ),
    "reconcile": (
        "billing.tasks.reconcile_due",
        "billing.tasks.reconcile_now",
        "billing.tasks.prove_a_month",
        "billing.sealed_months.tasks.perform_seal_run",
        "billing.sealed_months.tasks.seal_at_night",
        "billing.sealed_months.tasks.check_sealed_files",
        "billing.tasks.write_job_prices",  # takes a minute where many are due
        "billing.reports.tasks.perform_focus_export",  # takes minutes where many tenants are
    ),
    "limits": (
        "billing.tasks.enforce_blocks",
        "billing.tasks.enforce_limits",
        "billing.tasks.review_quotas",
        "billing.tasks.review_waste",
    ),
    "mail": (
        "billing.tasks.send_notices",
        "portal.api.tasks.announce_keys",
        "portal.core.tenants.tasks.send_account_mails",
        "portal.core.webhooks.tasks.announce_off",
    ),
    "webhooks": ("portal.core.webhooks.tasks.deliver",),
    "documents": (
        "billing.tasks.render_document",
        "portal.web.tasks.perform_preview",  # somebody waits for it
        "billing.tasks.refresh_efficiency",  # somebody waits for it, some seconds or a minute
        "billing.reports.tasks.refresh_cluster_efficiency",
        "billing.reports.tasks.count_runs",
        "billing.reports.tasks.forget_efficiency",  # after what is computed meanwhile
        "billing.reports.tasks.forget_old_efficiency",
    ),
}
"""The tasks of each queue."""

IN_ONE_SIGHT = frozenset(
    {"billing.tasks.refresh_efficiency", "billing.reports.tasks.refresh_cluster_efficiency"}
)
"""Effects that read much and add it up: their transaction sees one moment of the database (*repeatable read*)."""

QUEUE_OF = {task: queue for queue, tasks in KINDS.items() for task in tasks}


def queue_of(task: str) -> str:
    """Where a task waits; an effect that is none of the tasks above, where it delays nobody for long."""
    return QUEUE_OF.get(task, WAKE)


def routes() -> dict[str, dict[str, Any]]:
    """As Celery takes them."""
    return {task: {"queue": queue} for task, queue in QUEUE_OF.items()}
