"""What a program does with E2B's Python package: each method that is here once, with its bad case.

It ends with 0, or with the traceback of what was not as it should be. E2B_TEST_TEMPLATE is the
template, E2B_TEST_DIR a folder in the sandbox, E2B_TEST_VM says that the sandbox is a VM.
"""
import os
import time
import urllib.error
import urllib.request

import e2b
from common import fails, leave, run
from e2b import Sandbox, SandboxQuery, SandboxState

asynchronous = os.environ.get("E2B_TEST_ASYNC") == "1"  # the same with the other half of the package
if asynchronous:
    from blocking import Sandbox

template = os.environ["E2B_TEST_TEMPLATE"]
base = os.environ["E2B_TEST_DIR"]
vm = os.environ.get("E2B_TEST_VM") == "1"
api = os.environ["E2B_API_URL"]


def commands(s):
    r = s.commands.run("echo out; echo err >&2")
    assert (r.stdout, r.stderr, r.exit_code) == ("out\n", "err\n", 0), r
    e = fails(e2b.CommandExitException, s.commands.run, "echo x; exit 3")
    assert e.exit_code == 3 and e.stdout == "x\n", e
    assert s.commands.run("echo $MINE $CREATED $E2B_SANDBOX", envs={"MINE": "1"}).stdout == "1 2 true\n"
    assert s.commands.run("pwd", cwd="/tmp").stdout == "/tmp\n"
    fails(e2b.InvalidArgumentException, s.commands.run, "true", cwd="/none")
    fails(e2b.AuthenticationException, s.commands.run, "true", user="nobody-of-that-name")
    fails(e2b.TimeoutException, s.commands.run, "sleep 60", timeout=1)
    pieces = []
    s.commands.run("for i in 1 2 3; do echo $i; sleep 0.05; done", on_stdout=pieces.append)
    assert "".join(pieces) == "1\n2\n3\n", pieces
    big = s.commands.run("head -c 3000000 /dev/zero | tr '\\0' a")
    assert len(big.stdout) == 3_000_000
    unicode = s.commands.run("printf 'h\\303\\244ll\\303\\266'").stdout
    assert unicode == "h\u00e4ll\u00f6", unicode

    h = s.commands.run("sleep 300", background=True)
    assert h.pid in [p.pid for p in s.commands.list()]
    assert s.commands.kill(h.pid) is True
    assert s.commands.run(f"kill -0 {h.pid} 2>/dev/null && echo alive || echo gone").stdout == "gone\n"
    assert s.commands.kill(h.pid) is False
    e = fails(e2b.CommandExitException, h.wait)

    h = s.commands.run("read line; echo got $line", background=True, stdin=True)
    s.commands.send_stdin(h.pid, "something\n")
    assert h.wait().stdout == "got something\n"
    h = s.commands.run("cat", background=True, stdin=True)
    s.commands.send_stdin(h.pid, "abc")
    if hasattr(s.commands, "close_stdin"):
        s.commands.close_stdin(h.pid)
        assert h.wait().stdout == "abc"
    else:
        h.kill()

    h = s.commands.run("sleep 0.5; echo late; exit 0", background=True)
    again = s.commands.connect(h.pid)
    assert again.wait().stdout == "late\n"
    fails(e2b.NotFoundException, s.commands.connect, 999_999_9)


def terminal(s):
    out = []
    h = s.pty.create(e2b.PtySize(rows=24, cols=80), cwd="/tmp")
    s.pty.send_stdin(h.pid, b"stty size; echo in-$((40+2))\n")
    s.pty.resize(h.pid, e2b.PtySize(rows=30, cols=100))
    s.pty.send_stdin(h.pid, b"stty size; exit 0\n")
    h.wait(on_pty=out.append)
    text = b"".join(bytes(o) for o in out).decode()
    assert "in-42" in text and "30 100" in text, text
    h = s.pty.create(e2b.PtySize(rows=24, cols=80))
    assert s.pty.kill(h.pid) is True


def files(s):
    d = base + "/files"
    info = s.files.write(d + "/a/b.txt", "text \u00e4")
    assert info.path == d + "/a/b.txt" and info.name == "b.txt", info
    assert s.files.read(d + "/a/b.txt") == "text \u00e4"
    assert bytes(s.files.read(d + "/a/b.txt", format="bytes")) == "text \u00e4".encode()
    assert b"".join(s.files.read(d + "/a/b.txt", format="stream")) == "text \u00e4".encode()
    blob = os.urandom(5 << 20)
    s.files.write(d + "/blob", blob)
    assert bytes(s.files.read(d + "/blob", format="bytes")) == blob
    s.files.write_files([{"path": d + "/one", "data": "1"}, {"path": d + "/sub/two", "data": b"2"}])
    assert s.files.read(d + "/sub/two") == "2"
    assert sorted(e.name for e in s.files.list(d)) == ["a", "blob", "one", "sub"]
    assert len(s.files.list(d, depth=2)) == 6
    assert s.files.exists(d + "/one") and not s.files.exists(d + "/none")
    assert s.files.make_dir(d + "/new/deep") is True
    assert s.files.make_dir(d + "/new/deep") is False
    assert s.files.rename(d + "/one", d + "/new/uno").path == d + "/new/uno"
    fails(e2b.NotFoundException, s.files.rename, d + "/none", d + "/x")
    st = s.files.get_info(d + "/new/uno")
    assert st.size == 1 and st.mode == 0o644 and st.permissions == "-rw-r--r--", st
    s.commands.run(f"ln -s {d}/new/uno {d}/link")
    assert s.files.get_info(d + "/link").symlink_target == d + "/new/uno"
    s.files.remove(d + "/link")
    s.files.remove(d + "/link")
    fails(e2b.NotFoundException, s.files.read, d + "/none")
    fails(e2b.InvalidArgumentException, s.files.read, d)
    fails(e2b.NotFoundException, s.files.list, d + "/none")
    assert "Linux" in s.files.read("/proc/version")



