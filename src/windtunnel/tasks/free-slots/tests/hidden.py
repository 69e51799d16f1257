import run

MERGE = "from slots import merge\nresult = [merge([tuple(i) for i in c]) for c in inputs['cases']]"
FREE = """
from slots import free_slots
result = [free_slots([tuple(i) for i in busy], *rest) for busy, rest in inputs['cases']]
"""
COMMON = """
from slots import common_slots
result = [common_slots([[tuple(i) for i in busy] for busy in people], *rest) for people, rest in inputs['cases']]
"""


class Merge(run.Case):
    def test_nested_and_overlapping(self):
        cases = [[(5, 20), (7, 9)], [(1, 4), (2, 6), (5, 8)], [(10, 12), (1, 3)], []]
        self.assertEqual(self.call(MERGE, cases=cases), [[[5, 20]], [[1, 8]], [[1, 3], [10, 12]], []])

    def test_touching_become_one(self):
        self.assertEqual(self.call(MERGE, cases=[[(3, 5), (1, 3)], [(1, 2), (3, 4)]]), [[[1, 5]], [[1, 2], [3, 4]]])

    def test_empty_ones_disappear(self):
        self.assertEqual(self.call(MERGE, cases=[[(4, 4)], [(1, 9), (5, 5), (20, 20)]]), [[], [[1, 9]]])

    def test_backwards_is_refused(self):
        code = "from slots import merge\nresult = [raised(merge, [(5, 4)]), raised(merge, [(1, 2), (9, 3)])]"
        self.assertEqual(self.call(code), ["ValueError", "ValueError"])

    def test_tuples_from_any_iterable(self):
        code = "from slots import merge\nx = merge(iter([[4, 6], [1, 2]]))\nresult = [x, [type(i).__name__ for i in x]]"
        self.assertEqual(self.call(code), [[[1, 2], [4, 6]], ["tuple", "tuple"]])


class Free(run.Case):
    def check(self, *cases):
        found = self.call(FREE, cases=[(busy, rest) for busy, rest, _ in cases])
        self.assertEqual(found, [[list(slot) for slot in expected] for _, _, expected in cases])

    def test_simple_days(self):
        self.check(([(600, 660)], (480, 1080), [(480, 600), (660, 1080)]), ([], (480, 1080), [(480, 1080)]))

    def test_nested_meeting(self):
        self.check(([(540, 720), (560, 580)], (480, 1080), [(480, 540), (720, 1080)]))

    def test_outside_of_the_day(self):
        self.check(
            ([(0, 500)], (480, 1080), [(500, 1080)]),
            ([(1000, 1400)], (480, 1080), [(480, 1000)]),
            ([(0, 100), (1200, 1300)], (480, 1080), [(480, 1080)]),
            ([(0, 1440)], (480, 1080), []),
            ([(0, 480), (1080, 1440)], (480, 1080), [(480, 1080)]),
        )

    def test_minimum_length(self):
        busy = [(500, 510), (540, 600)]
        self.check((busy, (480, 700, 30), [(510, 540), (600, 700)]), (busy, (480, 700, 101), []))

    def test_empty_interval_splits_nothing(self):
        self.check(([(600, 600)], (480, 1080), [(480, 1080)]), ([(480, 480), (1080, 1080)], (480, 1080), [(480, 1080)]))

    def test_no_day(self):
        self.check(([(1, 2)], (600, 600), []), ([], (700, 600), []), ([(650, 660)], (700, 600), []))

    def test_refusals(self):
        code = """
from slots import free_slots
result = [raised(free_slots, [], 0, 9, 0), raised(free_slots, [], 0, 9, -3), raised(free_slots, [(5, 4)], 0, 9),
          raised(free_slots, [(50, 40)], 0, 9)]
"""
        self.assertEqual(self.call(code), ["ValueError"] * 4)

    def test_arguments_are_not_changed(self):
        code = "from slots import free_slots\nb = [[9, 12], [1, 3], [2, 5]]\nfree_slots(b, 0, 20)\nresult = b"
        self.assertEqual(self.call(code), [[9, 12], [1, 3], [2, 5]])


class Common(run.Case):
    def test_everybody_is_free(self):
        people = [[(540, 600)], [(600, 660)], [(900, 960), (500, 520)]]
        expected = [[480, 500], [520, 540], [660, 900], [960, 1080]]
        self.assertEqual(self.call(COMMON, cases=[(people, (480, 1080))]), [expected])

    def test_calls_are_independent(self):
        cases = [([[(480, 1080)]], (480, 1080)), ([[]], (480, 1080)), ([], (480, 500)), ([[], []], (1, 5, 4))]
        self.assertEqual(self.call(COMMON, cases=cases), [[], [[480, 1080]], [[480, 500]], [[1, 5]]])

    def test_short_overlaps_do_not_count(self):
        self.assertEqual(self.call(COMMON, cases=[([[(0, 50)], [(60, 100)]], (0, 100, 11))]), [[]])

    def test_generators(self):
        code = """
from slots import common_slots
people = (iter(busy) for busy in ([(0, 2)], [(8, 9)]))
result = common_slots(people, 0, 10)
"""
        self.assertEqual(self.call(code), [[2, 8], [9, 10]])
