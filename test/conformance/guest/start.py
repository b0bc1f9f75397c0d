# Starts the canaries from an interpreter that stays, and is their client in it.
# CANARY is the program's text, put before this by the suite.
import hashlib, json, os, random, socket, ssl, subprocess, sys, tempfile, time, uuid
import numpy

canary_home = os.path.expanduser("~/canary")
with open(canary_home + ".py", "w") as f:
    f.write(CANARY)
subprocess.Popen(
    [sys.executable, canary_home + ".py", canary_home], start_new_session=True,
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(canary_home + ".err", "w"),
)


def canary(do, **more):
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(canary_home + "/socket")
        with s.makefile("rw") as stream:
            stream.write(json.dumps({"do": do, **more}) + "\n")
            stream.flush()
            answer = stream.readline()
    if not answer:
        raise RuntimeError("the canary has gone: " + open(canary_home + ".err").read())
    return answer


for _ in range(1200):
    if os.path.exists(canary_home + "/socket"):
        break
    time.sleep(0.1)
else:
    raise RuntimeError("no canary: " + open(canary_home + ".err").read())

# What clones must not share: drawn from once, so that there is a state to share.
random.seed(1), numpy.random.seed(1), ssl.RAND_bytes(1)
