"""What only a VM shows, with E2B's Python package; sync.py says what the variables are.

E2B_TEST_FLAKY is the address of a proxy that loses the first answer to each POST of a sandbox.
"""
import asyncio
import hashlib
import os
import time
import urllib.error
import urllib.request

import e2b
from common import fails, leave, run, until
from e2b import AsyncSandbox, Sandbox, SandboxQuery, SandboxState

template = os.environ["E2B_TEST_TEMPLATE"]


def users(s):
    assert s.commands.run("whoami").stdout == "user\n"
    assert s.commands.run("whoami", user="root").stdout == "root\n"
    assert s.commands.run("sudo whoami").stdout == "root\n"
    assert s.commands.run("pwd; echo $HOME").stdout == "/home/user\n/home/user\n"
    s.files.write("mine", "x")
    s.files.write("/root/theirs", "x", user="root")
    assert s.files.get_info("mine").owner == "user"
    assert s.files.get_info("/root/theirs", user="root").owner == "root"
    fails(e2b.CommandExitException, s.commands.run, "cat /root/theirs")
    s.files.write("/srv/by-e2b/deep", "the file API acts as root, for the user")
    assert s.commands.run("stat -c %U /srv/by-e2b/deep /srv/by-e2b").stdout == "user\nuser\n"
    fails(e2b.AuthenticationException, s.files.write, "x", "x", user="nobody-of-that-name")


def large(s):
    blob = os.urandom(32 << 20)
    s.files.write("large", blob)
    want = hashlib.sha256(blob).hexdigest()
    assert s.commands.run("sha256sum large").stdout.split()[0] == want
    got = hashlib.sha256()
    for piece in s.files.read("large", format="stream"):
        got.update(piece)
    assert got.hexdigest() == want
    s.commands.run("rm large; mkdir small && mount -t tmpfs -o size=1m none small", user="root")
    e = fails(e2b.NotEnoughSpaceException, s.files.write, "small/too-large", b"\0" * (2 << 20))
    print("a disk that is full:", e)


def computes(s):
    """A program is paused in mid-computation, and is where it was afterwards."""
    code = "n = 0\nwhile True:\n    n += 1\n    if n % 1000 == 0: print(n, flush=True)\n"
    s.files.write("count.py", code)
    h = s.commands.run("exec python3 count.py > counted", background=True, timeout=0)
    last = lambda: int((s.commands.run("tail -n 1 counted").stdout or "0").strip() or 0)
    until("the program counts", lambda: last() > 1000)
    pause = getattr(s, "pause", None) or s.beta_pause
    pause()
    assert s.get_info().state == SandboxState.PAUSED
    fails(Exception, h.wait)
    again = Sandbox.connect(s.sandbox_id, timeout=300)
    then = last()
    assert h.pid in [p.pid for p in again.commands.list()]
    until("it counts on", lambda: last() > then)
    # Not a line is missing, and none is twice: it is one computation.
    awk = "awk '$1 != NR * 1000 { print \"line\", NR, \"is\", $1; exit 1 }' counted"
    assert s.commands.kill(h.pid) is True
    assert s.commands.run(awk).stdout == ""


def metrics(s):
    first = s.get_metrics()
    assert first and first[-1].cpu_count == 1 and 0 < first[-1].mem_used <= first[-1].mem_total, first
    assert first[-1].disk_total > first[-1].disk_used > 0, first
    end = time.time() + 60
    while len(s.get_metrics()) <= len(first):
        assert time.time() < end, "there is no second sample"
        time.sleep(0.5)


def expires(s):
    short = Sandbox.create(template, timeout=3, metadata={"who": "short"})
    assert short.is_running()
    until("it ends", lambda: not short.is_running())
    fails(e2b.NotFoundException, Sandbox.connect, short.sandbox_id)
    fails(e2b.NotFoundException, short.set_timeout, 10)
    assert not Sandbox.list(query=SandboxQuery(metadata={"who": "short"})).next_items()
    keeps = Sandbox.create(template, timeout=300, lifecycle={"on_timeout": "pause", "auto_resume": True})
    keeps.files.write("kept", "as it was")
    keeps.set_timeout(1)
    until("it is paused", lambda: keeps.get_info().state == SandboxState.PAUSED)
    # Traffic resumes it.
    assert keeps.files.read("kept") == "as it was"
    assert keeps.get_info().state == SandboxState.RUNNING
    keeps.kill()


