"""Sending what is due, to many webhooks at once, and to each one after another: a slow one delays no other.

The database is asked in this thread and the network in another one, so no transaction is open while anybody waits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import contextmanager
from datetime import datetime
from threading import Thread

from portal.core.webhooks import delivery_attempt
from portal.core.webhooks.delivery_attempt import Attempt
from portal.core.webhooks.http_request import PATIENCE, Answer, send
from portal.core.webhooks.resolvers import TURN, Resolvers

MOST = 100  # webhooks that one run sends to at once
MOST_FAILING = 60  # of these, such as failed the last time: others have room whatever happens
GLANCE = 0.2  # seconds until it looks for what has become due meanwhile
LONGEST = (
    25.0  # seconds after which it begins no more with such as fail, so that it ends: the next run goes on
)


def deliver_due(*, clock: Callable[[], datetime], random: Callable[[], float]) -> int:
    """Send what is due and what becomes due meanwhile, for little more than a minute; how many attempts there were.

    Of callers at once each sends to other webhooks. Killed anywhere, what was sent and not written down is sent
    again under its id after a minute.
    """
    began, count = time.monotonic(), 0
    under_way: dict[Future[Answer | None], Attempt] = {}
    with _network() as start:
        while True:
            age = time.monotonic() - began
            is_open = (
                age < LONGEST + TURN + PATIENCE + 1
            )  # while a slow one of before ends, others are not delayed
            if is_open:
                _begin(under_way, start, clock, MOST_FAILING if age < LONGEST else 0)
            if not under_way:
                return count
            done, _ = wait(under_way, timeout=GLANCE, return_when=FIRST_COMPLETED)
            for future in done:
                attempt, answer = under_way.pop(future), future.result()
                if answer is None:  # not tried: it comes again when its turn has come
                    delivery_attempt.release(attempt, moment=clock())
                    continue
                delivery_attempt.record_answer(attempt, answer, moment=clock(), random=random)
                count += 1
                if answer.is_success and is_open:
                    following = delivery_attempt.next_attempt(attempt.webhook, moment=clock())
                    if following is not None:
                        under_way[start(following)] = following
                else:  # whoever fails goes to the end of the line
                    delivery_attempt.release(attempt, moment=clock())


def _begin(
    under_way: dict[Future[Answer | None], Attempt],
    start: Callable[[Attempt], Future[Answer | None]],
    clock: Callable[[], datetime],
    most_failing: int,
) -> None:
    failing = sum(attempt.is_failing for attempt in under_way.values())
    free = MOST - len(under_way)
    for webhook in delivery_attempt.claim(most=free, most_failing=most_failing - failing, moment=clock()):
        attempt = delivery_attempt.next_attempt(webhook, moment=clock())
        if attempt is not None:
            under_way[start(attempt)] = attempt


@contextmanager
def _network() -> Iterator[Callable[[Attempt], Future[Answer | None]]]:
    """A function that begins an attempt in another thread's event loop, for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    resolvers = Resolvers()
    thread = Thread(target=loop.run_forever, name="webhooks", daemon=True)
    thread.start()

    def start(attempt: Attempt) -> Future[Answer | None]:
        return asyncio.run_coroutine_threadsafe(_send(attempt, resolvers), loop)

    try:
        yield start
    finally:
        resolvers.close()
        asyncio.run_coroutine_threadsafe(_cancel_rest(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _send(attempt: Attempt, resolvers: Resolvers) -> Answer | None:
    return await send(
        url=attempt.url,
        headers=attempt.headers,
        body=attempt.body,
        resolvers=resolvers,
        tenant=attempt.tenant,
        is_failing=attempt.is_failing,
    )


async def _cancel_rest() -> None:
    """What is under way where the block ends by an error."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)
