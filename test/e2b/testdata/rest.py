"""The methods of E2B's Python package that sync.py leaves out, each once with its bad case."""
import datetime
import io
import os
import time
import urllib.error
import urllib.request

import e2b
from common import fails, leave, run, until
from e2b import Sandbox, Secret, Volume

asynchronous = os.environ.get("E2B_TEST_ASYNC") == "1"  # the same with the other half of the package
if asynchronous:
    from blocking import Sandbox, Secret, Volume

template = os.environ["E2B_TEST_TEMPLATE"]
base = os.environ["E2B_TEST_DIR"]
vm = os.environ.get("E2B_TEST_VM") == "1"


def feed(stream_input, pid, pieces):
    if not asynchronous:
        return stream_input(pid, iter(pieces))
    h = stream_input(pid)
    for p in pieces:
        h.send(p)
    h.close()


def handles(s):
    said = []
    told = {"on_stdout": said.append, "on_stderr": said.append}
    h = s.commands.run("read a; read b; echo $a$b; echo err >&2; exit 3", background=True, stdin=True,
                       **(told if asynchronous else {}))
    h.send_stdin("1\n")
    h.send_stdin("2\n")
    e = fails(e2b.CommandExitException, h.wait, **({} if asynchronous else told))
    assert e.exit_code == 3 and sorted(said) == ["12\n", "err\n"], said
    fails(Exception, h.send_stdin, "late\n")
    fails(Exception, h.close_stdin)
    h = s.commands.run("cat", background=True, stdin=True)
    h.send_stdin("x")
    h.close_stdin()
    assert h.wait().stdout == "x"
    fails(Exception, s.commands.close_stdin, 999_999_9)
    fails(Exception, s.commands.send_stdin, 999_999_9, "x")
    h = s.commands.run("cat", background=True, stdin=True)
    feed(s.commands.stream_input, h.pid, ["a", "b", "c"])
    s.commands.close_stdin(h.pid)
    assert h.wait().stdout == "abc"
    fails(Exception, feed, s.commands.stream_input, 999_999_9, ["a"])
    h = s.commands.run("sleep 300", background=True)
    assert h.exit_code is None if asynchronous else True  # only what is awaited by itself knows
    h.disconnect()
    assert h.pid in [p.pid for p in s.commands.list()]  # it runs on
    assert h.kill() is True
    # It was sent a signal, and is there until it has ended.
    until("the end of a killed command", lambda: h.pid not in [p.pid for p in s.commands.list()])
    assert h.kill() is False


def terminals(s):
    out = []
    making = {"on_data": lambda b: None} if asynchronous else {}
    h = s.pty.create(size=e2b.PtySize(rows=24, cols=80), envs={"MINE": "of-the-pty"}, **making)
    again = s.pty.connect(h.pid, on_data=out.append) if asynchronous else s.pty.connect(h.pid)
    feed(s.pty.stream_input, h.pid, [b"echo $MI", b"NE; exit 5\n"])
    e = fails(e2b.CommandExitException, again.wait, **({} if asynchronous else {"on_pty": out.append}))
    assert e.exit_code == 5 and b"of-the-pty" in b"".join(bytes(o) for o in out)
    connect = (lambda pid: s.pty.connect(pid, on_data=print)) if asynchronous else s.pty.connect
    for f, args in ((connect, ()), (s.pty.send_stdin, (b"x",)), (s.pty.resize, (e2b.PtySize(rows=1, cols=1),))):
        fails(e2b.NotFoundException, f, 999_999_9, *args)
    fails(Exception, feed, s.pty.stream_input, 999_999_9, [b"x"])
    assert s.pty.kill(999_999_9) is False
    fails(e2b.InvalidArgumentException, s.pty.create, size=e2b.PtySize(rows=24, cols=80), cwd="/none",
          **making)


