import run

START = """
from cache import Cache
class Clock:
    now = 1000.0
    def __call__(self):
        return self.now
clock = Clock()
def keys(cache, names):
    return [name for name in names if name in cache]
"""


class Old(run.Case):
    def test_plain_use_is_as_before(self):
        code = START + """
c = Cache(2)
c.put("a", 1); c.put("b", 2); c.get("a"); c.put("c", 3)
result = [keys(c, "abc"), len(c), c.get("b"), c.get("b", 7), c.delete("a"), c.delete("a"), len(c)]
"""
        self.assertEqual(self.call(code), [["a", "c"], 2, None, 7, True, False, 1])

    def test_overwriting_a_full_cache_evicts_nobody(self):
        code = START + "c = Cache(2)\nc.put('a', 1); c.put('b', 2); c.put('a', 3)\nresult = [len(c), c.get('a'), c.get('b')]"
        self.assertEqual(self.call(code), [2, 3, 2])

    def test_capacity_is_checked(self):
        self.assertEqual(self.call(START + "result = [raised(Cache, 0), raised(Cache, -1)]"), ["ValueError"] * 2)


class Expiry(run.Case):
    def test_expires_at_the_instant(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("a", 1)
clock.now = 1009.999; before = [c.get("a"), "a" in c, len(c)]
clock.now = 1010.0; result = [before, c.get("a", "gone"), "a" in c, len(c), c.delete("a")]
"""
        self.assertEqual(self.call(code), [[1, True, 1], "gone", False, 0, False])

    def test_ttl_of_an_entry_wins(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("a", 1, ttl=3); c.put("b", 2, ttl=None); c.put("c", 3, ttl=0.5); c.put("d", 4)
found = []
for now in (1000.4, 1000.5, 1003, 1010, 9e9):
    clock.now = now
    found.append(keys(c, "abcd"))
result = found
"""
        self.assertEqual(self.call(code), [list("abcd"), list("abd"), list("bd"), ["b"], ["b"]])

    def test_get_does_not_lengthen_life(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("a", 1); clock.now = 1009; c.get("a"); clock.now = 1011
result = c.get("a")
"""
        self.assertEqual(self.call(code), None)

    def test_put_sets_time_to_live_anew(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("a", 1); clock.now = 1009; c.put("a", 2); clock.now = 1018; one = c.get("a")
c.put("a", 3, ttl=None); clock.now = 5000; two = c.get("a")
c.put("a", 4); clock.now = 5010; result = [one, two, c.get("a")]
"""
        self.assertEqual(self.call(code), [2, 3, None])

    def test_no_default_means_for_ever(self):
        code = START + "c = Cache(2, clock=clock)\nc.put('a', 1); c.put('b', 1, ttl=5); clock.now = 1e12\nresult = keys(c, 'ab')"
        self.assertEqual(self.call(code), ["a"])

    def test_refused_times(self):
        code = START + """
c = Cache(2, clock=clock)
c.put("a", 1)
result = [raised(Cache, 2, ttl=0), raised(Cache, 2, ttl=-1), raised(c.put, "a", 2, ttl=0), raised(c.put, "b", 2, ttl=-5),
          raised(c.touch, "a", ttl=0), c.get("a"), len(c)]
"""
        self.assertEqual(self.call(code), ["ValueError"] * 5 + [1, 1])


class Eviction(run.Case):
    def test_expired_entries_go_first(self):
        code = START + """
c = Cache(3, clock=clock)
c.put("old", 1); c.put("short", 2, ttl=5); c.put("new", 3)
clock.now = 1005
c.put("more", 4)
result = [keys(c, ["old", "short", "new", "more"]), c.stats()["evicted"], c.stats()["expired"]]
"""
        self.assertEqual(self.call(code), [["old", "new", "more"], 0, 1])

    def test_least_recently_used_live_entry_goes(self):
        code = START + """
c = Cache(3, ttl=100, clock=clock)
for k in "abc": c.put(k, k)
c.get("a"); "b" in c; len(c); c.put("d", 1); c.touch("c"); c.put("e", 2)
result = [keys(c, "abcde"), c.stats()["evicted"]]
"""
        self.assertEqual(self.call(code), [["c", "d", "e"], 2])

    def test_replacing_an_expired_key_pushes_nobody_out(self):
        code = START + """
c = Cache(2, clock=clock)
c.put("a", 1, ttl=1); c.put("b", 2); clock.now = 1001; c.put("a", 3)
result = [keys(c, "ab"), c.get("a"), c.stats()["evicted"], c.stats()["expired"]]
"""
        self.assertEqual(self.call(code), [["a", "b"], 3, 0, 1])


class Touch(run.Case):
    def test_new_life(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("a", 1); c.put("b", 2); c.put("c", 3)
clock.now = 1009
one = [c.touch("a"), c.touch("b", ttl=None), c.touch("c", ttl=0.5), c.touch("x")]
clock.now = 1010; two = keys(c, "abc")
clock.now = 1019; three = [keys(c, "abc"), c.touch("a")]
result = [one, two, three, c.get("b")]
"""
        self.assertEqual(self.call(code), [[True, True, True, False], ["a", "b"], [["b"], False], 2])


class Stats(run.Case):
    def test_hits_and_misses_by_get_only(self):
        code = START + """
c = Cache(5, ttl=10, clock=clock)
c.put("n", None); c.put("a", 1)
c.get("n", 5); c.get("a"); c.get("x"); "a" in c; c.touch("a"); c.delete("x")
clock.now = 1100; c.get("a")
result = c.stats()
"""
        self.assertEqual(self.call(code), {"hits": 2, "misses": 2, "evicted": 0, "expired": 2})

    def test_each_expired_entry_counts_once(self):
        code = START + """
c = Cache(9, ttl=1, clock=clock)
for k in "abcde": c.put(k, 1)
clock.now = 1001
c.get("a"); "b" in c; c.delete("c"); c.put("d", 2); c.get("a"); "b" in c
one = c.stats()["expired"]
result = [one, c.stats()["expired"], len(c), c.stats()["hits"], c.stats()["misses"]]
"""
        self.assertEqual(self.call(code), [5, 5, 1, 0, 2])

    def test_deleting_a_live_entry_is_no_expiry(self):
        code = START + "c = Cache(2, ttl=9, clock=clock)\nc.put('a', None)\nresult = [c.delete('a'), c.stats()]"
        self.assertEqual(self.call(code), [True, {"hits": 0, "misses": 0, "evicted": 0, "expired": 0}])
