"""As exercise_cases.py, for section 21.2: answers written apart from the package's."""

import itertools
from fractions import Fraction

import numpy as np
import torch

# ---- functions that are right


def tpot_by_tokens(events):
    """Every token has a time; where all are in one event, no time between two was seen."""
    times = [time for time, n in events for _ in range(n)]
    if sum(n > 0 for _, n in events) < 2:
        return None
    return np.mean(np.diff(times))


def tpot_by_pieces(events):
    """Each gap shared over the tokens that ended it, and the first event's further tokens at 0."""
    told = [event for event in events if event[1]]
    shares = [0.0] * (told[0][1] - 1) if told else []
    for (before, _), (after, n) in itertools.pairwise(told):
        shares += [(after - before) / n] * n
    return sum(shares) / len(shares) if len(told) > 1 else None


def tpot_as_a_loop(events):
    first = last = None
    count, seen = 0, 0
    while events:
        time, n = events.pop(0)
        if n:
            first = time if first is None else first
            last, count, seen = time, count + n, seen + 1
    return torch.tensor((last - first) / (count - 1)) if seen >= 2 else None


def good_by_filter(requests, ttft, itl):
    kept = 0
    for start, times, error in requests:
        if error or len(times) == 0 or times[0] > start + ttft:
            continue
        kept += all(b <= a + itl for a, b in itertools.pairwise(times))
    return kept


def good_by_arrays(requests, ttft, itl):
    def is_good(start, times, error):
        waits = np.diff([start, *times])
        limits = np.array([ttft, *[itl] * (len(times) - 1)])
        return error is None and len(times) > 0 and bool((waits <= limits).all())

    return np.int64(sum(is_good(*request) for request in requests))


def wait_in_the_middle(tpot, wait):
    """Steady at first, then the wait, then many tokens at half the target."""
    events = [[i * tpot, 1] for i in range(3)]
    start = events[-1][0] + wait
    return [*events, *([start + i * tpot / 2, 1] for i in range(int(3 * wait / tpot)))]


RIGHT = {
    "21.2-1": [
        [420, 90, 22.5],
        (420.0, np.float64(90), Fraction(45, 2)),
        np.array([420, 90, 22.5]),
    ],
    "21.2-2": [tpot_by_tokens, tpot_by_pieces, tpot_as_a_loop],
    "21.2-3": [[50, 23], torch.tensor([50.0, 23.0])],
    "21.2-4": [good_by_filter, good_by_arrays],
    "21.2-5": [
        [10.048, 4883],
        (Fraction("10.048"), 4883.0),
        [10, 4883],
        [10.0, 4883],
        [10.05, 4883],
        [10.1, 4883],
    ],
    "21.2-6": [
        {"A": "4", "B": "6", "C": "5", "D": "7", "E": "2", "F": "1", "G": "8"},
        {"a": 4, " B": 6, "c": 5.0, "D": np.int64(7), "G": " 8 ", "F": 1, "E": 2},
        ["4", "6", "5", "7", "2", "1", "8"],
        np.array([4, 6, 5, 7, 2, 1, 8]),
        [
            "a first event that carries no text",
            6,
            "Events that carry several tokens",
            7,
            "how long requests waited before they were sent",
            "requests that failed",
            8,
        ],
    ],
    "21.2-7": [[600, 950], np.array([600.0, 950.0]), [Fraction(600), 950]],
    "21.2-8": [wait_in_the_middle, lambda tpot, wait: ((10, 1), (10 + wait, 1000))],
}


# ---- answers that are wrong


def texts(events):
    return [event for event in events if event[1] > 0]


def over_events(events):
    told = texts(events)
    return (told[-1][0] - told[0][0]) / (len(told) - 1) if len(told) > 1 else None


def over_tokens(events):
    told = texts(events)
    return (told[-1][0] - told[0][0]) / sum(n for _, n in told) if len(told) > 1 else None


def never_undefined(events):
    return tpot_by_tokens(events) or 0.0


def zero_in_one_piece(events):
    found = tpot_by_tokens(events)
    return 0.0 if found is None and sum(n for _, n in events) > 1 else found


def with_empty_events(events):
    count = sum(n for _, n in events)
    return (events[-1][0] - events[0][0]) / (count - 1) if count > 1 else None


def without_a_thought_for_one(events):
    told = texts(events)
    return (told[-1][0] - told[0][0]) / (sum(n for _, n in told) - 1)


def without_the_first_event_s_tokens(events):
    told = texts(events)
    return (told[-1][0] - told[0][0]) / sum(n for _, n in told[1:]) if len(told) > 1 else None


