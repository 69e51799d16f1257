import ast

import run

# What report.py did before: the answers that must not change.
def before(rows, fmt):
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


ROWS = [
    [],
    [{"name": "Tea", "amount": 5}],
    [{"name": "Rent", "amount": -85000, "note": "May"}, {"name": "Consulting & more", "amount": 123456}],
    [{"name": "x" * 12, "amount": 0}, {"name": "x" * 13, "amount": -1, "note": ""}, {"name": "", "amount": 100, "note": None}],
    [{"name": 'a "b", c', "amount": -100, "note": "1\n2"}, {"name": "<b>&amp;</b>", "amount": -7, "note": "\r"}],
    [{"name": "one", "amount": 7, "note": "a,b"}, {"name": "two", "amount": 7}, {"name": "three", "amount": 7}],
    [{"name": "loss", "amount": -5}, {"name": "more loss", "amount": -99999999999}],
    [{"name": "\u00e9t\u00e9", "amount": 10**15, "note": "  "}, {"note": "odd", "amount": 1, "name": "z", "extra": 4}],
]
RENDER = "from report import render\nresult = [render(rows, inputs['fmt']) for rows in inputs['cases']]"


class Same(run.Case):
    def check(self, fmt):
        self.assertEqual(self.call(RENDER, fmt=fmt, cases=ROWS), [before(rows, fmt) for rows in ROWS])

    def test_text(self):
        self.check("text")

    def test_csv(self):
        self.check("csv")

    def test_html(self):
        self.check("html")

    def test_summary(self):
        self.check("summary")

    def test_unknown_format(self):
        code = """
from report import render
def said(rows, fmt):
    try:
        return render(rows, fmt)
    except ValueError as error:
        return str(error)
result = [said([], "pdf"), said([{}], "TEXT"), said([], None), said([], "")]
"""
        expected = ["unknown format: 'pdf'", "unknown format: 'TEXT'", "unknown format: None", "unknown format: ''"]
        self.assertEqual(self.call(code), expected)

    def test_rows_are_not_changed(self):
        code = """
import copy
from report import render
rows = copy.deepcopy(inputs["rows"])
for fmt in ("text", "csv", "html", "summary"):
    render(rows, fmt)
result = rows == inputs["rows"]
"""
        self.assertTrue(self.call(code, rows=ROWS[3]))

    def test_a_row_without_amount_is_still_an_error(self):
        code = "from report import render\nresult = [raised(render, [{'name': 'x'}], f) for f in ('text', 'csv', 'html', 'summary')]"
        self.assertEqual(self.call(code), ["KeyError"] * 4)


class Registry(run.Case):
    def test_formats(self):
        self.assertEqual(self.call("from report import formats\nresult = formats()"), ["csv", "html", "summary", "text"])

    def test_a_new_format(self):
        code = """
import report
report.register("count", lambda rows: f"{len(rows)} {type(rows).__name__}")
result = [report.render([{}, {}], "count"), report.formats(), report.render([], "summary")]
"""
        expected = ["2 list", ["count", "csv", "html", "summary", "text"], "no accounts\n"]
        self.assertEqual(self.call(code), expected)

    def test_refused_names(self):
        code = """
import report
report.register("mine", str)
result = [raised(report.register, name, str) for name in ("text", "mine", "", None, 3)]
result.append(report.render([], "text").startswith("TOTAL"))
"""
        self.assertEqual(self.call(code), ["ValueError"] * 5 + [True])

    def test_the_list_is_the_callers_own(self):
        code = "import report\nreport.formats().clear()\nresult = report.formats()"
        self.assertEqual(self.call(code), ["csv", "html", "summary", "text"])


class Shape(run.Case):
    def parsed(self):
        try:
            return ast.parse(self.source("report.py"))
        except SyntaxError as error:
            self.fail(error)

    def functions(self):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
        return [node for node in ast.walk(self.parsed()) if isinstance(node, kinds)]

    def test_no_long_function(self):
        long = [getattr(f, "name", "lambda") for f in self.functions() if f.end_lineno - f.lineno + 1 > 20]
        self.assertEqual(long, [])

    def test_no_comparison_with_a_format_name(self):
        names = {"text", "csv", "html", "summary"}
        found = []
        for node in ast.walk(self.parsed()):
            parts = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
            if type(node).__name__ == "MatchValue":
                parts = [node.value]
            found += [part.value for part in parts if isinstance(part, ast.Constant) and part.value in names]
        self.assertEqual(found, [])

    def test_each_format_is_registered(self):
        calls = [n for n in ast.walk(self.parsed()) if isinstance(n, ast.Call) and getattr(n.func, "id", "") == "register"]
        self.assertTrue(calls, "nothing is registered through register()")

    def test_the_amount_exists_once(self):
        self.assertLessEqual(self.source("report.py").count("zfill(2)"), 2)
