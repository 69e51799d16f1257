import run

SPLIT = "from billing import split\nresult = [split(t, w) for t, w in inputs['cases']]"
PARSE = "from billing import parse_amount\nresult = [parse_amount(t) for t in inputs['texts']]"
REFUSED = "from billing import parse_amount\nresult = {t: raised(parse_amount, t) for t in inputs['texts']}"
FORMAT = "from billing import format_amount\nresult = [format_amount(n) for n in inputs['amounts']]"


class Split(run.Case):
    def check(self, *cases):
        found = self.call(SPLIT, cases=[(total, weights) for total, weights, _ in cases])
        self.assertEqual(found, [expected for _, _, expected in cases])

    def test_parts_add_up(self):
        self.check((1000, [1, 1, 1], [334, 333, 333]), (100, [1, 1, 1, 1, 1, 1], [17, 17, 17, 17, 16, 16]))

    def test_even_shares_are_untouched(self):
        self.check((900, [1, 2], [300, 600]), (0, [3, 4], [0, 0]), (5, [7], [5]))

    def test_largest_fraction_first(self):
        self.check((100, [1, 2, 4], [14, 29, 57]), (10, [3, 3, 1], [4, 4, 2]), (7, [1, 5, 5], [1, 3, 3]))

    def test_ties_go_to_the_earlier(self):
        self.check((1, [1, 1], [1, 0]), (3, [2, 2, 2, 2], [1, 1, 1, 0]), (5, [1, 3, 1, 3], [1, 2, 0, 2]))

    def test_refund_is_the_mirror_image(self):
        self.check((-1000, [1, 1, 1], [-334, -333, -333]), (-1, [1, 1], [-1, 0]), (-7, [1, 5, 5], [-1, -3, -3]))

    def test_zero_weight_gets_nothing(self):
        self.check((1, [0, 1, 0], [0, 1, 0]), (101, [0, 1, 1], [0, 51, 50]))

    def test_large_amounts_stay_exact(self):
        big = 10**18 - 1
        self.check((big, [1, 1], [big // 2 + 1, big // 2]), (big, [1, 10**9], [999999999, big - 999999999]))

    def test_bad_weights_are_refused(self):
        code = "from billing import split\nresult = [raised(split, 5, w) for w in inputs['weights']]"
        self.assertEqual(self.call(code, weights=[[], [0, 0], [2, -1], [-1, 1]]), ["ValueError"] * 4)

    def test_input_is_not_changed(self):
        code = "from billing import split\nw = [3, 1, 2]\nsplit(10, w)\nresult = w"
        self.assertEqual(self.call(code), [3, 1, 2])


class Parse(run.Case):
    def test_exact_cents(self):
        texts = ["19.99", "0.29", "1.15", "4.35", "1001.10", "-0.05", "90071992547409.93"]
        self.assertEqual(self.call(PARSE, texts=texts), [1999, 29, 115, 435, 100110, -5, 9007199254740993])

    def test_signs_groups_and_spaces(self):
        texts = ["+3", " 7.5 ", "1,234.50", "12,345,678", "0012.30", "\t-1,000.1\n", "-0"]
        self.assertEqual(self.call(PARSE, texts=texts), [300, 750, 123450, 1234567800, 1230, -100010, 0])

    def test_everything_else_is_refused(self):
        texts = ["", " ", "abc", "1.234", "1,23", ".5", "5.", "1_000", "nan", "inf", "--5", "+-5", "1 000", "1,2345"]
        texts += ["1234,567", ",123", "1e3", "- 5", "1.2.3", "\u0663", "5\u0660.00", "1,234,56.00", "0x10"]
        self.assertEqual(self.call(REFUSED, texts=texts), {text: "ValueError" for text in texts})


class Format(run.Case):
    def test_two_digits_always(self):
        self.assertEqual(self.call(FORMAT, amounts=[1205, 0, 7, 100, 123456]), ["12.05", "0.00", "0.07", "1.00", "1234.56"])

    def test_negative(self):
        self.assertEqual(self.call(FORMAT, amounts=[-5, -100, -12345]), ["-0.05", "-1.00", "-123.45"])

    def test_round_trip(self):
        code = "from billing import *\nresult = [n for n in inputs['n'] if parse_amount(format_amount(n)) != n]"
        self.assertEqual(self.call(code, n=[*range(-250, 251), 10**18 + 1, -(10**18) - 99]), [])
