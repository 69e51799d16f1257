"""Free times in a day. Times are minutes since midnight; (a, b) covers a up to but not including b."""

from itertools import chain


def merge(intervals):
    """The same minutes in as few sorted intervals as possible. Raises ValueError for an end before its start."""
    intervals = sorted((start, end) for start, end in intervals)
    if any(end < start for start, end in intervals):
        raise ValueError("an interval ends before it starts")
    merged = []
    for start, end in intervals:
        if start == end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def free_slots(busy, day_start, day_end, minimum=1):
    """The free intervals of a day that are at least `minimum` long."""
    if minimum < 1:
        raise ValueError("minimum must be at least 1")
    taken = merge(busy)
    slots = []
    cursor = day_start
    for start, end in chain(taken, [(day_end, day_end)]):
        start = min(start, day_end)
        if start - cursor >= minimum:
            slots.append((cursor, start))
        cursor = max(cursor, end)
    return slots


def common_slots(calendars, day_start, day_end, minimum=1):
    """The free intervals that everybody shares."""
    return free_slots(chain.from_iterable(calendars), day_start, day_end, minimum)
