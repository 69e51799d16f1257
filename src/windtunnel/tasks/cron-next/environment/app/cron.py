"""Cron expressions of five fields: minute, hour, day of month, month, day of week."""

LIMITS = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)]


def parse(expression):
    """A list of five sets of numbers. Raises ValueError."""
    fields = expression.split()
    if len(fields) != 5:
        raise ValueError(f"expected five fields: {expression!r}")
    return [parse_field(text, low, high) for text, (low, high) in zip(fields, LIMITS)]


def parse_field(text, low, high):
    if text == "*":
        return set(range(low, high + 1))
    number = int(text)
    if not low <= number <= high:
        raise ValueError(f"{number} is not in {low}-{high}")
    return {number}


def matches(expression, moment):
    """Whether a datetime lies in a minute that the expression names."""
    minute, hour, day, month, weekday = parse(expression)
    return (
        moment.minute in minute
        and moment.hour in hour
        and moment.day in day
        and moment.month in month
        and moment.isoweekday() % 7 in weekday
    )