def files(s):
    d = base + "/rest"
    w = s.files.write(d + "/m", "with metadata", metadata={"Author": "me"})
    assert w.metadata == {"author": "me"} == s.files.get_info(d + "/m").metadata, w
    s.files.write(d + "/m", "without")
    assert not s.files.get_info(d + "/m").metadata
    s.files.write(d + "/z", b"z" * 100_000, gzip=True)
    assert s.files.read(d + "/z", format="bytes", gzip=True) == b"z" * 100_000
    s.files.write(d + "/o", b"octets", use_octet_stream=True)
    assert s.files.read(d + "/o") == "octets"
    if not asynchronous:
        s.files.write(d + "/i", iter([b"piece ", b"by piece"]))
        assert s.files.read(d + "/i") == "piece by piece"
    fails(e2b.NotFoundException, s.files.get_info, d + "/none")
    fails(e2b.InvalidArgumentException, s.files.make_dir, d + "/m")
    fails(e2b.SandboxException, s.files.write_files, [{"path": d, "data": "a directory"}])
    fails(e2b.InvalidArgumentException, s.files.list, d + "/m")
    assert s.files.exists(d + "/none") is False
    seen = []
    w = s.files.watch_dir(d, include_entry=True, **({"on_event": seen.append} if asynchronous else {}))
    s.files.write(d + "/seen", "x")
    end = time.time() + 30
    while not [ev for ev in seen if ev.name == "seen" and ev.entry]:
        assert time.time() < end, seen
        seen += [] if asynchronous else w.get_new_events()
    assert [ev.entry.path for ev in seen if ev.name == "seen" and ev.entry][0] == d + "/seen"
    w.stop()
    if not asynchronous:
        fails(e2b.SandboxException, w.get_new_events)
        fails(e2b.NotFoundException, w.stop)


def urls(s):
    path = base + "/uploaded.txt"
    body = (b'--b\r\nContent-Disposition: form-data; name="file"; filename="uploaded.txt"\r\n\r\nsent\r\n--b--\r\n')
    send = lambda url: urllib.request.urlopen(urllib.request.Request(
        url, body, {"Content-Type": "multipart/form-data; boundary=b"}))
    assert send(s.upload_url(path)).status == 200
    assert s.files.read(path) == "sent"
    try:
        send(s.download_url(path))  # signed for another thing
        raise AssertionError("a URL for reading writes")
    except urllib.error.HTTPError as e:
        assert e.code == 401, e
    assert s.get_mcp_url().endswith("/mcp") and s.get_host(50005) in s.get_mcp_url()
    fails(e2b.NotFoundException, s.get_mcp_token)  # no gateway runs
    assert s.traffic_access_token is None
    assert s.envd_direct_url.startswith("http")
    assert s.envd_api_url == os.environ["E2B_SANDBOX_URL"]
    assert s.sandbox_domain


def lists(s):
    pages = Sandbox.list(limit=1)
    seen = []
    while pages.has_next:
        seen += pages.next_items()
        assert pages.has_next == (pages.next_token is not None)
    assert s.sandbox_id in [x.sandbox_id for x in seen]
    assert pages.next_token is None
    fails(Exception, pages.next_items)
    fails(e2b.SandboxException, Sandbox.list(next_token="nonsense").next_items)
    fails(e2b.NotFoundException, Sandbox.get_info, "sbnone0000")
    fails(e2b.NotFoundException, Sandbox.set_timeout, "sbnone0000", 10)
    fails(e2b.NotFoundException, Sandbox.pause, "sbnone0000")
    fails(e2b.NotFoundException, Sandbox.fork, "sbnone0000")
    fails(e2b.NotFoundException, Sandbox.create_snapshot, "sbnone0000")
    fails(e2b.NotFoundException, Sandbox.update_network, "sbnone0000", {})
    fails(Exception, Sandbox.get_metrics, "sbnone0000")
    assert Sandbox.kill("sbnone0000") is False
    pages = Sandbox.list_snapshots(name="no-such")
    assert pages.has_next and pages.next_items() == [] and not pages.has_next and pages.next_token is None
    fails(Exception, pages.next_items)
    fails(e2b.SandboxException, Sandbox.list_snapshots(next_token="nonsense").next_items)


def named(s):
    snap = s.create_snapshot(name="rest-of-it")
    assert snap.names, snap
    assert snap.snapshot_id in [x.snapshot_id for x in Sandbox.list_snapshots(name="rest-of-it").next_items()]
    assert Sandbox.delete_snapshot(snap.snapshot_id) is True
    assert s.beta_pause() is True
    assert s.pause() is False  # it is already
    s.connect(timeout=300)
    s.files.write(base + "/kept", "on its disk")
    assert s.pause(mode="filesystem") is True
    s.connect(timeout=300, request_timeout=180)  # it boots
    assert s.files.read(base + "/kept") == "on its disk"


def network(s):
    try:
        s.update_network({"allow_out": ["example.com"], "deny_out": ["0.0.0.0/0"]})
    except e2b.SandboxException as e:
        print("the network:", e)
        assert "network" in str(e), e
    fails(e2b.SandboxException, s.update_network, {"allow_out": ["not an address!"]})


