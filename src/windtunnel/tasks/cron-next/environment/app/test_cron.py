"""Run with: python3 -m unittest"""

import unittest
from datetime import datetime

import cron


class Matches(unittest.TestCase):
    def test_every_minute(self):
        self.assertTrue(cron.matches("* * * * *", datetime(2024, 5, 6, 7, 8)))

    def test_one_number_each(self):
        self.assertTrue(cron.matches("30 6 * * 0", datetime(2024, 5, 5, 6, 30)))
        self.assertFalse(cron.matches("30 6 * * 0", datetime(2024, 5, 6, 6, 30)))

    def test_refusals(self):
        for wrong in ("", "* * * *", "60 * * * *", "x * * * *"):
            with self.assertRaises(ValueError):
                cron.matches(wrong, datetime(2024, 5, 6))


if __name__ == "__main__":
    unittest.main()
