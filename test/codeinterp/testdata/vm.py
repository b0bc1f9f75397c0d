"""E2B's code interpreter over VMs: contexts, charts, forks of a warm kernel, a paused one.

With names of checks, only those. FORKD_FORKS is how many forks of one warm interpreter are made, as far as the host has room.
"""
import json
import os
import sys
import time

from common import fails, leave, run  # test/e2b/testdata
from e2b_code_interpreter import Sandbox

template = os.environ.get("E2B_TEST_TEMPLATE", "code-interpreter-v1")


def notebook(s):
    """A data analysis with charts."""
    s.files.write("/home/user/sales.csv", "month,sold\n" + "".join(f"{m},{m * m}\n" for m in range(1, 13)))
    e = s.run_code("import pandas as pd, matplotlib.pyplot as plt\n"
                   "df = pd.read_csv('/home/user/sales.csv')\ndf.describe()")
    assert not e.error and "mean" in e.results[0].html, e.error
    e = s.run_code("plt.bar(df['month'].astype(str), df['sold']); plt.title('Sold'); plt.ylabel('pieces (1)'); plt.show()")
    chart = e.results[0].chart
    assert e.results[0].png and chart.title == "Sold" and len(chart.elements) == 12, e
    assert chart.elements[-1].value == 144, chart
    said = []
    e = s.run_code("for m in df['month'][:3]: print(m)", on_stdout=lambda o: said.append(o.line))
    assert "".join(said).split() == ["1", "2", "3"], said
    assert s.run_code("df['sold'].sum()").text in ("650", "np.int64(650)")
    assert s.run_code("df.nothing").error.name == "AttributeError"


def contexts(s):
    c = s.create_code_context(cwd="/tmp", language="python")
    s.run_code("x = 'mine'", context=c)
    assert s.run_code("x", context=c).text == "mine"
    assert s.run_code("x").error.name == "NameError"
    assert c.id in [k.id for k in s.list_code_contexts()]
    s.restart_code_context(c)
    assert s.run_code("x", context=c).error.name == "NameError"
    s.remove_code_context(c)
    assert c.id not in [k.id for k in s.list_code_contexts()]
    assert s.run_code("1 + 1", language="javascript").text == "2"
    assert s.run_code("echo $A", language="bash", envs={"A": "of the run"}).logs.stdout == ["of the run\n"]
    for language in ("r", "java"):
        fails(Exception, s.run_code, "1", language=language, says="template code-interpreter-" + language)
        fails(Exception, s.create_code_context, language=language, says="template code-interpreter-" + language)


def paused(s):
    s.run_code("kept = list(range(5))")
    s.pause()
    again = Sandbox.connect(s.sandbox_id, timeout=600)
    assert again.run_code("kept").text == "[0, 1, 2, 3, 4]"


def repository(s):
    """An agent clones a repository and runs its tests."""
    s.commands.run("""set -e
      mkdir -p /tmp/srv/r && cd /tmp/srv/r && git init -q -b main
      printf 'def add(a, b):\\n    return a - b\\n' > sums.py
      printf 'import sums, unittest\\nclass T(unittest.TestCase):\\n    def test(self): self.assertEqual(sums.add(1, 2), 3)\\n' > test_sums.py
      git add . && git -c user.name=a -c user.email=a@b commit -qm one
      git clone -q --bare . /tmp/srv/r.git && git -C /tmp/srv/r.git update-server-info""")
    server = s.commands.run("exec python3 -m http.server 8418 -d /tmp/srv --bind 127.0.0.1", background=True, timeout=0)
    s.commands.run("curl -sf --retry 150 --retry-connrefused --retry-delay 1 http://127.0.0.1:8418/r.git/info/refs > /dev/null", timeout=180)
    s.git.clone("http://127.0.0.1:8418/r.git", "/home/user/r")
    tests = "cd /home/user/r && python3 -B -m unittest 2>&1"
    assert "FAILED (failures=1)" in s.commands.run(tests + " || true").stdout
    s.files.write("/home/user/r/sums.py", "def add(a, b):\n    return a + b\n")
    assert "OK" in s.commands.run(tests).stdout
    assert [f.name for f in s.git.status("/home/user/r").file_status] == ["sums.py"]
    server.kill()  # it wakes twice a second, and would in each fork


def agent(s):
    """A loop of a model, which is a stub, and its tool, which is the interpreter: it mends its own code."""
    turns = iter(["sum(range(1, 101)) + nothing", "total = sum(range(1, 101)); total", None])
    history, answer = [{"role": "user", "content": "add the numbers up to 100"}], None
    while (code := next(turns)) is not None:
        e = s.run_code(code)
        history.append({"role": "tool", "content": e.error.value if e.error else e.text})
        answer = None if e.error else e.text
    assert answer == "5050" and "not defined" in history[1]["content"], history


def inside(f):
    """What a sandbox that gives no answer looks like."""
    try:
        return f.commands.run("uptime; free -m; ss -tlnp; ps -eo pid,stat,time,args; tail -20 /tmp/forkd-code-interpreter.log",
                              user="root", timeout=120).stdout
    except Exception as e:
        return repr(e)


def forks(s):
    """Forks of one warm interpreter, each with the variables and imports of its parent."""
    n = int(os.environ.get("FORKD_FORKS") or 100)
    s.run_code("import numpy as np, pandas as pd, matplotlib\nbig = np.arange(1_000_000)")
    made, began = [], time.time()
    while len(made) < n:
        got = [getattr(f, "sandbox", f) for f in s.fork(count=min(20, n - len(made)), timeout=1200)]
        refused = [f for f in got if isinstance(f, Exception)]
        made += [f for f in got if not isinstance(f, Exception)]
        if refused:
            print("no room for more than", len(made), refused[0])
            break
    forked = time.time()
    numbers, first = set(), []
    for i, f in enumerate(made):
        t = time.time()
        try:
            e = f.run_code(f"int(big.sum()) + {i}, np.random.default_rng().integers(1 << 60), pd.__version__ and {i}")
        except Exception as e:
            raise AssertionError(f"fork {i}, {f.sandbox_id}, after {time.time() - t:.1f} s: {inside(f)}") from e
        first.append(time.time() - t)
        if first[-1] > 20:
            print(f"fork {i}, {f.sandbox_id}, took {first[-1]:.1f} s: {inside(f)}", flush=True)
        assert not e.error, e.error
        total, number, i_back = e.text.strip("()").replace("np.int64(", "").replace(")", "").split(", ")
        assert int(total) == 499999500000 + i and int(i_back) == i, e.text
        numbers.add(number)
    assert len(numbers) == len(made), "forks draw the same random numbers"
    slowest = first.index(max(first))
    first.sort()
    for f in made:
        f.kill()
    print(json.dumps({"forks": len(made), "forked_s": round(forked - began, 2),
                      "first_run_p50_s": round(first[len(first) // 2], 3), "first_run_max_s": round(first[-1], 3),
                      "slowest": "%d, %s" % (slowest, made[slowest].sandbox_id)}))


def main():
    s = Sandbox.create(template, timeout=1800)
    checks = (notebook, contexts, paused, repository, agent, forks)
    failed = run(s, [c for c in checks if len(sys.argv) < 2 or c.__name__ in sys.argv[1:]])
    s.kill()
    leave(failed)


main()
