"""All periodic work, in one table: name → task and how often.

Times are UTC. The scheduler only wakes tasks up; each finds out from the tables what is due, so a
missed or doubled wake-up changes nothing. Times past a whole hour are chosen apart from each other.
"""

from __future__ import annotations

from typing import Any

SCHEDULE: dict[str, dict[str, Any]] = {
    "send what the outbox holds": {
        "task": "portal.core.outbox.tasks.dispatch",
        "schedule": 2.0,  # seconds: the longest that a committed change waits for its effect
        "options": {"expires": 10},
    },
    "number the events that have committed": {
        "task": "portal.core.webhooks.tasks.place_events",
        "schedule": 1.0,  # seconds: the longest that an event waits to be seen
        "options": {"expires": 5},
    },
    "send what is due to webhooks": {
        "task": "portal.core.webhooks.tasks.deliver",
        "schedule": 2.0,  # seconds: for attempts again; new events wake it up at once
        "options": {"expires": 2},
    },
    "mail the owners of webhooks that were turned off": {
        "task": "portal.core.webhooks.tasks.announce_off",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "forget deliveries of more than 30 days": {
        "task": "portal.core.webhooks.tasks.forget_old",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "forget figures of efficiency that nobody looks at": {
        "task": "billing.reports.tasks.forget_old_efficiency",
        "schedule": 86400.0,
        "options": {"expires": 3600},
    },
    "write the charges of all tenants that were asked for": {
        "task": "billing.reports.tasks.focus_exports_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "forget files of charges that are old": {
        "task": "billing.reports.tasks.forget_old_focus_exports",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "compute the previews that were asked for": {
        "task": "portal.web.tasks.previews_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "forget previews of more than a day": {
        "task": "portal.web.tasks.forget_old_previews",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "forget events of more than 90 days": {
        "task": "portal.core.events.tasks.forget_old",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "pull the clusters that are due": {
        "task": "billing.tasks.pull_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "flag the pushed runs that fell silent": {
        "task": "billing.tasks.flag_silent_runs",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "write what jobs cost into their comments": {
        "task": "billing.tasks.write_job_prices",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "take up the closes that were asked for": {
        "task": "billing.tasks.closes_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "take up the files that are to be imported": {
        "task": "billing.tasks.files_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "ask for the closes whose day has come": {
        "task": "billing.tasks.schedule_closes",
        "schedule": 3600.0,  # not once a day: zones begin their days at different hours
        "options": {"expires": 3600},
    },
    "book what wallets pay": {
        "task": "billing.tasks.book_wallets",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "give wallets what is due": {
        "task": "billing.tasks.tend_wallets",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "match the transfers that were taken in": {
        "task": "billing.tasks.match_transfers",
        "schedule": 20.0,
        "options": {"expires": 20},
    },
    "collect what is due": {
        "task": "billing.tasks.collect",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "compare the books with Stripe's": {
        "task": "billing.tasks.reconcile_due",
        "schedule": 600.0,  # it runs once a night, after 02:00 UTC, and again an hour after it could not
        "options": {"expires": 600},
    },
    "prove a past month again": {
        "task": "billing.tasks.prove_a_month",
        "schedule": 3600.0,  # one a night, whenever the scheduler started
        "options": {"expires": 3600},
    },
    "take up the months that are to be sealed": {
        "task": "billing.sealed_months.tasks.seal_runs_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "seal the months that are ready": {
        "task": "billing.sealed_months.tasks.seal_at_night",
        "schedule": 600.0,  # one month at a time, from 01:00 to 05:00 UTC
        "options": {"expires": 600},
    },
    "look at the files of sealed months": {
        "task": "billing.sealed_months.tasks.check_sealed_files",
        "schedule": 3600.0,  # once a night, whenever the scheduler started
        "options": {"expires": 3600},
    },
    "write and suspend by the policy of dunning": {
        "task": "billing.tasks.dun",
        "schedule": 300.0,
        "options": {"expires": 300},
    },
    "look at quotas": {
        "task": "billing.tasks.review_quotas",
        "schedule": 20.0,  # a threshold that was reached is known, and to be acted on, within 90 seconds
        "options": {"expires": 20},
    },
    "send notices": {
        "task": "billing.tasks.send_notices",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "block and unblock accounts for dunning and quotas": {
        "task": "billing.tasks.enforce_blocks",
        "schedule": 20.0,  # with the pass before it within 90 seconds of the commit that demands it
        "options": {"expires": 20},
    },
    "write limits of what is held at once": {
        "task": "billing.tasks.enforce_limits",
        "schedule": 20.0,
        "options": {"expires": 20},
    },
    "end running jobs whose grace is over": {
        "task": "billing.tasks.end_jobs",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "look for jobs that do not use their GPUs": {
        "task": "billing.tasks.review_waste",
        "schedule": 300.0,  # telemetry comes once an hour
        "options": {"expires": 300},
    },
    "end idle jobs whose grace is over": {
        "task": "billing.tasks.end_waste",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "read errors of GPUs, and credit jobs that failed by them": {
        "task": "billing.tasks.review_failures",
        "schedule": 900.0,  # each cluster's errors are read once an hour
        "options": {"expires": 900},
    },
    "forget pulls that read nothing new": {
        "task": "billing.tasks.forget_passes",
        "schedule": 3600.0,  # not once a day: the time counts from the scheduler's start
        "options": {"expires": 3600},
    },
    "mail the owners of new API keys": {
        "task": "portal.api.tasks.announce_keys",
        "schedule": 60.0,
        "options": {"expires": 60},
    },
    "mail people about their accounts": {
        "task": "portal.core.tenants.tasks.send_account_mails",
        "schedule": 15.0,  # seconds: somebody waits for an invitation
        "options": {"expires": 15},
    },
    "forget the mails about accounts": {
        "task": "portal.core.tenants.tasks.forget_account_mails",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
    "forget the answers to old requests": {
        "task": "portal.api.tasks.forget_answers",
        "schedule": 3600.0,
        "options": {"expires": 3600},
    },
}