def secrets(s):
    """A daemon without a key for secrets (the VMs' one) answers 501 in E2B's shape, which is no error of decoding."""
    assert Secret.fill("rest-py") == "${e2b.secrets.rest-py}"  # which asks nobody
    fails(e2b.InvalidArgumentException, Secret.fill, "{}")
    assert Secret.iam_token(audience="a", token_type="JWT-SVID")
    if vm:
        for f, args in ((Secret.create, ("S", "v")), (Secret.get_info, ("S",)), (Secret.update, ("S", "v")),
                        (Secret.exists, ("S",)), (Secret.destroy, ("S",)), (Secret.list().next_items, ())):
            fails(e2b.SecretException, f, *args, says="501")
        return
    made = Secret.create("rest-py", "a value", metadata={"for": "tests"})
    assert (made.name, made.version, made.metadata) == ("rest-py", 1, {"for": "tests"}), made
    assert "a value" not in repr(made), made
    fails(e2b.SecretException, Secret.create, "rest-py", "v", says="409")
    fails(e2b.SecretException, Secret.create, "no.name", "v", says="400")
    for key in ("rest-py", made.secret_id):
        assert Secret.get_info(key).secret_id == made.secret_id
        assert Secret.exists(key) is True
    changed = Secret.update("rest-py", "another")
    assert (changed.version, changed.metadata) == (2, {"for": "tests"}), changed
    assert Secret.update(made.secret_id, "third", metadata={"a": "b"}).metadata == {"a": "b"}
    Secret.create("rest-py-2", "v")
    pages = Secret.list(limit=1)
    assert pages.has_next and pages.next_token is None
    names = []
    while pages.has_next:
        names += [i.name for i in pages.next_items()]
    assert sorted(names) == ["rest-py", "rest-py-2"] and pages.next_token is None, names
    fails(Exception, pages.next_items)
    fails(e2b.SecretException, Secret.list(next_token="wrong").next_items, says="400")
    for key in ("rest-py", "rest-py-2"):
        assert Secret.destroy(key) is True and Secret.destroy(key) is False
    for f, args in ((Secret.get_info, ("rest-py",)), (Secret.update, ("rest-py", "v"))):
        fails(e2b.SecretNotFoundException, f, *args)
    assert Secret.exists("rest-py") is False


def volumes(s):
    """They are made, listed and destroyed, and their files are used without a sandbox."""
    made = Volume.create("rest-py")
    fails(e2b.VolumeException, Volume.create, "rest-py", says="409")
    fails(e2b.VolumeException, Volume.create, "../v", says="400")
    assert [v.volume_id for v in Volume.list() if v.name == "rest-py"] == [made.volume_id]
    assert Volume.get_info(made.volume_id).name == "rest-py"
    volume = Volume.connect(made.volume_id)
    assert (volume.volume_id, volume.name) == (made.volume_id, "rest-py") and volume.token
    at = {"api_url": os.environ["E2B_API_URL"]}
    e = volume.write_file("/a/b.txt", "one", mode=0o600, uid=1000, gid=1000, force=True, **at)
    assert (e.name, e.path, e.size, e.mode, e.uid, e.gid, e.type.value) == ("b.txt", "/a/b.txt", 3, 0o600, 1000, 1000, "file"), e
    assert abs((datetime.datetime.now(datetime.timezone.utc) - e.mtime).total_seconds()) < 600, e
    assert volume.read_file("/a/b.txt", **at) == "one"
    assert volume.write_file("/a/b.txt", b"\x00two", **at).mode == 0o600
    assert volume.read_file("/a/b.txt", format="bytes", **at) == b"\x00two"
    large = os.urandom(3 << 20)
    assert volume.write_file("large", io.BytesIO(large), **at).size == len(large)
    assert b"".join(volume.read_file("large", format="stream", **at)) == large
    assert volume.make_dir("/d", mode=0o700, **at).mode == 0o700
    assert [x.path for x in volume.list("/", **at) if x.name != "lost+found"] == ["/a", "/d", "/large"]
    assert [x.path for x in volume.list("/a", depth=2, **at)] == ["/a/b.txt"]
    assert volume.get_info("/a", **at).type.value == "directory" and volume.exists("/d", **at) is True
    assert volume.update_metadata("/d", uid=7, gid=8, mode=0o750, **at).gid == 8
    volume.remove("/a", **at)
    assert volume.exists("/a/b.txt", **at) is False
    lost = e2b.exceptions.VolumePathNotFoundException
    stream = lambda path, **kw: list(volume.read_file(path, format="stream", **kw))
    for f, args in ((volume.list, ("/no",)), (volume.make_dir, ("/no/d",)), (volume.get_info, ("/no",)), (volume.remove, ("/no",)),
                    (volume.update_metadata, ("/no",)), (volume.read_file, ("/no",)), (stream, ("/no",)),
                    (volume.write_file, ("/no/f", "data"))):
        fails(lost, f, *args, **at)
    fails(e2b.VolumeException, volume.make_dir, "/d", says="409", **at)
    fails(e2b.VolumeException, volume.read_file, "/d", says="400", **at)
    fails(ValueError, volume.write_file, "/f", 1)  # which asks nobody
    # A sandbox that mounts the volume has the files, and clients see its changes.
    mounted = Sandbox.create(template, volume_mounts={"/mnt/v": "rest-py"})
    if vm:
        assert mounted.files.read("/mnt/v/large", format="bytes") == large
        mounted.commands.run("echo -n of-the-sandbox > /mnt/v/s", user="root")
        assert volume.read_file("s", **at) == "of-the-sandbox"
    assert volume.read_file("large", format="bytes", **at) == large
    mounted.kill()
    assert volume.exists("large", **at) is True
    assert [x for x in Sandbox.list().next_items() if x.sandbox_id == mounted.sandbox_id] == []
    other = Volume(volume_id=made.volume_id, name="mine", token="of the volume")  # as one has it that was made elsewhere
    assert (other.volume_id, other.name, other.token) == (made.volume_id, "mine", "of the volume")
    fails(Exception, other.list, "/", says="token of the volume", **at)
    assert Volume.destroy(made.volume_id) is True and Volume.destroy(made.volume_id) is False
    for f in (Volume.get_info, Volume.connect):
        fails(e2b.NotFoundException, f, made.volume_id)
    fails(Exception, volume.list, "/", **at)