def watch(s):
    d = base + "/files"
    w = s.files.watch_dir(d, recursive=True)
    s.files.write(d + "/seen", "x")
    s.files.make_dir(d + "/later")
    s.files.write(d + "/later/inside", "x")
    names = set()
    for _ in range(100):
        names |= {ev.name for ev in w.get_new_events()}
        if {"seen", "later/inside"} <= names:
            break
        time.sleep(0.05)
    assert {"seen", "later/inside"} <= names, names
    w.stop()
    fails(e2b.NotFoundException, s.files.watch_dir, d + "/none")
    fails(e2b.InvalidArgumentException, s.files.watch_dir, d + "/seen")


def signed(s):
    path = base + "/signed.txt"
    s.files.write(path, "through a URL")
    url = s.download_url(path)
    assert urllib.request.urlopen(url).read() == b"through a URL", url
    late = s.download_url(path, use_signature_expiration=-10)
    try:
        urllib.request.urlopen(late)
        raise AssertionError("an expired URL opens")
    except urllib.error.HTTPError as e:
        body = e.read()
        assert e.code == 401 and b'"message":"signature is already expired"' in body, body
    try:
        urllib.request.urlopen(url.replace("signed.txt", "other.txt"))
        raise AssertionError("a changed URL opens")
    except urllib.error.HTTPError as e:
        assert e.code == 401, e


def life(s):
    assert s.is_running()
    info = s.get_info()
    assert info.sandbox_id == s.sandbox_id and info.metadata == {"who": "sync & co"}, info
    assert info.state == SandboxState.RUNNING
    s.set_timeout(500)
    left = (s.get_info().end_at.timestamp() - time.time())
    assert 400 < left < 600, left
    assert s.get_metrics()[0].mem_total > 0
    pages = Sandbox.list(query=SandboxQuery(metadata={"who": "sync & co"}))
    assert [x.sandbox_id for x in pages.next_items()] == [s.sandbox_id]
    assert not pages.has_next
    other = Sandbox.connect(s.sandbox_id)
    assert other.commands.run("echo again").stdout == "again\n"
    assert s.get_host(3000).startswith(f"3000-{s.sandbox_id}."), s.get_host(3000)


def pause(s):
    s.files.write(base + "/kept", "before")
    marker = s.commands.run("sleep 1000", background=True) if vm else None
    pause = getattr(s, "pause", None) or s.beta_pause
    pause()
    assert not s.is_running()
    assert s.get_info().state == SandboxState.PAUSED
    e = fails(Exception, s.commands.run, "true")
    back = Sandbox.connect(s.sandbox_id, timeout=300)
    assert back.files.read(base + "/kept") == "before"
    assert s.commands.run("echo old handle").stdout == "old handle\n"
    if marker is not None:
        assert marker.pid in [p.pid for p in s.commands.list()]


def forks(s):
    if not hasattr(s, "fork"):
        return
    s.files.write(base + "/forked", "same")
    made = s.fork(count=2) if vm else s.fork(count=2)
    for f in made:
        child = getattr(f, "sandbox", f)
        assert child.sandbox_id != s.sandbox_id
        assert child.files.read(base + "/forked") == "same"
        assert child.commands.run("echo $CREATED").stdout == "2\n"
        child.kill()


def snapshots(s):
    if not hasattr(s, "create_snapshot"):
        return
    snap = s.create_snapshot()
    child = Sandbox.create(snap.snapshot_id, timeout=60)
    assert child.commands.run("echo child").stdout == "child\n"
    child.kill()
    assert snap.snapshot_id in [x.snapshot_id for x in Sandbox.list_snapshots(sandbox_id=s.sandbox_id).next_items()]
    assert Sandbox.delete_snapshot(snap.snapshot_id) is True
    assert Sandbox.delete_snapshot(snap.snapshot_id) is False


def kill(s):
    h = s.commands.run("sleep 300", background=True)
    assert s.kill() is True
    assert s.kill() is False
    assert not s.is_running()
    e = fails(Exception, h.wait)
    print("killed in mid-stream:", type(e).__name__, e)
    e = fails(Exception, s.commands.run, "true")
    print("after the kill:", type(e).__name__, e)
    fails(Exception, s.commands.list)
    fails(e2b.NotFoundException, Sandbox.connect, s.sandbox_id)


def main():
    e = fails(e2b.SandboxException, Sandbox.create, "no-such-template")
    assert str(e).startswith("404: "), e
    fails(e2b.AuthenticationException, Sandbox.create, template, api_key="e2b_" + "0" * 40)
    s = Sandbox.create(template, timeout=300, metadata={"who": "sync & co"}, envs={"CREATED": "2"})
    others = () if asynchronous else (terminal, watch)  # of the other half: async.py
    leave(run(s, (commands, files, *others, signed, life, pause, forks, snapshots, kill)))


main()
