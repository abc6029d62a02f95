"""Few cases in which each two settings meet: far fewer than all combinations."""

from itertools import combinations


def pairs_of(case):
    """All pairs of (name, setting) in a case, or among several settings of each name."""
    return set(combinations(sorted(case.items(), key=lambda item: item[0]), 2))


def pairwise(**settings):
    """Cases {name: setting}: any two settings of different names stand together in some case.

    Greedy: each case begins with a pair that is missing, and takes the settings that add most.
    """
    names = sorted(settings)
    missing = {
        ((one, a), (two, b))
        for one, two in combinations(names, 2)
        for a in settings[one]
        for b in settings[two]
    }
    cases = []
    while missing:
        case = dict(min(missing, key=repr))
        for name in names:
            if name not in case:
                case[name] = max(
                    settings[name],
                    key=lambda choice, name=name: len(pairs_of({**case, name: choice}) & missing),
                )
        missing -= pairs_of(case)
        cases.append(case)
    return cases
