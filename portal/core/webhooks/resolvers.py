"""Threads that wait for name servers, which nobody can interrupt: whose names are slow delays nobody else.

Of one tenant one name is asked for at a time, and names of webhooks that fail are asked for by threads of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress

from portal.core.webhooks import addresses
from portal.core.webhooks.addresses import Target

THREADS = 16  # for webhooks that answer, and as many for those that fail
TURN = 5.0  # seconds that an attempt waits for its turn

Ask = Callable[[str], Awaitable[Target]]
"""Resolves an address, and raises as `addresses.resolve`. To be called once."""


class Resolvers:
    """Used in one event loop alone, until it is closed."""

    def __init__(self) -> None:
        self._pools = {
            is_failing: ThreadPoolExecutor(THREADS, thread_name_prefix="resolver")
            for is_failing in (False, True)
        }
        self._rooms = {is_failing: asyncio.Semaphore(THREADS) for is_failing in self._pools}
        self._lines: dict[tuple[int | None, bool], asyncio.Semaphore] = {}

    async def turn(self, *, tenant: int | None, is_failing: bool) -> Ask | None:
        """What resolves an address at once; None where other names did not end within 5 seconds.

        The turn lasts until the name server has answered, also when whoever asked no longer waits for it.
        """
        line = self._lines.setdefault((tenant, is_failing), asyncio.Semaphore(1))
        room = self._rooms[is_failing]
        try:
            async with asyncio.timeout(TURN):
                await line.acquire()
                try:
                    await room.acquire()
                except asyncio.CancelledError:
                    line.release()
                    raise
        except TimeoutError:
            return None
        loop = asyncio.get_running_loop()

        def end(_: Future[Target]) -> None:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(room.release)
                loop.call_soon_threadsafe(line.release)

        def ask(url: str) -> Awaitable[Target]:
            future = self._pools[is_failing].submit(addresses.resolve, url)
            future.add_done_callback(end)
            return asyncio.wrap_future(future)

        return ask

    def close(self) -> None:
        """What still waits for a name server ends by itself."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
