"""When each request leaves: at its own time, or when a place is free (section 21.2, case T11).

    open loop     | |  |    |||   |     users who do not know of each other: a slow server
                                        changes nothing about when they come
    closed loop   |---||---||----||--   `concurrency` users who each wait for their answer:
                                        a slow server is asked less often

In an open loop with at most `concurrency` under way, a request that finds no free place waits in
the client. Its clock runs since the time at which it was meant to leave: to start the clock at
sending would hide the wait (coordinated omission).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kvlab.measure.load_requests import LoadRequest

Send = Callable[[LoadRequest, float], Awaitable[None]]  # a request, and its intended start


async def open_loop(
    requests: Sequence[LoadRequest],
    times: Sequence[float],  # [num_requests], not falling: seconds after `start`
    send: Send,
    *,
    concurrency: int | None,
    clock: Callable[[], float],
    start: float,
) -> None:
    """Start each request at its time. Those that find `concurrency` under way wait in order.

    Cancelled, it cancels what is under way and waits for it to end.
    """
    places, tasks = asyncio.Semaphore(concurrency or len(requests)), []

    async def one(request: LoadRequest, arrival: float) -> None:
        async with places:
            await send(request, arrival)

    try:
        for request, time in zip(requests, times, strict=True):
            await asyncio.sleep(0)  # what has arrived in the meantime goes first
            while (left := start + time - clock()) > 0:
                await asyncio.sleep(left)
            tasks.append(asyncio.create_task(one(request, start + time)))
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def closed_loop(
    requests: Sequence[LoadRequest],
    send: Send,
    *,
    concurrency: int,
    clock: Callable[[], float],
) -> None:
    """Keep `concurrency` under way. A request is meant to start when a place is free for it."""
    waiting = iter(requests)

    async def user() -> None:
        for request in waiting:
            await send(request, clock())

    users = min(concurrency, len(requests))  # more would find nothing to ask
    tasks = [asyncio.create_task(user()) for _ in range(users)]
    try:
        await asyncio.gather(*tasks)
    finally:
        await _end(tasks)


async def _end(tasks: Sequence[asyncio.Task]) -> None:
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
