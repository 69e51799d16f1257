"""Usage: python3 tidy.py INPUT.csv OUTPUT.csv REJECTS.csv"""

import csv
import re
import sys
from datetime import datetime, timedelta
from fractions import Fraction

COLUMNS = ("sensor", "time", "value", "unit")
SENSOR = re.compile(r"([A-Z])-([0-9]{1,4})")
TIME = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[T ]([0-9]{2}):([0-9]{2})(?::([0-9]{2}))?(?:(Z)|([+-])([0-9]{2}):([0-9]{2}))?"
)
NUMBER = re.compile(r"[+-]?[0-9]+(?:[.,][0-9]+)?")


class Rejected(Exception):
    pass


def read_sensor(text):
    match = SENSOR.fullmatch(text.strip().upper())
    if match is None:
        raise Rejected("sensor")
    return f"{match[1]}-{int(match[2]):04d}"


def read_time(text):
    text = text.strip()
    try:
        if re.fullmatch("[0-9]{1,10}", text):
            moment = datetime(1970, 1, 1) + timedelta(seconds=int(text))
        else:
            moment = read_iso(TIME.fullmatch(text))
    except (ValueError, OverflowError):
        raise Rejected("time") from None
    return moment.isoformat(timespec="seconds") + "Z"


def read_iso(match):
    if match is None:
        raise ValueError("not a time")
    numbers = [int(part or 0) for part in match.groups()[:6]]
    moment = datetime(*numbers)
    if match[8] is None:
        return moment
    hours, minutes = int(match[9]), int(match[10])
    if hours > 14 or minutes > 59:
        raise ValueError("not an offset")
    offset = timedelta(hours=hours, minutes=minutes)
    return moment - offset if match[8] == "+" else moment + offset


def read_value(text):
    text = text.strip()
    if NUMBER.fullmatch(text) is None:
        raise Rejected("value")
    return Fraction(text.replace(",", "."))


def read_celsius(number, unit):
    unit = unit.strip().upper()
    if unit not in ("C", "F", "K"):
        raise Rejected("unit")
    if unit == "F":
        number = (number - 32) * Fraction(5, 9)
    elif unit == "K":
        number -= Fraction("273.15")
    if not -90 <= number <= 60:
        raise Rejected("range")
    return number


def two_decimals(number):
    hundredths = int(abs(number) * 100 + Fraction(1, 2))
    sign = "-" if number < 0 and hundredths else ""
    return f"{sign}{hundredths // 100}.{hundredths % 100:02d}"


def find_columns(header):
    names = [name.strip().lower() for name in header]
    if any(names.count(column) != 1 for column in COLUMNS):
        sys.exit(fail("each of the columns sensor, time, value, unit must be there once"))
    return [names.index(column) for column in COLUMNS]


def fail(message):
    print(message, file=sys.stderr)
    return 2


def read_rows(lines):
    """(line number, fields) of every row that is not empty."""
    reader = csv.reader(lines)
    begin = 1
    for row in reader:
        if row:
            yield begin, row
        begin = reader.line_num + 1


def tidy(rows, width, columns):
    readings, rejects = {}, []
    for line, row in rows:
        try:
            if len(row) != width:
                raise Rejected("fields")
            sensor, time, value, unit = (row[index] for index in columns)
            key = (read_sensor(sensor), read_time(time))
            readings[key] = two_decimals(read_celsius(read_value(value), unit))
        except Rejected as reason:
            rejects.append(f"{line},{reason}")
    return [f"{sensor},{time},{value}" for (sensor, time), value in sorted(readings.items())], rejects


def write(path, lines):
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)


def main():
    source, output, rejects_path = sys.argv[1:]
    with open(source, encoding="utf-8-sig", newline="") as file:
        rows = list(read_rows(file))
    if not rows:
        return fail("there is no header")
    header = rows[0][1]
    readings, rejects = tidy(rows[1:], len(header), find_columns(header))
    write(output, ["sensor,time,celsius", *readings])
    write(rejects_path, ["line,reason", *rejects])
    return 0


if __name__ == "__main__":
    sys.exit(main())
