"""Money on invoices, in whole cents."""

import re

_AMOUNT = re.compile(r"([+-]?)([0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.([0-9]{1,2}))?")


def split(total, weights):
    """Split an amount in proportion to the weights; the parts add up to the total exactly."""
    weights = list(weights)
    whole = sum(weights)
    if not weights or whole == 0 or min(weights) < 0:
        raise ValueError("weights must not be empty, negative or all zero")
    sign = -1 if total < 0 else 1
    parts = [abs(total) * weight // whole for weight in weights]
    cut_off = [abs(total) * weight % whole for weight in weights]
    left = abs(total) - sum(parts)
    for index in sorted(range(len(weights)), key=lambda i: (-cut_off[i], i))[:left]:
        parts[index] += 1
    return [sign * part for part in parts]


def parse_amount(text):
    """Text such as "1,234.50" to cents. Raises ValueError."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not an amount: {text!r}")
    sign, digits, fraction = match.groups()
    cents = int(digits.replace(",", "")) * 100 + int((fraction or "").ljust(2, "0"))
    return -cents if sign == "-" else cents


def format_amount(cents):
    """Cents to text such as "12.34"."""
    whole, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{whole}.{rest:02d}"
