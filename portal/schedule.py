"""All periodic work, in one table: name → task and how often.

Times are UTC. The scheduler only wakes tasks up; each finds out from the tables what is due, so a
missed or doubled wake-up changes nothing. Times past a whole hour are chosen apart from each other.
"""

from __future__ import annotations

from typing import Any

SCHEDULE: dict[str, dict[str, Any]] = {
    "send what the outbox holds": {
        "task": "portal.outbox.tasks.dispatch",
        "schedule": 2.0,  # seconds: the longest that a committed change waits for its effect
        "options": {"expires": 10},
    },
    "pull the clusters that are due": {
        "task": "billing.tasks.pull_due",
        "schedule": 30.0,
        "options": {"expires": 30},
    },
    "forget passes that read nothing new": {
        "task": "billing.tasks.forget_passes",
        "schedule": 3600.0,  # not once a day: the time counts from the scheduler's start
        "options": {"expires": 3600},
    },
}
