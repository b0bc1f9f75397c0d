"""Times the same mutants without forks, in one guest: fresh processes under pytest-xdist, and runc containers."""
from __future__ import annotations

import time

import forkd
from mutants import Mutant

Row = tuple[str, float, list[str]]  # name, seconds, a result for each mutant

# Makes the root file system of the containers (the guest's own, read-only) and a bundle for each mutant. It
# is not timed.
BUNDLES = """
import json, os, subprocess
os.makedirs('/srv/root', exist_ok=True)
subprocess.run(['mount', '--bind', '/', '/srv/root'], check=True)
for name in os.listdir('mutants'):
    bundle = '/srv/bundles/' + name
    os.makedirs(bundle)
    subprocess.run(['runc', 'spec'], cwd=bundle, check=True)
    with open(bundle + '/config.json') as f:
        config = json.load(f)
    config['process']['terminal'] = False
    config['process']['args'] = ['python3', 'guest.py', 'mutants/' + name]
    config['process']['cwd'] = os.getcwd()
    config['root'] = {'path': '/srv/root', 'readonly': True}
    with open(bundle + '/config.json', 'w') as f:
        json.dump(config, f)
"""
RUNC = "ls mutants | xargs -P {parallel} -I@ sh -c 'timeout {limit} runc run -b /srv/bundles/@ mutant-@ > /srv/@.out || [ $? = 124 ]'"


def cold(sandbox: forkd.Sandbox, tests: list[Mutant], parallel: int, limit: float, work: str) -> list[Row]:
    """Runs the mutants under pytest-xdist and in containers. The sandbox is the parent of the forks."""
    for i, mutant in enumerate(tests):
        sandbox.files.write(f"{work}/mutants/{i:04}", mutant.source)

    # Writes the bytecode, so that no process compiles pytest again. It is not timed.
    sandbox.exec(["python3", "guest.py", "inflection.py"], cwd=work, user="root", check=True)

    def timed(name: str, command: str, outputs: str) -> Row:
        start = time.monotonic()
        result = sandbox.exec(command, cwd=work, user="root", env={"LIMIT": str(limit), "PYTHONPATH": work})
        took = time.monotonic() - start
        if not result.ok:
            raise SystemExit(f"{name} ended with {result.exit_code}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
        listing = sandbox.exec(f"for f in {outputs}; do tail -n 1 $f | grep . || echo timeout; done", user="root")
        return name, took, listing.stdout.splitlines()

    rows = [timed("pytest-xdist", f"python3 -m pytest -q -p no:cacheprovider -n {parallel} cold_test.py",
                  f"{work}/mutants/*.out")]
    sandbox.exec(f"rm {work}/mutants/*.out", user="root", check=True)
    sandbox.exec(["python3", "-c", BUNDLES], cwd=work, user="root", check=True)
    rows.append(timed("runc", RUNC.format(parallel=parallel, limit=limit), "/srv/*.out"))
    return rows


def table(rows: list[Row]) -> None:
    """Prints the times, and whether all ways agree about the mutants."""
    first = [r == "survived" for r in rows[0][2]]
    print(f"\n{'':12}  total  per mutant  same results")
    for name, took, results in rows:
        same = [r == "survived" for r in results] == first
        print(f"{name:12} {took:4.1f} s  {took / len(results):8.2f} s  {'yes' if same else 'NO'}")
