"""Starts the server, detached, and has the default Python context import and use what is wanted warm.

Recipes that have more languages call warm() for each, when this has run.
"""
import http.client
import json
import os
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOG = "/tmp/forkd-code-interpreter.log"
HOOK = "/etc/forkd/fork.d/50-code-interpreter"
LIMIT = 300  # seconds; an emulated CPU takes its time

# What first use initialises: BLAS, pandas' formatting, a figure with its fonts, e2b_charts. The names
# stay, as they would be imported by most. Last, what is here is put beyond the collector, which would
# write to memory that all clones share.
PYTHON = """
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
display(pd.DataFrame({"a": np.linalg.inv(np.eye(2)) @ np.ones(2)}))
plt.plot([1, 2]); plt.show()
import gc; gc.collect(); gc.freeze(); del gc
"""

# R's graphics with their fonts, its ways to show a value, a condition; nothing stays but what is loaded.
R = """
local({plot(1:2, main = "a"); invisible(lm(dist ~ speed, cars))})
cat("a\\n"); tryCatch(stop("a"), error = function(e) NULL)
head(cars)
invisible(gc())
"""

# The compiler is a Java program, too, and runs faster each time.
JAVA = """
for (int i = 0; i < 3; i++) System.out.println(String.format("%d %s", i, "a"));
Stream.of(3, 1, 2).sorted().map(i -> i * 2).collect(Collectors.toList());
new HashMap<String, Integer>(Map.of("a", 1)).toString();
System.gc();
"warm"
"""

# What is run in a context to warm it, how often, and what has to come of it. Before the last time a fork is played:
# how a clone renews itself is warm, too.
CODE = {"python": (PYTHON, 2, "chart"), "r": (R, 2, "png"), "java": (JAVA, 5, "text")}


def request(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", 49999, timeout=LIMIT)
    try:
        c.request(method, path, body)
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def as_root(command):
    return command if os.getuid() == 0 else ["sudo", "-n", "--preserve-env"] + command


def play_fork():
    """Tells the server what the hook tells it in a clone, with an environment that changes nothing."""
    subprocess.run(as_root(["env", "-i", "PATH=" + os.environ["PATH"], "sh", HOOK]), check=True)


def start():
    """As root: E2B's kernels run as root, and code that expects to enter /root is to find it so."""
    env = {k: v for k, v in os.environ.items() if k not in ("USER", "LOGNAME")}
    env.update(HOME="/root", PYTHONDONTWRITEBYTECODE="1")
    command = as_root(["env", "HOME=/root", "python3", os.path.join(HERE, "server.py")])
    with open(LOG, "ab") as log:
        return subprocess.Popen(command, env=env, cwd="/",
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)


def wait(server):
    end = time.monotonic() + LIMIT
    while True:
        try:
            if request("GET", "/health")[0] == 200:
                return
        except OSError:
            pass
        if server.poll() is not None or time.monotonic() > end:
            with open(LOG, errors="replace") as log:
                raise RuntimeError("the code interpreter did not start: " + log.read()[-2000:])
        time.sleep(0.05)


def warm(language):
    code, times, want = CODE[language]
    for n in range(times):
        if n == times - 1:
            play_fork()
        status, text = request("POST", "/execute", json.dumps({"code": code, "language": language,
                                                           "forkd_forget": n == times - 1}))
        events = [json.loads(line) for line in text.splitlines()] if status == 200 else []
        wrong = [e for e in events if e["type"] == "error"]
        if wrong or not any(e.get(want) for e in events):
            raise RuntimeError("warming the code interpreter: %s" % (wrong or text[-2000:]))


def spare(language):
    """Leaves a started kernel for the first context that a client creates, or restarts. It has used no libraries."""
    status, text = request("POST", "/contexts", json.dumps({"language": language}))
    if status != 200:
        raise RuntimeError("a spare kernel: " + text[-2000:])
    id = json.loads(text)["id"]
    for last in (False, True):
        if last:
            play_fork()
        body = {"code": "import gc; gc.collect(); gc.freeze(); del gc", "context_id": id, "forkd_forget": last}
        status, text = request("POST", "/execute", json.dumps(body))
        if status != 200 or '"error"' in text:
            raise RuntimeError("a spare kernel: " + text[-2000:])
    request("POST", "/contexts/%s/spare" % id)


def main():
    wait(start())
    warm("python")
    spare("python")


if __name__ == "__main__":
    main()
