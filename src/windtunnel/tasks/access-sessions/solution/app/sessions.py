"""Usage: python3 sessions.py INPUT.log OUTPUT.json"""

import json
import re
import sys
from collections import Counter
from datetime import datetime, timedelta
from urllib.parse import unquote

QUOTED = r'"((?:[^"\\]|\\["\\])*)"'
LINE = re.compile(
    r"(\S+) (\S+) (\S+) \[([0-9]{2})/([A-Z][a-z]{2})/([0-9]{4}):([0-9]{2}):([0-9]{2}):([0-9]{2}) ([+-])([0-9]{2})([0-9]{2})\] "
    + QUOTED + r" ([0-9]{3}) ([0-9]+|-) " + QUOTED + " " + QUOTED
)
MONTHS = "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec".split()
BOT = re.compile("bot|crawler|spider", re.IGNORECASE)
ASSETS = (".css", ".js", ".png", ".ico")
GAP = 1800


def read_time(day, month, year, hour, minute, second, sign, off_hours, off_minutes):
    moment = datetime(int(year), MONTHS.index(month) + 1, int(day), int(hour), int(minute), int(second))
    offset = timedelta(hours=int(off_hours), minutes=int(off_minutes))
    return moment - offset if sign == "+" else moment + offset


def plain(text):
    return re.sub(r'\\(["\\])', r"\1", text)


def read_line(line):
    """The request of a line as a dict. Raises ValueError for a broken one."""
    match = LINE.fullmatch(line)
    if match is None:
        raise ValueError("broken")
    address, _, user = match.groups()[:3]
    words = plain(match[13]).split(" ")
    if len(words) != 3 or not all(words) or not words[2].startswith("HTTP/"):
        raise ValueError("not a request")
    agent = plain(match[17])
    path = unquote(re.split("[?#]", words[1], maxsplit=1)[0], encoding="utf-8", errors="replace")
    return {
        "visitor": user if user != "-" else f"{address}|{agent}",
        "agent": agent,
        "time": read_time(*match.groups()[3:12]),
        "page": re.sub("/+", "/", path),
        "error": int(match[14]) >= 400,
        "bytes": 0 if match[15] == "-" else int(match[15]),
    }


def session_of(requests):
    pages = []
    for request in requests:
        if not request["error"] and pages[-1:] != [request["page"]]:
            pages.append(request["page"])
    first, last = requests[0]["time"], requests[-1]["time"]
    return {
        "visitor": requests[0]["visitor"],
        "start": first.isoformat(timespec="seconds") + "Z",
        "seconds": int((last - first).total_seconds()),
        "requests": len(requests),
        "errors": sum(request["error"] for request in requests),
        "bytes": sum(request["bytes"] for request in requests),
        "pages": pages,
    }


def make_sessions(requests):
    groups, latest = [], {}
    for request in sorted(requests, key=lambda request: request["time"]):
        group = latest.get(request["visitor"])
        if group is None or (request["time"] - group[-1]["time"]).total_seconds() > GAP:
            group = latest[request["visitor"]] = []
            groups.append(group)
        group.append(request)
    return sorted(map(session_of, groups), key=lambda session: (session["start"], session["visitor"]))


def summarise(lines):
    counts = {"total": 0, "broken": 0, "bots": 0, "assets": 0}
    requests = []
    for line in lines:
        if not line:
            continue
        counts["total"] += 1
        try:
            request = read_line(line)
        except (ValueError, OverflowError):
            counts["broken"] += 1
            continue
        if BOT.search(request["agent"]):
            counts["bots"] += 1
        elif request["page"].lower().endswith(ASSETS):
            counts["assets"] += 1
        else:
            requests.append(request)
    sessions = make_sessions(requests)
    pages = Counter(page for session in sessions for page in set(session["pages"]))
    top = sorted(pages.items(), key=lambda item: (-item[1], item[0]))[:5]
    return {"lines": counts, "sessions": sessions, "top": [list(item) for item in top]}


def main():
    with open(sys.argv[1], "rb") as file:
        text = file.read().decode("utf-8", errors="replace")
    lines = [line[:-1] if line.endswith("\r") else line for line in text.split("\n")]
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(summarise(lines), file)


if __name__ == "__main__":
    main()