def git(s):
    r = base + "/repo"
    if s.commands.run("command -v git || true").stdout == "":
        print("git: the image has none")
        return
    remote = base + "/remote.git"
    s.git.init(remote, bare=True)
    s.git.init(r, initial_branch="main")
    s.git.configure_user("Me", "me@example.com", scope="local", path=r)
    s.git.set_config("core.abbrev", "12", scope="local", path=r)
    assert s.git.get_config("core.abbrev", scope="local", path=r) == "12"
    assert s.git.get_config("core.none", scope="local", path=r) is None
    s.files.write(r + "/a.txt", "a")
    st = s.git.status(r)
    assert st.untracked_count == 1 and not st.is_clean, st
    s.git.add(r)
    assert s.git.status(r).staged_count == 1
    s.git.commit(r, "first")
    assert s.git.status(r).is_clean
    s.git.create_branch(r, "other")
    s.git.checkout_branch(r, "main")
    b = s.git.branches(r)
    assert b.current_branch == "main" and sorted(b.branches) == ["main", "other"], b
    s.git.delete_branch(r, "other", force=True)
    s.git.remote_add(r, "origin", remote)
    assert s.git.remote_get(r, "origin") == remote
    s.git.push(r, remote="origin", branch="main", set_upstream=True)
    s.git.clone(remote, base + "/clone", branch="main")
    assert s.files.read(base + "/clone/a.txt") == "a"
    s.files.write(r + "/a.txt", "b")
    s.git.add(r, files=["a.txt"])
    s.git.reset(r)
    assert s.git.status(r).staged_count == 0
    s.git.restore(r, paths=["a.txt"])
    assert s.files.read(r + "/a.txt") == "a"
    s.git.pull(base + "/clone")
    s.git.dangerously_authenticate("me", "secret", host="git.example.com")
    bad_git(s, r)


def bad_git(s, r):
    fails(Exception, s.git.clone, base + "/none.git", base + "/never")
    fails(Exception, s.git.commit, r, "nothing to commit")
    fails(Exception, s.git.checkout_branch, r, "none")
    fails(Exception, s.git.status, "/")
    fails(Exception, s.git.add, "/")
    fails(Exception, s.git.branches, "/")
    fails(Exception, s.git.push, r, remote="none", branch="main")
    fails(Exception, s.git.pull, base + "/none")
    fails(Exception, s.git.create_branch, r, "main")
    fails(Exception, s.git.delete_branch, r, "none")
    fails(Exception, s.git.init, r + "/a.txt")
    fails(Exception, s.git.remote_add, r, "origin", base + "/other.git")
    assert s.git.remote_get(r, "none") is None
    fails(Exception, s.git.reset, r, target="none")
    fails(Exception, s.git.restore, r, paths=["none.txt"])
    fails(Exception, s.git.set_config, "nosection", "x", scope="local", path=r)
    fails(e2b.InvalidArgumentException, s.git.set_config, "", "x")
    fails(e2b.InvalidArgumentException, s.git.configure_user, "", "")
    fails(e2b.InvalidArgumentException, s.git.dangerously_authenticate, "me", "")


def main():
    s = Sandbox.create(template, timeout=300)
    failed = run(s, (handles, terminals, files, urls, lists, named, network, secrets, volumes, git))
    s.kill()
    leave(failed)


main()
