"""Free times in a day. Times are minutes since midnight; (a, b) covers a up to but not including b."""


def merge(intervals):
    """Join intervals that belong together."""
    intervals.sort()
    merged = []
    for start, end in intervals:
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def free_slots(busy, day_start, day_end, minimum=1):
    """The free intervals of a day."""
    slots = []
    cursor = day_start
    for start, end in merge(busy):
        if start - cursor >= minimum:
            slots.append((cursor, start))
        cursor = end
    if day_end - cursor >= minimum:
        slots.append((cursor, day_end))
    return slots


def common_slots(calendars, day_start, day_end, minimum=1, _seen=[]):
    """The free intervals that several people share."""
    for busy in calendars:
        _seen.append(free_slots(busy, day_start, day_end, minimum))
    return _seen[0]
