import run

MATCHES = """
from datetime import datetime
from cron import matches
result = [matches(text, datetime.fromisoformat(moment)) for text, moment in inputs['cases']]
"""
REFUSED = """
from datetime import datetime
from cron import matches
result = [text for text in inputs['texts'] if raised(matches, text, datetime(2024, 1, 1)) != "ValueError"]
"""
NEXT = """
import time
from datetime import datetime
from cron import next_run
result = []
for text, after in inputs['cases']:
    began = time.monotonic()
    found = next_run(text, datetime.fromisoformat(after))
    slow = time.monotonic() - began > 2
    result.append("slow" if slow else found if found is None else found.isoformat())
"""


class Fields(run.Case):
    def check(self, *cases):
        found = self.call(MATCHES, cases=[case[:2] for case in cases])
        self.assertEqual(found, [case[2] for case in cases])

    def test_what_worked_still_works(self):
        self.check(("* * * * *", "2024-05-06T07:08", True), ("30 6 * * 0", "2024-05-05T06:30", True))
        self.check(("30 6 * * 0", "2024-05-06T06:30", False), ("5 4 3 2 *", "2024-02-03T04:05:59", True))

    def test_lists_and_ranges(self):
        self.check(
            ("1,2,58-59 * * * *", "2024-01-01T00:58", True),
            ("1,2,58-59 * * * *", "2024-01-01T00:03", False),
            ("0 9-17,22 * * *", "2024-01-01T22:00", True),
            ("0 9-17,22 * * *", "2024-01-01T18:00", False),
            ("0 8-8 * * *", "2024-01-01T08:00", True),
        )

    def test_steps_count_from_the_start_of_the_range(self):
        self.check(
            ("*/20 * * * *", "2024-01-01T00:40", True),
            ("*/20 * * * *", "2024-01-01T00:50", False),
            ("5-59/20 * * * *", "2024-01-01T00:25", True),
            ("5-59/20 * * * *", "2024-01-01T00:20", False),
            ("0 0 */2 * *", "2024-01-03T00:00", True),
            ("0 0 */2 * *", "2024-01-02T00:00", False),
            ("0 0 1 */5 *", "2024-06-01T00:00", True),
            ("*/90 * * * *", "2024-01-01T00:00", True),
            ("0 0 * * 1-7/3", "2024-01-07T00:00", True),
        )

    def test_names_in_any_case(self):
        self.check(
            ("0 0 * JAN,Mar *", "2024-03-01T00:00", True),
            ("0 0 * jan-mar *", "2024-04-01T00:00", False),
            ("0 0 * * Mon-FRI", "2024-05-10T00:00", True),
            ("0 0 * * mon-fri", "2024-05-11T00:00", False),
            ("0 0 * * sun", "2024-05-12T00:00", True),
        )

    def test_both_sundays(self):
        self.check(
            ("0 0 * * 7", "2024-05-12T00:00", True),
            ("0 0 * * 5-7", "2024-05-12T00:00", True),
            ("0 0 * * 5-7", "2024-05-09T00:00", False),
            ("0 0 * * 0-2", "2024-05-12T00:00", True),
        )

    def test_either_day_when_both_are_restricted(self):
        self.check(
            ("0 0 13 * 5", "2024-05-13T00:00", True),
            ("0 0 13 * 5", "2024-05-10T00:00", True),
            ("0 0 13 * 5", "2024-05-14T00:00", False),
            ("0 0 1-31 * 1", "2024-05-14T00:00", True),
            ("0 0 */2 * 1", "2024-05-06T00:00", True),
            ("0 0 13 * */7", "2024-05-12T00:00", True),
            ("0 0 13 6 5", "2024-05-10T00:00", False),
            ("0 0 13 * *", "2024-05-10T00:00", False),
        )

    def test_white_space(self):
        self.check((" 0\t0  * *\n* ", "2024-05-10T00:00", True))

    def test_refusals(self):
        texts = ["", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * 32 * *", "* * * 13 *"]
        texts += ["* * * * 8", "5-1 * * * *", "*/0 * * * *", "1,,2 * * * *", ",1 * * * *", "1, * * * *", "5/10 * * * *"]
        texts += ["x * * * *", "mon * * * *", "* * * mon *", "* * * * jan", "-1 * * * *", "+1 * * * *", "1- * * * *"]
        texts += ["1-2-3 * * * *", "*-5 * * * *", "*/ * * * *", "**/2 * * * *", "* * * * sat-sun", "1.5 * * * *"]
        texts += ["\u0665 * * * *", "*/2/3 * * * *", "1_0 * * * *", "* * * * sund"]
        self.assertEqual(self.call(REFUSED, texts=texts), [])


class NextRun(run.Case):
    def check(self, *cases):
        found = self.call(NEXT, cases=[case[:2] for case in cases])
        self.assertEqual(found, [case[2] for case in cases])

    def test_strictly_after(self):
        self.check(
            ("0 10 * * *", "2024-05-06T09:59:59.999999", "2024-05-06T10:00:00"),
            ("0 10 * * *", "2024-05-06T10:00:00", "2024-05-07T10:00:00"),
            ("0 10 * * *", "2024-05-06T10:00:30", "2024-05-07T10:00:00"),
            ("* * * * *", "2024-12-31T23:59:01", "2025-01-01T00:00:00"),
        )

    def test_lists_steps_and_names(self):
        self.check(
            ("*/15 9-17 * * mon-fri", "2024-05-10T17:45", "2024-05-13T09:00:00"),
            ("50,10 * * * *", "2024-05-10T17:10", "2024-05-10T17:50:00"),
            ("0 12 1 jan,jul *", "2024-01-01T12:00", "2024-07-01T12:00:00"),
        )

    def test_either_day(self):
        self.check(("0 0 13 * 5", "2024-05-10T00:00", "2024-05-13T00:00:00"))

    def test_short_months_and_leap_years(self):
        self.check(
            ("0 0 31 * *", "2024-01-31T00:00", "2024-03-31T00:00:00"),
            ("0 0 29 2 *", "2024-02-29T00:00", "2028-02-29T00:00:00"),
            ("0 0 29 2 *", "2096-02-29T12:00", "2104-02-29T00:00:00"),
        )

    def test_never_is_none_and_quick(self):
        self.check(("0 0 30 2 *", "2024-01-01T00:00", None), ("* * 31 4,6,9,11 *", "2024-01-01T00:00", None))

    def test_rare_is_quick(self):
        self.check(("59 23 31 12 *", "2024-12-31T23:59", "2025-12-31T23:59:00"))

    def test_refuses_what_matches_refuses(self):
        code = "from datetime import datetime\nfrom cron import next_run\nresult = raised(next_run, '61 * * * *', datetime(2024, 1, 1))"
        self.assertEqual(self.call(code), "ValueError")
