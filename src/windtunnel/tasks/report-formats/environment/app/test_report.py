"""Run with: python3 -m unittest"""

import unittest

import report

ROWS = [
    {"name": "Rent", "amount": -85000, "note": "May"},
    {"name": "Consulting & more", "amount": 123456},
    {"name": "Tea", "amount": 5},
]


class Render(unittest.TestCase):
    def test_text(self):
        lines = report.render(ROWS, "text").splitlines()
        self.assertEqual(lines[0], "Rent             (850.00)  # May")
        self.assertEqual(lines[1], "Consulting ~      1234.56")
        self.assertEqual(lines[-1], "TOTAL              384.61")

    def test_csv(self):
        self.assertEqual(report.render(ROWS[:1], "csv"), "name,amount,note\r\nRent,-850.00,May\r\n")

    def test_html(self):
        self.assertIn('<td class="negative">(850.00)</td>', report.render(ROWS, "html"))

    def test_summary(self):
        self.assertEqual(report.render(ROWS, "summary"), "3 accounts, total 384.61, largest Consulting & more\n")

    def test_unknown(self):
        with self.assertRaises(ValueError):
            report.render([], "pdf")


if __name__ == "__main__":
    unittest.main()
