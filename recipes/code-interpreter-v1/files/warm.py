"""Starts the server, detached, and has the default Python context import and use what is wanted warm."""
import http.client
import json
import os
import subprocess
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOG = "/tmp/forkd-code-interpreter.log"
LIMIT = 300  # seconds; an emulated CPU takes its time

# What first use initialises: BLAS, pandas' formatting, a figure with its fonts, e2b_charts. The names
# stay, as they would be imported by most. Last, what is here is put beyond the collector, which would
# write to memory that all clones share.
CODE = """
import numpy as np
import pandas as pd
import matplotlib.pyplot as plt
display(pd.DataFrame({"a": np.linalg.inv(np.eye(2)) @ np.ones(2)}))
plt.plot([1, 2]); plt.show()
import gc; gc.collect(); gc.freeze(); del gc
"""


def request(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", 49999, timeout=LIMIT)
    try:
        c.request(method, path, body)
        r = c.getresponse()
        return r.status, r.read().decode()
    finally:
        c.close()


def start():
    """As root: E2B's kernels run as root, and code that expects to enter /root is to find it so."""
    env = {k: v for k, v in os.environ.items() if k not in ("USER", "LOGNAME")}
    env.update(HOME="/root", PYTHONDONTWRITEBYTECODE="1")
    command = [] if os.getuid() == 0 else ["sudo", "-n", "--preserve-env", "env", "HOME=/root"]
    with open(LOG, "ab") as log:
        return subprocess.Popen(command + ["python3", os.path.join(HERE, "server.py")], env=env, cwd="/",
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


def main():
    wait(start())
    status, text = request("POST", "/execute", json.dumps({"code": CODE}))
    events = [json.loads(line) for line in text.splitlines()] if status == 200 else []
    wrong = [e for e in events if e["type"] == "error"]
    if wrong or not any(e.get("chart") for e in events):
        raise RuntimeError("warming the code interpreter: %s" % (wrong or text[-2000:]))


if __name__ == "__main__":
    main()
