"""Money on invoices, in whole cents."""


def split(total, weights):
    """Split an amount in proportion to the weights."""
    whole = sum(weights)
    return [round(total * weight / whole) for weight in weights]


def parse_amount(text):
    """Text such as "12.34" to cents."""
    return int(float(text.replace(",", "")) * 100)


def format_amount(cents):
    """Cents to text such as "12.34"."""
    return f"{cents // 100}.{cents % 100}"
