"""A coroutine run to its end in a thread of its own, with an event loop of its own.

A notebook's kernel runs an event loop already, and a second one cannot run in the same thread.
The caller waits here, hears an interrupt, and hands it on as a cancellation.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine

POLL = 0.1  # seconds between two looks


def in_thread(
    main: Callable[[], Coroutine[object, object, None]], poll: Callable[[], object]
) -> None:
    """Run `main()` to its end, calling `poll` in the caller's thread meanwhile.

    KeyboardInterrupt here, or any error of `poll`, cancels it; it may end well all the same, and
    then an interrupt is over. Raises what `main` raises, or the error of `poll`.
    """
    # Not Thread.join: Python 3.11 takes a thread for ended when its join is interrupted.
    ready, over, failures, handle = threading.Event(), threading.Event(), [], {}

    async def watched() -> None:
        handle["loop"], handle["task"] = asyncio.get_running_loop(), asyncio.current_task()
        ready.set()
        await main()

    def work() -> None:
        try:
            asyncio.run(watched())
        except BaseException as error:  # handed to the caller, whatever it is
            failures.append(error)
        finally:
            ready.set()
            over.set()

    threading.Thread(target=work, name="kvlab-load", daemon=True).start()
    stopped: BaseException | None = None
    try:
        while not over.wait(POLL):
            poll()
        poll()
    except BaseException as error:
        stopped = error
        ready.wait()
        with contextlib.suppress(KeyError, RuntimeError):  # it ended by itself in the meantime
            handle["loop"].call_soon_threadsafe(handle["task"].cancel)
        over.wait()
    if stopped is not None and not isinstance(stopped, KeyboardInterrupt):
        raise stopped
    if failures and isinstance(failures[0], asyncio.CancelledError):
        raise KeyboardInterrupt
    if failures:
        raise failures[0]
