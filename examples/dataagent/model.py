"""The model of the example: a script in the place of a language model."""
from __future__ import annotations

LOAD = """
import csv
rows = []
with open('/tmp/sales.csv') as f:
    for row in csv.DictReader(f):
        rows.append((row['month'], row['shop'], float(row['sold'])))
len(rows)
"""
LOAD_AGAIN = LOAD.replace("        rows.append", "        if row['sold'] != 'n/a':\n            rows.append")
ANALYSE = """
import numpy as np
months = sorted({m for m, _, _ in rows})
shops = sorted({s for _, s, _ in rows})
totals = {s: np.array([sum(v for m, t, v in rows if (m, t) == (month, s)) for month in months]) for s in shops}
{s: (round(float(t.sum()), 1), round(float(np.polyfit(range(len(t)), t, 1)[0]), 2)) for s, t in totals.items()}
"""
CHART = """
top = max(t.max() for t in totals.values())
lines = []
for i, (shop, t) in enumerate(totals.items()):
    points = ' '.join(f'{40 + 40 * x},{220 - 200 * v / top:.1f}' for x, v in enumerate(t))
    colour = ['#1f77b4', '#d62728', '#2ca02c'][i % 3]
    lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{points}"/>'
                 f'<text x="490" y="{30 + 20 * i}" fill="{colour}">{shop}</text>')
with open('/tmp/chart.svg', 'w') as f:
    f.write('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 560 240">' + ''.join(lines) + '</svg>')
len(lines)
"""


class Script:
    """Answers with the next cell of code, and None at the end. After an error it mends the cell."""

    def __init__(self) -> None:
        self.cells = iter([LOAD, ANALYSE, CHART])

    def next(self, history: list[dict[str, str]]) -> str | None:
        """Returns the next cell for a conversation of messages with ``role`` and ``content``."""
        last = history[-1]["content"]
        if "could not convert string to float: 'n/a'" in last:
            return LOAD_AGAIN
        return next(self.cells, None)
