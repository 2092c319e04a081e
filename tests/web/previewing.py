"""Previews in tests: a worker computes what waits, and the page is opened again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.test import Client

from billing.models import Preview
from portal.web import tasks
from tests.web.test_close_in_a_browser import meanwhile

if TYPE_CHECKING:
    from django.test.client import _MonkeyPatchedWSGIResponse


def work() -> None:
    """As a worker does what waits for it."""
    for row in Preview.objects.unfinished().order_by("pk"):
        tasks.perform_preview(preview_id=row.pk)


def work_beside() -> None:
    """The same where the test's thread belongs to a browser."""
    meanwhile(work)


def opened(client: Client, address: str) -> _MonkeyPatchedWSGIResponse:
    """The page once what it waits for is computed."""
    return computed(client, client.get(address))


def computed(client: Client, answer: _MonkeyPatchedWSGIResponse) -> _MonkeyPatchedWSGIResponse:
    """The page that the answer leads to, opened once what it waits for is computed."""
    while answer.status_code == 302:
        work()
        answer = client.get(answer["Location"])
    return answer
