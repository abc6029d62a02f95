"""When requests leave, on an event loop whose time is skipped: exact, and at once."""

import asyncio
import selectors
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvlab.core.arrivals import Regular
from kvlab.core.latency_record import LatencyRecord
from kvlab.core.latency_summary import summarize
from kvlab.core.metrics import RequestTimes
from kvlab.measure.load_drive import closed_loop, open_loop
from kvlab.measure.load_plan import intended_times
from kvlab.measure.load_requests import LoadRequest


class Skipping(selectors.SelectSelector):
    """Where the loop would sleep, its clock moves on instead."""

    now = 0.0

    def select(self, timeout=None):
        assert timeout is not None, "nothing is left that could ever happen"
        self.now += timeout
        return super().select(0)


def played(main):
    """Run main(clock) to its end in skipped time, in a thread of its own: a browser's test before
    this one leaves an event loop running in the main thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(_played, main).result()


def _played(main):
    selector = Skipping()
    loop = asyncio.SelectorEventLoop(selector)
    loop.time = lambda: selector.now
    try:
        return loop.run_until_complete(main(loop.time))
    finally:
        loop.close()


def requests(count):
    return [LoadRequest(f"r{i + 1}", "hello") for i in range(count)]


def server(clock, service, places, records):
    """A send that takes `service` seconds on a server with `places`."""
    free = asyncio.Semaphore(places)

    async def send(request, arrival):
        sent = clock()
        async with free:
            await asyncio.sleep(service)
        times = RequestTimes(arrival, finished=clock())
        times.note(clock())
        records.append(LatencyRecord(request.request_id, times, "client", sent=sent))

    return send


def test_t11_waiting_in_the_client_is_part_of_every_latency():
    listed, records = requests(8), []
    times, _ = intended_times(listed, Regular(10.0), 0, 1.0)

    async def main(clock):
        send = server(clock, 0.5, 8, records)
        await open_loop(listed, times, send, concurrency=1, clock=clock, start=clock())

    played(main)
    summary = summarize(records)
    assert [r.request_id for r in records] == [r.request_id for r in listed]  # in order
    assert summary.wait_before_sending.mean == pytest.approx(1.4)
    assert summary.e2el.mean == pytest.approx(1.9)
    assert summary.service_e2el.mean == pytest.approx(0.5)  # all that a clock from sending sees
    assert summary.duration == pytest.approx(4.0)


def test_an_open_loop_without_a_limit_sends_on_time():
    listed, records = requests(8), []

    async def main(clock):
        send = server(clock, 0.5, 1, records)  # now the server holds them back
        times = [i / 10 for i in range(8)]
        await open_loop(listed, times, send, concurrency=None, clock=clock, start=clock())

    played(main)
    summary = summarize(records)
    assert summary.wait_before_sending.max == pytest.approx(0.0, abs=1e-9)
    assert summary.e2el.mean == pytest.approx(1.9)  # the same to the user


def test_a_closed_loop_asks_a_slow_server_less_often():
    records = []

    async def main(clock):
        send = server(clock, 0.5, 1, records)
        await closed_loop(requests(8), send, concurrency=2, clock=clock)

    played(main)
    summary = summarize(records)
    assert summary.wait_before_sending.max == 0.0
    assert summary.e2el.max == pytest.approx(1.0)  # never more than two at a time
    assert summary.duration == pytest.approx(4.0)


def test_more_places_than_requests():
    records = []

    async def main(clock):
        await closed_loop(requests(2), server(clock, 0.5, 9, records), concurrency=9, clock=clock)

    played(main)
    assert len(records) == 2


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_a_cancelled_loop_leaves_nothing_under_way(loop):
    begun, ended = [], []

    async def send(request, arrival):
        begun.append(request.request_id)
        try:
            await asyncio.sleep(10)
        finally:
            ended.append(request.request_id)

    async def main(clock):
        listed = requests(8)
        if loop == "open":
            times = [float(i) for i in range(8)]
            drive = open_loop(listed, times, send, concurrency=2, clock=clock, start=clock())
        else:
            drive = closed_loop(listed, send, concurrency=2, clock=clock)
        task = asyncio.create_task(drive)
        await asyncio.sleep(3.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    played(main)
    assert begun == ended == ["r1", "r2"]


def test_a_fault_in_sending_is_not_swallowed():
    async def send(request, arrival):
        raise RuntimeError("a fault of ours")

    async def main(clock):
        await open_loop(requests(3), [0, 1, 2], send, concurrency=1, clock=clock, start=clock())

    with pytest.raises(RuntimeError, match="a fault of ours"):
        played(main)
