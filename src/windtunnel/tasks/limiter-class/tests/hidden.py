import ast

import run

START = """
import limiter
from limiter import Limiter
class Clock:
    now = 100.0
    def __call__(self):
        return self.now
clock = Clock()
def size(value, seen=None):
    "Numbers held by an object, whatever it is made of; clocks and classes do not count."
    if isinstance(value, (int, float)):
        return 1
    seen = set() if seen is None else seen
    if id(value) in seen or callable(value):
        return 0
    seen.add(id(value))
    if isinstance(value, dict):
        return sum(size(v, seen) + size(k, seen) for k, v in value.items())
    if isinstance(value, (str, bytes)) or value is None:
        return 0
    if hasattr(value, "__dict__"):
        return size(vars(value), seen)
    try:
        return sum(size(v, seen) for v in value)
    except TypeError:
        return 0
"""


class TheClass(run.Case):
    def test_limit_per_key(self):
        code = START + """
l = Limiter(2, 10, clock)
result = [[l.allow("a") for _ in range(3)], l.allow("b"), l.remaining("a"), l.remaining("b"), l.remaining("c")]
"""
        self.assertEqual(self.call(code), [[True, True, False], True, 0, 1, 2])

    def test_sliding_and_boundary(self):
        code = START + """
l = Limiter(2, 10, clock)
found = []
for now in (100, 104, 109.999, 110, 113.5, 114, 114, 120):
    clock.now = now
    found.append(l.allow("k"))
result = found
"""
        self.assertEqual(self.call(code), [True, True, False, True, False, True, False, True])

    def test_refused_calls_are_not_counted(self):
        code = START + """
l = Limiter(1, 10, clock)
l.allow("a")
for now in (103, 106, 109):
    clock.now = now
    l.allow("a")
clock.now = 110
result = [l.remaining("a"), l.allow("a")]
"""
        self.assertEqual(self.call(code), [1, True])

    def test_retry_after(self):
        code = START + """
l = Limiter(2, 10, clock)
one = l.retry_after("a")
l.allow("a"); two = l.retry_after("a")
clock.now = 103; l.allow("a"); clock.now = 104
three = l.retry_after("a")
clock.now = 110; result = [one, two, three, l.retry_after("a")]
"""
        self.assertEqual(self.call(code), [0, 0, 6.0, 0])

    def test_reset(self):
        code = START + """
l = Limiter(1, 10, clock)
for k in "abc": l.allow(k)
l.reset("a"); l.reset("unknown")
one = [l.remaining(k) for k in "abc"]
l.reset(); result = [one, [l.remaining(k) for k in "abc"], len(l)]
"""
        self.assertEqual(self.call(code), [[1, 0, 0], [1, 1, 1], 0])

    def test_any_hashable_is_a_key(self):
        code = START + "l = Limiter(1, 10, clock)\nresult = [l.allow((1, 2)), l.allow((1, 2)), l.allow(0), l.allow('')]"
        self.assertEqual(self.call(code), [True, False, True, True])

    def test_instances_share_nothing(self):
        code = START + """
one, two = Limiter(1, 10, clock), Limiter(3, 20, clock)
limiter.configure(1, 60)
result = [one.allow("a"), one.allow("a"), two.allow("a"), limiter.allow("a"), two.remaining("a"), limiter.allow("a")]
"""
        self.assertEqual(self.call(code), [True, False, True, True, 2, False])

    def test_default_clock_is_monotonic(self):
        code = START + "import time\nl = Limiter(1, 50)\nl.allow('a')\nresult = 49 < l.retry_after('a') <= 50"
        self.assertTrue(self.call(code))

    def test_bad_limits(self):
        code = START + "result = [raised(Limiter, 0, 1), raised(Limiter, -1, 1), raised(Limiter, 1, 0), raised(Limiter, 1, -2.5)]"
        self.assertEqual(self.call(code), ["ValueError"] * 4)


class Memory(run.Case):
    def test_len_counts_keys_inside_the_window(self):
        code = START + """
l = Limiter(2, 10, clock)
l.allow("a"); clock.now = 105; l.allow("b"); l.allow("b")
one = len(l); clock.now = 110; two = len(l); clock.now = 115
result = [one, two, len(l)]
"""
        self.assertEqual(self.call(code), [2, 1, 0])

    def test_old_keys_are_forgotten_by_allow(self):
        code = START + """
l = Limiter(5, 10, clock)
empty = size(l)
for n in range(500): l.allow("key%d" % n)
full = size(l)
clock.now = 200; l.allow("z")
result = [full - empty >= 500, size(l) - empty <= 3]
"""
        self.assertEqual(self.call(code), [True, True])

    def test_old_keys_are_forgotten_by_len(self):
        code = START + """
l = Limiter(5, 10, clock)
empty = size(l)
for n in range(500): l.allow("key%d" % n)
clock.now = 200; len(l)
result = size(l) - empty <= 3
"""
        self.assertTrue(self.call(code))

    def test_asking_remembers_nothing(self):
        code = START + """
l = Limiter(5, 10, clock)
before = repr(sorted(vars(l).items(), key=str))
for n in range(300): l.remaining("k%d" % n); l.retry_after("k%d" % n)
result = [len(l), len(repr(sorted(vars(l).items(), key=str))) - len(before) < 100]
"""
        self.assertEqual(self.call(code), [0, True])


class TheModule(run.Case):
    def test_functions_as_before(self):
        code = """
import limiter
limiter.configure(2, 60.0)
one = [limiter.allow("a") for _ in range(3)]
two = [limiter.remaining("a"), limiter.remaining("b"), 59 < limiter.retry_after("a") <= 60, limiter.retry_after("b")]
limiter.reset("a"); three = limiter.remaining("a")
limiter.allow("a"); limiter.configure(3, 1); four = limiter.remaining("a")
limiter.allow("a"); limiter.reset(); result = [one, two, three, four, limiter.remaining("a")]
"""
        self.assertEqual(self.call(code), [[True, True, False], [0, 2, True, 0], 2, 3, 3])

    def test_starts_with_five_a_minute(self):
        code = "import limiter\nresult = [[limiter.allow('a') for _ in range(6)], limiter.retry_after('a') > 50]"
        self.assertEqual(self.call(code), [[True] * 5 + [False], True])

    def test_bad_configure_leaves_all_alone(self):
        code = """
import limiter
limiter.configure(2, 60.0)
limiter.allow("a")
result = [raised(limiter.configure, 0, 5), raised(limiter.configure, 5, 0), limiter.remaining("a")]
"""
        self.assertEqual(self.call(code), ["ValueError", "ValueError", 1])

    def test_names_imported_early_still_work(self):
        code = """
from limiter import allow, configure, remaining
configure(1, 60)
result = [allow("a"), allow("a"), remaining("a"), configure(4, 60), remaining("a")]
"""
        self.assertEqual(self.call(code), [True, False, 0, None, 4])

    def test_service(self):
        code = "import service\nresult = [service.handle('ann', 'hi'), service.handle('ann', 'a'), service.handle('ann', 'b')]"
        self.assertEqual(self.call(code), ["ann: HI (1 left)", "ann: A (0 left)", "ann: wait"])


class Shape(run.Case):
    def test_no_global_statement(self):
        try:
            tree = ast.parse(self.source("limiter.py"))
        except SyntaxError as error:
            self.fail(error)
        self.assertFalse([node for node in ast.walk(tree) if isinstance(node, ast.Global)])
        self.assertIn("Limiter", [node.name for node in tree.body if isinstance(node, ast.ClassDef)])
