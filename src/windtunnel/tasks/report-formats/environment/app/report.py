"""Reports of accounts in several formats."""


def render(rows, fmt):
    """Text of a report. A row is a dict with "name", "amount" (cents) and, if there is one, "note"."""
    if fmt == "text":
        out = ""
        total = 0
        for row in rows:
            name = row["name"]
            if len(name) > 12:
                name = name[:11] + "~"
            a = row["amount"]
            total = total + a
            if a < 0:
                amount = "(" + str(-a // 100) + "." + str(-a % 100).zfill(2) + ")"
            else:
                amount = str(a // 100) + "." + str(a % 100).zfill(2)
            out = out + name.ljust(12) + " " + amount.rjust(12)
            if row.get("note"):
                out = out + "  # " + row["note"]
            out = out + "\n"
        if rows:
            out = out + "-" * 25 + "\n"
        if total < 0:
            amount = "(" + str(-total // 100) + "." + str(-total % 100).zfill(2) + ")"
        else:
            amount = str(total // 100) + "." + str(total % 100).zfill(2)
        out = out + "TOTAL".ljust(12) + " " + amount.rjust(12) + "\n"
        return out
    elif fmt == "csv":
        out = "name,amount,note\r\n"
        for row in rows:
            cells = []
            for key in ["name", "amount", "note"]:
                value = row.get(key)
                if key == "amount":
                    a = row["amount"]
                    if a < 0:
                        value = "-" + str(-a // 100) + "." + str(-a % 100).zfill(2)
                    else:
                        value = str(a // 100) + "." + str(a % 100).zfill(2)
                if value is None:
                    value = ""
                if "," in value or '"' in value or "\n" in value:
                    value = '"' + value.replace('"', '""') + '"'
                cells.append(value)
            out = out + ",".join(cells) + "\r\n"
        return out
    elif fmt == "html":
        out = "<table>\n"
        total = 0
        n = 0
        for row in rows:
            n = n + 1
            a = row["amount"]
            total = total + a
            name = row["name"].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
            if a < 0:
                amount = "(" + str(-a // 100) + "." + str(-a % 100).zfill(2) + ")"
                cls = ' class="negative"'
            else:
                amount = str(a // 100) + "." + str(a % 100).zfill(2)
                cls = ""
            if n % 2 == 0:
                out = out + '<tr class="even">'
            else:
                out = out + "<tr>"
            out = out + "<td>" + name + "</td><td" + cls + ">" + amount + "</td></tr>\n"
        if total < 0:
            amount = "(" + str(-total // 100) + "." + str(-total % 100).zfill(2) + ")"
        else:
            amount = str(total // 100) + "." + str(total % 100).zfill(2)
        if n > 0:
            out = out + "<tr><th>Total</th><th>" + amount + "</th></tr>\n"
        out = out + "</table>\n"
        return out
    elif fmt == "summary":
        total = 0
        best = None
        for row in rows:
            total = total + row["amount"]
            if best is None or row["amount"] > best["amount"]:
                best = row
        if best is None:
            return "no accounts\n"
        if total < 0:
            amount = "(" + str(-total // 100) + "." + str(-total % 100).zfill(2) + ")"
        else:
            amount = str(total // 100) + "." + str(total % 100).zfill(2)
        s = "s"
        if len(rows) == 1:
            s = ""
        return str(len(rows)) + " account" + s + ", total " + amount + ", largest " + best["name"] + "\n"
    else:
        raise ValueError("unknown format: " + repr(fmt))
