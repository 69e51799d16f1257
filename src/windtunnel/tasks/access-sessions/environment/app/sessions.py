"""Usage: python3 sessions.py INPUT.log OUTPUT.json"""

import sys


def main():
    raise SystemExit("not written yet: " + " ".join(sys.argv[1:]))


if __name__ == "__main__":
    main()