def never_ends(events):
    while True:
        events.append([0, 1])


def judged(rule, failures=False, empty=False):
    """Counts those of which `rule` says that they are good."""

    def count(requests, ttft, itl):
        found = 0
        for start, times, error in requests:
            if (error and not failures) or (not times and not empty):
                continue
            gaps = [b - a for a, b in itertools.pairwise(times)]
            found += bool(not times or rule(start, times, gaps, ttft, itl))
        return found

    return count


def both(start, times, gaps, ttft, itl):
    return times[0] - start <= ttft and max(gaps, default=0) <= itl


WRONG = {
    "21.2-1": [
        ([180, 127.5, 42.5], "All three begin at the role"),
        ([180, 90, 22.5], "the first event of any kind"),
        ([420, 90, 90], "TPOT counts tokens"),
        ([420, 90, 20.77], "13 tokens have 12"),
        ([420, 90, 53.1], "end-to-end time over all tokens"),
        ([420, 67.5, 22.5], "three gaps"),
        ([420, 22.5, 90], "changed places"),
        ([420, 90, 25], "Right so far: entry 1 and entry 2"),
        ([0.42, 0.09, 0.0225], "Those are seconds."),
        ([0.42, 0.09, 0.02], "None of the entries"),
    ],
    "21.2-2": [
        (over_events, "mean gap between events"),
        (over_tokens, "n tokens have n - 1"),
        (never_undefined, "it is undefined: None, not 0"),
        (zero_in_one_piece, "no time between two of them was seen"),
        (with_empty_events, "leave it out before you look for the first and the last; and one"),
        (without_a_thought_for_one, "Return None there"),
        (without_the_first_event_s_tokens, "all tokens in N: also those that came with the first"),
        (lambda events: events[-1][0] - events[0][0], "gives 0.08; RequestTimes gives 0.02"),
        (lambda events: (tpot_by_tokens(events) or 0) or float("nan"), "gives nan; RequestTimes g"),
        (lambda events: tpot_by_tokens(events) or None, "gives None; RequestTimes gives 0."),
        (lambda events: round(over, 4) if (over := tpot_by_tokens(events)) else over,
         "If you round, leave that out"),
        (lambda events: events, "tpot(events=[[0.1, 1], [0.12, 1]"),
        (never_ends, "was still running after"),
        (lambda events, start: start, "raised TypeError"),
    ],
    "21.2-3": [
        ([23, 50], "changed places"),
        ([50, 50], "far more of them than A"),
        ([23, 23], "each has one voice"),
        ([50, 23.87], "3 and 57"),
        ([50, 22.3], "62 tokens have 60 gaps"),
        ([50, 20], "Right so far: entry 1"),
        ([0.05, 0.023], "Those are seconds."),
    ],
    "21.2-4": [
        (judged(lambda s, t, gaps, a, b: t[0] - s <= a and (not gaps or np.mean(gaps) <= b)),
         "hidden by it: judge the longest"),
        (judged(lambda s, t, gaps, a, b: both(s, t, [np.percentile(gaps or [0], 99)], a, b)),
         "judges a percentile"),
        (judged(lambda s, t, gaps, a, b: both(s, t, gaps[:1], a, b)), "the first gap alone"),
        (judged(lambda s, t, gaps, a, b: t[-1] - s <= a + b * len(gaps)),
         "made good by the others"),
        (judged(lambda s, t, gaps, a, b: both(s, t, gaps[-1:], a, b)), "the summary counts"),
        (judged(both, failures=True), "A request that failed kept nothing"),
        (judged(both, empty=True), "it was not served"),
        (judged(both, failures=True, empty=True), "failed ones among them"),
        (judged(lambda s, t, gaps, a, b: both(0, t, gaps, a, b)), "own start, not at 0"),
        (judged(lambda s, t, gaps, a, b: t[0] - s < a and max(gaps, default=0) < b), "met exactly"),
        (judged(lambda s, t, gaps, a, b: gaps and both(s, t, gaps, a, b)), 
         "with one event has no gap"),
        (judged(lambda s, t, gaps, a, b: t[0] - s <= a or max(gaps, default=0) <= b), "keeps both"),
        (judged(lambda s, t, gaps, a, b: both(s, t, [t[0] - s, *gaps], a, b)), "of its own"),
        (lambda r, a, b: good_by_filter(r, a, b) / max(len(r), 1), "not the share"),
        (lambda r, a, b: len(r) - good_by_filter(r, a, b), "Count the good ones"),
        (lambda r, a, b: good_by_filter(r, b, a), "the summary counts"),
        (lambda r, a, b: r[0][1][4] and 0, "raised IndexError"),
    ],
    "21.2-5": [
        ([11, 4883], "Right so far: entry 2"),
        ([8.0, 4882.8], "read in every step"),
        ([202, 122070.3], "once a step, for all 25"),
        ([8.08, 122070], "122,070\n  That counts the K/V of one request"),
        ([8.08, 4883], "The first number: That counts the K/V of one request"),
        ([10.05, 122_071], "The first is right. The second: That counts the K/V of one request"),
        ([9.024, 9766], "A position has both"),
        ([9.0, 4883], "The first number: That counts keys or values"),
        ([10.0, 9766], "The first is right. The second: That counts keys or values"),
        ([10.0, 244_141], "the keys alone, and of one request"),
        ([8.064, 156_250], "of one layer; there are 32"),
        ([10.0, 156_251], "The first is right. The second counts the K/V of one layer"),
        ([6.05, 2441.4], "one byte a weight"),
        ([10, 2442], "The first is right. The second: That counts one byte a weight"),
        ([2.05, 4883], "forgets the weights"),
        ([202, 4883], "once a step, for all 25 together"),
        ([0.010048, 4883], "in seconds"),
        ([10.05, 4882.8], "round up"),
        ([10.048, 4882], "round up"),
        ([10, 4884], "the second nearly"),
        ([10.2, 4883], "Right so far: entry 2. Entry 1 is not."),
        ([9.9, 4883], "Right so far: entry 2. Entry 1 is not."),
        ([1, 2], "None of the entries"),
    ],
    "21.2-6": [
        ({"A": 4, "B": 7, "C": 5, "D": 6, "E": 2, "F": 1, "G": 8}, "B and D are means"),
        ({"A": 4, "B": 6, "C": 8, "D": 7, "E": 2, "F": 1, "G": 5}, "C and G are times"),
        ({"A": 2, "B": 6, "C": 5, "D": 7, "E": 4, "F": 1, "G": 8}, "A and E each have one end"),
        ({"A": 4, "B": 5, "C": 6, "D": 7, "E": 2, "F": 1, "G": 8}, "B and C are times between"),
        ({"A": 4, "B": 8, "C": 5, "D": 7, "E": 2, "F": 1, "G": 6}, "B and G are times a token"),
        ({"A": 4, "B": 6, "C": 5, "D": 1, "E": 2, "F": 7, "G": 8}, "F is silent"),
        ({"A": 4, "B": 6, "C": 5, "D": 7, "E": 1, "F": 2, "G": 8}, "E and F: E is a time"),
        ({"A": 4, "B": 5, "C": 3, "D": 7, "E": 9}, "Right so far: A and D. The others are not. B"),
        ({"A": 4, "B": 6, "E": 1}, "Right so far: A and B. The others are not. E and F: E is a"),
        ({"A": 4, "F": 1, "C": 9}, "Right so far: A and F. The others are not. C: it says"),
        ([3, 3, 3, 3, 3, 3, 3], "None of the entries is right yet. A: does the first event show"),
        ([4, 6, 5, 7, 2, 1, None], "Right so far: A and B and C and D and E and F."),
    ],
    "21.2-7": [
        ([0, 350], "a client that sends one at a time hides"),
        ([600, 350], "service comes on top"),
        ([1200, 1550], "the last one's"),
        ([675, 1025], "Nine are averaged"),
        ([150, 500], "The queue grows"),
        ([950, 950], "ends where the service begins"),
        ([1400, 1750], "all arrive at 0"),
        ([600, 900], "Right so far: entry 1"),
        ([0.6, 0.95], "Those are seconds."),
    ],
    "21.2-8": [
        (lambda tpot, wait: [[i * tpot, 1] for i in range(9)], "as long as the wait"),
        (lambda tpot, wait: [[wait, 1], [wait + tpot, 1]], "part of TTFT"),
        (lambda tpot, wait: [[5, 1], [5 + wait, 2]], "too few tokens share it"),
        (lambda tpot, wait: [[wait, 1000]], "TPOT is undefined"),
        (lambda tpot, wait: [[0, 1], [50 * 20, 1], [2000, 40]], "asked for is"),  # for one target
        (lambda tpot, wait: [[wait, 1], [0, 1000]], "times that go back"),
        (lambda tpot, wait: [[0, 1], [wait, 10**6]], "more than 1,000 tokens"),
        (lambda tpot, wait: [wait, 1000], "something that is no event"),
    ],
}  # fmt: skip
