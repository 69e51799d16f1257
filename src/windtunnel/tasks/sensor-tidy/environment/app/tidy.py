"""Usage: python3 tidy.py INPUT.csv OUTPUT.csv REJECTS.csv"""

import csv
import sys


def main():
    source, output, rejects = sys.argv[1:]
    with open(source) as file:
        rows = list(csv.DictReader(file))
    with open(output, "w") as file:
        file.write("sensor,time,celsius\n")
        for row in rows:
            file.write(f"{row['sensor']},{row['time']},{row['value']}\n")


if __name__ == "__main__":
    main()
