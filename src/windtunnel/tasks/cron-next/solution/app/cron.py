"""Cron expressions of five fields: minute, hour, day of month, month, day of week."""

import re
from datetime import datetime, timedelta

_MONTHS = {name: number for number, name in enumerate("jan feb mar apr may jun jul aug sep oct nov dec".split(), 1)}
_DAYS = {name: number for number, name in enumerate("sun mon tue wed thu fri sat".split())}
LIMITS = [(0, 59, {}), (0, 23, {}), (1, 31, {}), (1, 12, _MONTHS), (0, 7, _DAYS)]
_ITEM = re.compile(r"(?:(\*)|([0-9A-Za-z]+)(?:-([0-9A-Za-z]+))?)(?:/([0-9]+))?", re.ASCII)


def parse(expression):
    """A list of five sets of numbers; Sunday is 0. Raises ValueError."""
    fields = expression.split()
    if len(fields) != 5:
        raise ValueError(f"expected five fields: {expression!r}")
    parsed = [parse_field(text, *limits) for text, limits in zip(fields, LIMITS)]
    parsed[4] = {day % 7 for day in parsed[4]}
    return parsed


def parse_field(text, low, high, names):
    found = set()
    for item in text.split(","):
        match = _ITEM.fullmatch(item)
        if match is None:
            raise ValueError(f"cannot read {item!r}")
        star, first, last, step = match.groups()
        if step is not None and (int(step) < 1 or not (star or last)):
            raise ValueError(f"a step needs a range: {item!r}")
        start = low if star else _number(first, low, high, names)
        stop = high if star else _number(last or first, low, high, names)
        if stop < start:
            raise ValueError(f"{item!r} runs backwards")
        found.update(range(start, stop + 1, int(step or 1)))
    return found


def _number(text, low, high, names):
    number = names.get(text.lower())
    if number is None:
        if not re.fullmatch("[0-9]+", text):
            raise ValueError(f"{text!r} is not a number here")
        number = int(text)
    if not low <= number <= high:
        raise ValueError(f"{number} is not in {low}-{high}")
    return number


def _day_matches(expression, fields, moment):
    _, _, day, month, weekday = fields
    if moment.month not in month:
        return False
    texts = expression.split()
    by_day, by_weekday = moment.day in day, moment.isoweekday() % 7 in weekday
    if texts[2] != "*" and texts[4] != "*":
        return by_day or by_weekday
    return by_day and by_weekday


def matches(expression, moment):
    """Whether a datetime lies in a minute that the expression names."""
    fields = parse(expression)
    return moment.minute in fields[0] and moment.hour in fields[1] and _day_matches(expression, fields, moment)


def next_run(expression, after):
    """The first matching minute after a moment, None when there is none within ten years."""
    fields = parse(expression)
    times = [(hour, minute) for hour in sorted(fields[1]) for minute in sorted(fields[0])]
    day = datetime(after.year, after.month, after.day)
    for _ in range(3654):
        if _day_matches(expression, fields, day):
            for hour, minute in times:
                moment = day.replace(hour=hour, minute=minute)
                if moment > after:
                    return moment
        day += timedelta(days=1)
    return None
