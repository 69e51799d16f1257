import json

import run


def line(time="05/May/2024:10:00:00 +0000", target="/a", status=200, size="10", agent="Firefox", user="-", address="1.1.1.1", request=None):
    request = request or "GET %s HTTP/1.1" % target
    return '%s - %s [%s] "%s" %s %s "-" "%s"' % (address, user, time, request, status, size, agent)


def at(minute, second=0, **rest):
    return line("05/May/2024:%02d:%02d:%02d +0000" % (10 + minute // 60, minute % 60, second), **rest)


class Sessions(run.Case):
    def sessions(self, *lines, end="\n"):
        text = "".join(one + end for one in lines)
        done = self.script("sessions.py", "in.log", "out.json", files={"in.log": text})
        self.assertEqual(done.exit, 0, done.stderr[-500:])
        try:
            return json.loads(done.files.get("out.json", ""))
        except ValueError as error:
            self.fail("out.json: %s" % error)

    def pages(self, *targets):
        return self.sessions(*[at(n, target=target) for n, target in enumerate(targets)])["sessions"][0]["pages"]

    def test_sample(self):
        found = self.sessions(
            '1.2.3.4 - ann [05/May/2024:10:00:00 +0200] "GET /a?x=1 HTTP/1.1" 200 512 "-" "Mozilla/5.0"',
            '1.2.3.4 - ann [05/May/2024:08:01:00 +0000] "GET //b HTTP/1.1" 200 512 "-" "Mozilla/5.0"',
            '1.2.3.4 - ann [05/May/2024:10:00:01 +0200] "GET /site.CSS HTTP/1.1" 200 99 "-" "Mozilla/5.0"',
            '9.9.9.9 - - [05/May/2024:10:00:00 +0200] "GET /a HTTP/1.1" 200 512 "-" "GoodBot/1.0"',
            "this is not a log line",
            '5.6.7.8 - - [05/May/2024:09:00:00 +0000] "GET /caf%C3%A9 HTTP/1.1" 404 - "-" "curl/8"',
        )
        ann = {"visitor": "ann", "start": "2024-05-05T08:00:00Z", "seconds": 60, "requests": 2, "errors": 0, "bytes": 1024}
        curl = {"visitor": "5.6.7.8|curl/8", "start": "2024-05-05T09:00:00Z", "seconds": 0, "requests": 1, "errors": 1, "bytes": 0}
        self.assertEqual(found["lines"], {"total": 6, "broken": 1, "bots": 1, "assets": 1})
        self.assertEqual(found["sessions"], [{**ann, "pages": ["/a", "/b"]}, {**curl, "pages": []}])
        self.assertEqual(found["top"], [["/a", 1], ["/b", 1]])

    def test_nothing(self):
        zero = {"total": 0, "broken": 0, "bots": 0, "assets": 0}
        self.assertEqual(self.sessions(), {"lines": zero, "sessions": [], "top": []})

    def test_gap_is_more_than_1800_seconds(self):
        found = self.sessions(at(0), at(30), at(60, 1))["sessions"]
        self.assertEqual([(s["start"][11:19], s["seconds"], s["requests"]) for s in found], [("10:00:00", 1800, 2), ("11:00:01", 0, 1)])

    def test_file_is_not_sorted_and_zones_differ(self):
        found = self.sessions(
            line("05/May/2024:12:20:00 +0200", target="/c"),
            line("05/May/2024:05:30:00 -0430", target="/a"),
            line("05/May/2024:10:10:00 +0000", target="/b"),
        )["sessions"]
        self.assertEqual([(s["start"], s["pages"]) for s in found], [("2024-05-05T10:00:00Z", ["/a", "/b", "/c"])])

    def test_equal_times_keep_the_order_of_the_file(self):
        self.assertEqual(self.sessions(*[at(0, target=t) for t in ("/z", "/a", "/m")])["sessions"][0]["pages"], ["/z", "/a", "/m"])

    def test_visitors(self):
        found = self.sessions(
            at(0, user="ann"), at(1, user="ann", address="2.2.2.2", agent="Other"), at(0), at(1, agent="Chrome"), at(2, address="2.2.2.2")
        )["sessions"]
        expected = [("1.1.1.1|Firefox", 1), ("ann", 2), ("1.1.1.1|Chrome", 1), ("2.2.2.2|Firefox", 1)]
        self.assertEqual([(s["visitor"], s["requests"]) for s in found], expected)

    def test_bots_in_any_case_even_with_errors(self):
        agents = ["xBOTx", "a crawler", "SpiderMan", "Mozilla (compatible; bingbot/2.0)"]
        found = self.sessions(*[at(0, agent=agent, status=500, target="/x.js") for agent in agents], at(0, user="robot"))
        self.assertEqual((found["lines"], len(found["sessions"])), ({"total": 5, "broken": 0, "bots": 4, "assets": 0}, 1))

    def test_assets_do_not_keep_a_session_going(self):
        found = self.sessions(at(0), at(20, target="/x.PNG?v=1"), at(40, target="/favicon%2Eico"), at(25, target="/b.css", status=404))
        self.assertEqual((found["lines"]["assets"], found["sessions"][0]["requests"], len(found["sessions"])), (3, 1, 1))
        self.assertEqual(len(self.sessions(at(0), at(20, target="/x.js"), at(40))["sessions"]), 2)

    def test_errors_keep_a_session_going(self):
        found = self.sessions(at(0), at(20, target="/no", status=404), at(40, target="/b", status=399), at(41, status=500))["sessions"]
        self.assertEqual([(s["requests"], s["errors"], s["pages"]) for s in found], [(4, 2, ["/a", "/b"])])

    def test_pages(self):
        targets = ["/a?b#c", "/a#b?c", "//x///y/", "/%2Fz", "/a%2520b", "/a%zz%", "/%ff", "/caf%C3%A9?%C3", "*"]
        expected = ["/a", "/x/y/", "/z", "/a%20b", "/a%zz%", "/\ufffd", "/caf\u00e9", "*"]
        self.assertEqual(self.pages(*targets), expected)

    def test_encoded_question_mark_belongs_to_the_page(self):
        self.assertEqual(self.pages("/a%3Fb", "/c%23d?e"), ["/a?b", "/c#d"])

    def test_repeats_in_a_row_are_listed_once(self):
        found = self.sessions(at(0), at(1), at(2, target="/b"), at(3), at(4, target="/e", status=404), at(5))["sessions"][0]
        self.assertEqual((found["pages"], found["requests"]), (["/a", "/b", "/a"], 6))

    def test_top_counts_sessions(self):
        lines = [at(0, user=u, target=t) for u, t in (("u1", "/a"), ("u2", "/a"), ("u3", "/b"), ("u4", "/b"))]
        lines += [at(n, user="u5", target=t) for n, t in enumerate(["/c", "/d", "/c", "/d", "/c", "/e", "/f"])]
        expected = [["/a", 2], ["/b", 2], ["/c", 1], ["/d", 1], ["/e", 1]]
        self.assertEqual(self.sessions(*lines)["top"], expected)

    def test_bytes(self):
        self.assertEqual(self.sessions(at(0, size="-"), at(1, size="0"), at(2, size="12345678901"))["sessions"][0]["bytes"], 12345678901)

    def test_escaped_quotes(self):
        found = self.sessions(at(0, agent='a \\"b\\" \\\\c'), at(1, request='GET /q\\"x HTTP/2'))["sessions"]
        self.assertEqual([(s["visitor"], s["pages"]) for s in found], [('1.1.1.1|a "b" \\c', ["/a"]), ("1.1.1.1|Firefox", ['/q"x'])])

    def test_broken_lines(self):
        good = at(0)
        lines = [good + " ", " " + good, good[:-1], good.replace(" 200 ", " 20 "), good.replace(" 10 ", " x "), good.replace("May", "Mai")]
        lines += [good.replace("05/", "31/").replace("May", "Apr"), good.replace(" +0000", ""), good.replace("10:00:00", "24:00:00")]
        lines += [at(0, request="GET /a"), at(0, request="GET  /a HTTP/1.1"), at(0, request="GET /a b HTTP/1.1"), at(0, request="GET /a FTP/1")]
        lines += [at(0, request="-"), good.replace(" - - ", " -  - "), at(0, agent='x"y'), at(0, agent="x\\"), "x"]
        found = self.sessions(*lines, good)
        self.assertEqual((found["lines"]["total"], found["lines"]["broken"], len(found["sessions"])), (len(lines) + 1, len(lines), 1))

    def test_empty_lines_and_crlf(self):
        found = self.sessions("", at(0), "", at(1), "", end="\r\n")
        self.assertEqual((found["lines"]["total"], found["lines"]["broken"], len(found["sessions"])), (2, 0, 1))

    def test_sessions_are_sorted_by_start_then_visitor(self):
        found = self.sessions(at(5, user="b"), at(5, user="a"), at(0, user="z"))["sessions"]
        self.assertEqual([s["visitor"] for s in found], ["z", "a", "b"])
