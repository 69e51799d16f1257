"""Reports of accounts in several formats; `register` adds one."""

_FORMATS = {}


def register(name, function):
    """Add a format: `function(rows)` returns the text. Raises ValueError for a taken or unusable name."""
    if not isinstance(name, str) or not name:
        raise ValueError("a format needs a name")
    if name in _FORMATS:
        raise ValueError("format exists: " + repr(name))
    _FORMATS[name] = function


def formats():
    """The sorted names of all formats."""
    return sorted(_FORMATS)


def render(rows, fmt):
    """Text of a report. A row is a dict with "name", "amount" (cents) and, if there is one, "note"."""
    try:
        function = _FORMATS[fmt]
    except (KeyError, TypeError):
        raise ValueError("unknown format: " + repr(fmt)) from None
    return function(rows)


def _digits(cents):
    return str(cents // 100) + "." + str(cents % 100).zfill(2)


def _amount(cents):
    """Cents as text; negative ones in brackets."""
    return "(" + _digits(-cents) + ")" if cents < 0 else _digits(cents)


def _total(rows):
    return sum(row["amount"] for row in rows)


def _text_line(row):
    name = row["name"]
    if len(name) > 12:
        name = name[:11] + "~"
    note = "  # " + row["note"] if row.get("note") else ""
    return _columns(name, row["amount"]) + note + "\n"


def _columns(name, cents):
    return name.ljust(12) + " " + _amount(cents).rjust(12)


def _text(rows):
    rule = "-" * 25 + "\n" if rows else ""
    return "".join(map(_text_line, rows)) + rule + _columns("TOTAL", _total(rows)) + "\n"


def _csv_cell(value):
    value = "" if value is None else value
    if "," in value or '"' in value or "\n" in value:
        return '"' + value.replace('"', '""') + '"'
    return value


def _csv_line(row):
    cents = row["amount"]
    amount = "-" + _digits(-cents) if cents < 0 else _digits(cents)
    return ",".join(map(_csv_cell, (row.get("name"), amount, row.get("note")))) + "\r\n"


def _csv(rows):
    return "name,amount,note\r\n" + "".join(map(_csv_line, rows))


def _html_line(number, row):
    name = row["name"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    start = "<tr>" if number % 2 else '<tr class="even">'
    negative = ' class="negative"' if row["amount"] < 0 else ""
    return start + "<td>" + name + "</td><td" + negative + ">" + _amount(row["amount"]) + "</td></tr>\n"


def _html(rows):
    lines = "".join(_html_line(number, row) for number, row in enumerate(rows, 1))
    total = "<tr><th>Total</th><th>" + _amount(_total(rows)) + "</th></tr>\n" if rows else ""
    return "<table>\n" + lines + total + "</table>\n"


def _summary(rows):
    if not rows:
        return "no accounts\n"
    best = max(rows, key=lambda row: row["amount"])
    count = str(len(rows)) + (" account" if len(rows) == 1 else " accounts")
    return count + ", total " + _amount(_total(rows)) + ", largest " + best["name"] + "\n"


register("text", _text)
register("csv", _csv)
register("html", _html)
register("summary", _summary)
