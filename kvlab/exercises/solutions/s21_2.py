"""Section 21.2, worked. Each function is the answer; a value's function says how it comes about."""


def three_figures():
    first, last = 420, 690  # the role at 180 holds no text
    events, tokens = 4, 1 + 4 + 4 + 4
    return [first, (last - first) / (events - 1), (last - first) / (tokens - 1)]


def tpot(events):
    outputs = [(time, n) for time, n in events if n > 0]  # a role, an empty text: no output
    if len(outputs) < 2:
        return None  # no time between two tokens was seen
    tokens = sum(n for _, n in outputs)
    return (outputs[-1][0] - outputs[0][0]) / (tokens - 1)


def two_means():
    gaps_a, gaps_b = [80] * 3, [20] * 57  # n tokens, n - 1 gaps
    over_requests = (80 + 20) / 2
    over_gaps = sum(gaps_a + gaps_b) / len(gaps_a + gaps_b)
    return [over_requests, over_gaps]


def good_requests(requests, ttft, itl):
    good = 0
    for start, times, error in requests:
        if error is not None or not times:
            continue  # failed, or without text: nothing was kept
        gaps = [times[i] - times[i - 1] for i in range(1, len(times))]
        good += times[0] - start <= ttft and max(gaps, default=0) <= itl
    return good


def least_step():
    weights = 8_000_000_000 * 2  # read once, whoever takes part
    position = 2 * 32 * 8 * 128 * 2  # K and V, layers, KV heads, width, bytes
    keys_and_values = 25 * 1250 * position
    ms = 1000 * (weights + keys_and_values) / 2e12
    equal = weights / (25 * position)  # positions each at which both are as many bytes
    return [ms, int(equal) + 1]


def seven_reports():
    return {
        "A": 4,  # the first event says who speaks, and nothing else
        "B": 6,  # most intervals belong to long answers
        "C": 5,  # a time per token, called by the name of the gap between events
        "D": 7,  # no interval, counted as an interval of 0
        "E": 2,  # the clock starts when the request leaves
        "F": 1,  # those who completed had it by then
        "G": 8,  # the tokens of all requests share one duration
    }


def waits():
    each = [i * (350 - 200) for i in range(9)]  # one comes every 200 ms, one is done every 350
    wait = sum(each) / len(each)
    return [wait, wait + 350]


def hides_a_wait(tpot, wait):
    tokens = int(wait / tpot) + 1  # they come together, and share the one wait
    return [[0, 1], [wait, tokens]]


SOLUTIONS = {
    "21.2-1": three_figures,
    "21.2-2": tpot,
    "21.2-3": two_means,
    "21.2-4": good_requests,
    "21.2-5": least_step,
    "21.2-6": seven_reports,
    "21.2-7": waits,
    "21.2-8": hides_a_wait,
}
