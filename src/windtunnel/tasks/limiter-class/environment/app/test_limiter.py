"""Run with: python3 -m unittest"""

import unittest

import limiter
import service


class Functions(unittest.TestCase):
    def setUp(self):
        limiter.configure(2, 60.0)

    def test_limit(self):
        self.assertEqual([limiter.allow("a") for _ in range(3)], [True, True, False])
        self.assertTrue(limiter.allow("b"))
        self.assertEqual(limiter.remaining("a"), 0)
        self.assertGreater(limiter.retry_after("a"), 50)

    def test_reset(self):
        limiter.allow("a")
        limiter.reset("a")
        self.assertEqual(limiter.remaining("a"), 2)

    def test_service(self):
        self.assertEqual(service.handle("ann", "hi"), "ann: HI (1 left)")


if __name__ == "__main__":
    unittest.main()
