"""Tree search over a running program: branch at each step, score the branches, keep the best, go on from there.

    python examples/treesearch/search.py --snapshot py
"""
from __future__ import annotations

import argparse
import json
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import forkd

PROGRAM = Path(__file__).with_name("train.py").read_text()
RATES = [0.1, 0.05, 0.01]  # the choices at each step: learning rates


@dataclass
class Node:
    """A state of the program. Its sandbox lives as long as the search may go on from it."""

    sandbox: forkd.Sandbox
    choice: str
    score: float
    kept: bool = True
    children: list[Node] = field(default_factory=list)


def grow(client: forkd.Forkd, frontier: list[Node], keep: int, epochs: int, tags: list[str]) -> list[Node]:
    """Branches each node once for each choice, and returns the best children. The others are ended."""
    children: list[Node] = []
    for node in frontier:
        branch = node.sandbox.branch(len(RATES))  # one pause of the parent, whatever the number of children
        tags.append(branch.tag)
        if branch.errors:
            raise branch.errors[0]
        node.children = [Node(s, f"rate {rate:g}", math.inf) for s, rate in zip(branch.children, RATES)]
        children += node.children
        node.sandbox.kill()  # its children have its memory

    def step(child: Node) -> None:
        rate = child.choice.removeprefix("rate ")
        child.sandbox.eval(f"open('/tmp/loss', 'w').write(repr(fit({rate}, {epochs})))")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(step, children))
    result = client.keep(keep, ids=[c.sandbox for c in children], file="/tmp/loss", lowest=True, end_unscored=True)
    rows = {row.id: row for row in result.sandboxes}
    for child in children:
        row = rows[child.sandbox.id]
        child.kept = row.outcome == "kept"
        child.score = math.inf if row.score is None else row.score
    return sorted((c for c in children if c.kept), key=lambda c: c.score)


def draw(node: Node, best: Node, indent: str = "", last: bool = True, top: bool = True) -> list[str]:
    """Returns the tree as lines of text."""
    mark = "" if top else "└─ " if last else "├─ "
    fate = "  <- best" if node is best else "" if node.kept else "  ended"
    lines = [f"{indent}{mark}{node.choice:{28 - len(indent + mark)}} loss {node.score:.4g}{fate}"]
    indent += "" if top else "   " if last else "│  "
    for child in node.children:
        lines += draw(child, best, indent, child is node.children[-1], False)
    return lines


def search(client: forkd.Forkd, snapshot: str, depth: int, keep: int, epochs: int) -> tuple[Node, Node]:
    """Returns the root of the searched tree, and its best leaf. No sandbox or snapshot is left."""
    tags: list[str] = []
    sandbox = client.snapshot(snapshot).fork(ttl=1800)
    root = Node(sandbox, "start", math.nan)
    frontier = [root]
    try:
        sandbox.eval(PROGRAM)
        root.score = sandbox.eval("loss()", as_="json")
        for _ in range(depth):
            frontier = grow(client, frontier, keep, epochs, tags)
        return root, frontier[0]
    finally:
        end(root)
        for tag in reversed(tags):
            client.snapshot(tag).delete(cascade=True)


def end(node: Node) -> None:
    """Ends the sandboxes of a tree."""
    try:
        node.sandbox.kill()
    except forkd.NotFoundError:
        pass  # it was ended before
    for child in node.children:
        end(child)


def leaves(node: Node) -> list[Node]:
    return [leaf for child in node.children for leaf in leaves(child)] or [node]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--snapshot", default="py", help="snapshot of python-numpy")
    parser.add_argument("--depth", type=int, default=3, help="number of steps")
    parser.add_argument("--keep", type=int, default=2, help="nodes to go on from after each step")
    parser.add_argument("--epochs", type=int, default=100, help="epochs of training in a step")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    args = parser.parse_args()
    with forkd.Forkd() as client:
        root, best = search(client, args.snapshot, args.depth, args.keep, args.epochs)
    if args.json:
        print(json.dumps({"start": root.score, "best": best.score, "tree": draw(root, best),
                          "leaves": [leaf.score for leaf in leaves(root) if leaf.kept]}))
    else:
        print("\n".join(draw(root, best)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
