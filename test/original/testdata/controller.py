"""Every method of the original's Controller, with a good and a bad case."""

from forkd import Controller, ControllerError

c = Controller()


def refused(status, word, call, *args, **named):
    try:
        call(*args, **named)
    except ControllerError as e:
        assert e.status == status, e
        assert word in e.body["error"], e
        return
    raise AssertionError(f"{call.__name__}{args} was not refused")


assert [s["tag"] for s in c.list_snapshots()] == ["py"]
refused(404, "ghost", c.spawn_sandboxes, "ghost")
refused(400, "n", c.spawn_sandboxes, "py", n=0)
children = c.spawn_sandboxes("py", n=2, per_child_netns=True, memory_limit_mib=256, prewarm=True, live_fork=True,
                             hugepages=True)
assert len(children) == 2, children
sb = children[0]["id"]
assert children[0]["memory_limit_mib"] == 256 and children[0]["guest_addr"] and children[0]["pid"], children
assert {s["id"] for s in c.list_sandboxes()} == {s["id"] for s in children}
assert c.get_sandbox(sb)["snapshot_tag"] == "py"
refused(404, "sb-0-0000", c.get_sandbox, "sb-0-0000")

assert c.ping_sandbox(sb)["pong"] is True
assert c.exec_command(sb, ["echo", "hi"])["stdout"] == "hi\n"
refused(404, "sb-0-0000", c.exec_command, "sb-0-0000", ["true"])
assert c.eval_code(sb, "6*7") == {**c.eval_code(sb, "6*7"), "result": "42", "error": None, "exit_code": 0}
assert "RuntimeError" in c.eval_code(sb, "raise")["error"]

for mode in ("full", "diff", "live"):
    branch = c.branch_sandbox(sb, tag=f"at-{mode}", mode=mode)
    assert (branch["tag"], branch["branched_from"], branch["status"]) == (f"at-{mode}", sb, "ready"), branch
assert c.branch_sandbox(sb)["tag"].startswith(f"branch-{sb}-")
assert c.branch_sandbox(sb, diff=True)["pause_ms"] >= 0
assert c.branch_sandbox(sb, measure_diff=True)["status"] == "ready"
assert c.branch_sandbox(sb, tag="later", mode="live", wait=False)["status"] == "writing"
refused(409, "at-live", c.branch_sandbox, sb, tag="at-live")
refused(400, "tag", c.branch_sandbox, sb, tag="../x")
assert len(c.spawn_sandboxes("at-live", n=5)) == 5

refused(409, "at-diff", c.delete_snapshot, "py")
refused(404, "ghost", c.delete_snapshot, "ghost")
assert c.delete_snapshot("at-full") is None
assert c.kill_sandbox(sb) is None
refused(404, sb, c.kill_sandbox, sb)
refused(401, "token", Controller(token="wrong-wrong-wrong-wrong").list_snapshots)