def reboots(s):
    """At its timeout a sandbox keeps its disk alone: it boots when it is connected to."""
    keeps = Sandbox.create(template, timeout=300, lifecycle={"on_timeout": {"action": "pause", "mode": "filesystem"}})
    boot = lambda: keeps.commands.run("cat /proc/sys/kernel/random/boot_id").stdout
    before = boot()
    keeps.files.write("kept", "on its disk")
    keeps.set_timeout(1)
    until("it is paused", lambda: keeps.get_info().state == SandboxState.PAUSED)
    fails(Exception, keeps.files.read, "kept")  # traffic does not wake it
    keeps.connect(timeout=300, request_timeout=180)
    assert keeps.files.read("kept") == "on its disk" and boot() != before
    keeps.kill()
    fails(e2b.InvalidArgumentException, Sandbox.create, template, lifecycle={
        "on_timeout": {"action": "pause", "mode": "filesystem"}, "auto_resume": True})


def web(s):
    """A server in the sandbox, opened from outside by its host name."""
    s.files.write("site/index.html", "<h1>from the sandbox</h1>")
    h = s.commands.run("exec python3 -m http.server 8000 -d site --bind 127.0.0.1", background=True, timeout=0)
    host = s.get_host(8000)

    def page():
        asked = urllib.request.Request(os.environ["E2B_API_URL"] + "/index.html", headers={"Host": host})
        try:
            return urllib.request.urlopen(asked).read()
        except urllib.error.HTTPError as e:
            assert e.code == 502 and b"port is not open" in e.read(), e
            return b""

    until("the page is there", lambda: page() == b"<h1>from the sandbox</h1>")
    assert h.kill() is True
    until("it is closed", lambda: page() == b"")


def agent(s):
    """An agent's loop: a model, which is a stub, asks for commands until it is content."""
    asks = iter(["python3 sums.py", "printf 'print(sum(range(101)))' > sums.py", "python3 sums.py"])
    history = []
    for command in asks:
        try:
            history.append(s.commands.run(command).stdout)
        except e2b.CommandExitException as e:
            history.append(e.stderr)
    assert "No such file" in history[0] and history[2] == "5050\n", history


def at_once(s):
    async def one(i):
        made = await AsyncSandbox.create(template, timeout=300, envs={"I": str(i)}, metadata={"who": "many"})
        try:
            r = await made.commands.run("echo $I $(cat /proc/sys/kernel/random/boot_id)")
            number, boot = r.stdout.split()
            assert number == str(i), r
            return made.sandbox_id, boot
        finally:
            assert await made.kill()

    async def all_of_them():
        return await asyncio.gather(*(one(i) for i in range(20)))

    made = asyncio.run(all_of_them())
    assert len(set(i for i, _ in made)) == 20 and len(set(b for _, b in made)) == 20, made


def retries(s):
    """The answer to a create is lost, and the package asks again by itself: there is one sandbox."""
    like = {"timeout": 300, "metadata": {"who": "lost"}, "idempotency_key": f"lost-{time.time_ns()}"}
    made = Sandbox.create(template, api_url=os.environ["E2B_TEST_FLAKY"], **like)
    there = Sandbox.list(query=SandboxQuery(metadata={"who": "lost"})).next_items()
    assert [x.sandbox_id for x in there] == [made.sandbox_id], there
    assert made.commands.run("echo here").stdout == "here\n"
    e = fails(e2b.SandboxException, Sandbox.create, template, **{**like, "timeout": 200})
    assert str(e).startswith("422: "), e
    made.kill()


def main():
    s = Sandbox.create(template, timeout=600)
    failed = run(s, (users, large, computes, metrics, web, agent, expires, reboots, at_once, retries))
    s.kill()
    leave(failed)


main()
