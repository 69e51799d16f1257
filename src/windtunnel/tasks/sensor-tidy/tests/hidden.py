import run

HEADER = "sensor,time,value,unit\n"


class Tidy(run.Case):
    def tidy(self, text):
        done = self.script("tidy.py", "in.csv", "out.csv", "bad.csv", files={"in.csv": text})
        self.assertEqual(done.exit, 0, done.stderr[-500:])
        return done.files.get("out.csv"), done.files.get("bad.csv")

    def check(self, text, rows, rejects=()):
        out, bad = self.tidy(text)
        self.assertEqual(out, "".join(line + "\n" for line in ["sensor,time,celsius", *rows]))
        self.assertEqual(bad, "".join(line + "\n" for line in ["line,reason", *rejects]))

    def values(self, cells):
        """(celsius or reason) for each "value,unit" cell pair."""
        text = HEADER + "".join("a-%d,0,%s\n" % (n, cell) for n, cell in enumerate(cells))
        out, bad = self.tidy(text)
        found = {int(row.split(",")[0][2:]): row.split(",")[2] for row in (out or "").splitlines()[1:]}
        found.update({int(row.split(",")[0]) - 2: row.split(",")[1] for row in (bad or "").splitlines()[1:]})
        return [found.get(n) for n in range(len(cells))]

    def times(self, cells):
        text = HEADER + "".join("a-%d,%s,1,C\n" % (n, cell) for n, cell in enumerate(cells))
        out, bad = self.tidy(text)
        found = {int(row.split(",")[0][2:]): row.split(",")[1] for row in (out or "").splitlines()[1:]}
        found.update({int(row.split(",")[0]) - 2: row.split(",")[1] for row in (bad or "").splitlines()[1:]})
        return [found.get(n) for n in range(len(cells))]

    def test_sample(self):
        text = (
            'Sensor, Time ,value,unit,comment\na-1,2024-03-01T12:00:00Z,21.5,C,\nA-0001,2024-03-01 13:00+01:00,70,f,"same moment,\n'
            'again"\nb-22,1709294400,"-3,25",c,unix\nb-22,2024-02-30T10:00,4,C,no such day\nc-3,2024-03-01T10:00,500,K,hot\n'
        )
        rows = ["A-0001,2024-03-01T12:00:00Z,21.11", "B-0022,2024-03-01T12:00:00Z,-3.25"]
        self.check(text, rows, ["6,time", "7,range"])

    def test_columns_in_any_order_and_case(self):
        text = " UNIT ,x,VALUE,Time,sensor\nk,1,273.15,2024-01-01T00:00,z-9\n"
        self.check(text, ["Z-0009,2024-01-01T00:00:00Z,0.00"])

    def test_byte_order_mark_crlf_and_empty_lines(self):
        text = "\ufeffsensor,time,value,unit\r\n\r\na-1,0,1,C\r\n\r\n\r\nbad,0,1,C\r\n"
        self.check(text, ["A-0001,1970-01-01T00:00:00Z,1.00"], ["6,sensor"])

    def test_no_rows(self):
        self.check(HEADER, [])

    def test_field_counts(self):
        self.check(HEADER + "a-1,0,1\na-1,0,1,C,extra\na-1,0,1,C\n", ["A-0001,1970-01-01T00:00:00Z,1.00"], ["2,fields", "3,fields"])

    def test_sensor_names(self):
        rows = "".join("%s,0,1,C\n" % name for name in (" q-12 ", "a-12345", "ab-1", "a1", "a-", "-1", "\u00e9-1", "a-\u0663", "a-0"))
        expected = ["A-0000,1970-01-01T00:00:00Z,1.00", "Q-0012,1970-01-01T00:00:00Z,1.00"]
        self.check(HEADER + rows, expected, ["%d,sensor" % line for line in range(3, 10)])

    def test_times(self):
        cells = ["2024-02-29T23:59:59Z", " 2024-01-01 00:30 ", "2024-01-01T00:30+05:45", "2023-12-31 22:00-03:00", "9999999999", "0"]
        expected = ["2024-02-29T23:59:59Z", "2024-01-01T00:30:00Z", "2023-12-31T18:45:00Z", "2024-01-01T01:00:00Z"]
        self.assertEqual(self.times(cells), [*expected, "2286-11-20T17:46:39Z", "1970-01-01T00:00:00Z"])

    def test_refused_times(self):
        cells = ["2023-02-29T00:00", "2024-01-01T24:00", "2024-01-01", "2024-1-1T00:00", "2024-01-01T00:00:60Z", "2024-01-01T00:00z"]
        cells += ["2024-01-01T00:00+1:00", "2024-01-01T00:00+15:00", "2024-01-01T00:00+01:60", "2024-01-01T00:00:00.5Z", "12345678901"]
        cells += ["-5", "", "2024-01-01T00:00 Z", "2024-13-01T00:00", "20240101T000000", "\u0661"]
        self.assertEqual(self.times(cells), ["time"] * len(cells))

    def test_values(self):
        cells = ['"21,5",C', " +1.5 ,c", "-0.001,C", "68,F", "0,f", "300,k", "00012.30, C "]
        self.assertEqual(self.values(cells), ["21.50", "1.50", "0.00", "20.00", "-17.78", "26.85", "12.30"])

    def test_rounding_is_exact_and_away_from_zero(self):
        cells = ["0.005,C", "-0.005,C", "1.005,C", "2.675,C", "273.155,K", "273.145,K", "32.009,F", "31.991,F", "-2.345,C"]
        self.assertEqual(self.values(cells), ["0.01", "-0.01", "1.01", "2.68", "0.01", "-0.01", "0.01", "-0.01", "-2.35"])

    def test_refused_values_and_units(self):
        cells = ["1e3,C", ".5,C", "5.,C", "nan,C", '"1,000.5",C', '"1,2,3",C', ",C", "1 0,C", "1_0,C", "\u0661,C", "--1,C", "x,X"]
        self.assertEqual(self.values(cells), ["value"] * len(cells))
        self.assertEqual(self.values(["1,", "1,R", "1,CC"]), ["unit"] * 3)

    def test_range_is_checked_before_rounding(self):
        cells = ["60,C", "60.0001,C", "-90,C", "-90.001,C", "140,F", "140.001,F", "333.15,K", "333.151,K", "0,K"]
        expected = ["60.00", "range", "-90.00", "range", "60.00", "range", "60.00", "range", "range"]
        self.assertEqual(self.values(cells), expected)

    def test_first_failing_rule_is_the_reason(self):
        self.check(HEADER + "x,x,x,x\na-1,x,x,x\na-1,0,x,x\na-1,0,1,x\n", [], ["2,sensor", "3,time", "4,value", "5,unit"])

    def test_last_duplicate_wins_unless_rejected(self):
        text = HEADER + "a-1,3600,1,C\na-0001,1970-01-01T01:00Z,2,C\nA-1,1970-01-01 02:00+01:00,99,C\n"
        self.check(text, ["A-0001,1970-01-01T01:00:00Z,2.00"], ["4,range"])

    def test_sorted_by_sensor_then_time(self):
        text = HEADER + "b-2,7,1,C\nb-10,5,1,C\na-9,9999999999,1,C\na-9,8,1,C\n"
        names = [row[:6] for row in self.tidy(text)[0].splitlines()[1:]]
        self.assertEqual(names, ["A-0009", "A-0009", "B-0002", "B-0010"])

    def test_line_numbers_count_quoted_line_ends(self):
        text = 'sensor,time,value,unit,note\na-1,0,1,C,"x\n\ny"\nbad,0,1,C,"1\n2"\nworse,0,1,C,\n'
        self.check(text, ["A-0001,1970-01-01T00:00:00Z,1.00"], ["5,sensor", "7,sensor"])

    def test_bad_headers(self):
        for text in ("", "\n", "sensor,time,value\na-1,0,1\n", "sensor,time,value,unit,Unit\na-1,0,1,C,C\n"):
            done = self.script("tidy.py", "in.csv", "out.csv", "bad.csv", files={"in.csv": text})
            self.assertEqual(done.exit, 2, repr(text))
            self.assertTrue(done.stderr.strip())
            self.assertEqual(sorted(done.files), ["in.csv"])
