"""A data-analysis agent. It branches before each cell of the model's code. After an error it rolls the sandbox back, so a
half-done cell leaves no variables, files or processes.

    python examples/dataagent/agent.py --snapshot py --out chart.svg
"""
from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path

import forkd
from model import Script

TASK = "Which shop grew fastest? The data is in /tmp/sales.csv. Draw a chart of all shops in /tmp/chart.svg."


def sales() -> str:
    """Returns two years of sales of three shops as CSV, with a hole in it."""
    random.seed(1)
    lines = ["month,shop,sold"]
    for month in range(12):
        for shop, base, slope in (("Berlin", 100, 2.0), ("Lagos", 60, 9.0), ("Lima", 130, -1.0)):
            sold = base + slope * month + 8 * math.sin(month) + random.gauss(0, 2)
            lines.append(f"2026-{month + 1:02},{shop}," + ("n/a" if (month, shop) == (4, "Lima") else f"{sold:.1f}"))
    return "\n".join(lines) + "\n"


def run(sandbox: forkd.Sandbox, model: Script, tags: list[str]) -> list[dict[str, str]]:
    """Runs the loop until the model has no more code. Returns the conversation, and adds the snapshots to tags."""
    history = [{"role": "user", "content": TASK}]
    while (code := model.next(history)) is not None:
        history.append({"role": "assistant", "content": code})
        before = sandbox.branch().tag  # memory and disk of this moment
        tags.append(before)
        try:
            answer = f"result: {sandbox.eval(code)}"
        except forkd.EvalError as e:
            sandbox.rollback(before)
            answer = f"error, and the sandbox is as before the cell:\n{e.traceback}"
        else:
            answer += files(sandbox)
        history.append({"role": "user", "content": answer})
    return history


def files(sandbox: forkd.Sandbox) -> str:
    names = [e.name for e in sandbox.files.list("/tmp") if e.name.endswith(".svg")]
    return f"\nfiles: {', '.join(names)}" if names else ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", default="py", help="snapshot of python-numpy")
    parser.add_argument("--out", type=Path, default=Path("chart.svg"), help="file for the chart on this host")
    args = parser.parse_args()
    tags: list[str] = []
    with forkd.Forkd() as client:
        with client.snapshot(args.snapshot).fork(ttl=1800) as sandbox:
            sandbox.files.write("/tmp/sales.csv", sales())
            for message in run(sandbox, Script(), tags):
                print(f"--- {message['role']}\n{message['content'].strip()}")
            args.out.write_bytes(sandbox.files.read("/tmp/chart.svg"))
        for tag in reversed(tags):
            client.snapshot(tag).delete()
    print(f"--- chart: {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
