"""The real deepagents with a scripted chat model."""
import pytest

pytest.importorskip("deepagents")

from deepagents import create_deep_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage

import forkd
from forkd_deepagents import ForkdBackend


class Model(GenericFakeChatModel):
    def bind_tools(self, tools, **kwargs):
        return self


def call(name, **args):
    return AIMessage(content="", tool_calls=[{"name": name, "args": args, "id": f"c-{name}"}])


def test_an_agent_writes_edits_and_runs(fork):
    model = Model(messages=iter([
        call("write_file", file_path="/home/user/a.py", content="print(6*6)\n"),
        call("edit_file", file_path="/home/user/a.py", old_string="6*6", new_string="6*7"),
        call("execute", command="python3 /home/user/a.py; echo bad >&2; exit 3"),
        AIMessage(content="done")]))
    agent = create_deep_agent(model=model, backend=ForkdBackend(fork))
    got = agent.invoke({"messages": [{"role": "user", "content": "go"}]})
    tools = [m.content for m in got["messages"] if m.type == "tool"]
    assert "42" in tools[2] and "bad" in tools[2] and "3" in tools[2], tools
    assert fork.files.read("/home/user/a.py") == b"print(6*7)\n"
    assert got["messages"][-1].content == "done"


def test_all_file_methods(fork):
    b = ForkdBackend(fork)
    assert b.write("/home/user/d/ü.txt", "one\ntwo\n" + "x" * 300_000).error is None
    assert "two" in str(b.read("/home/user/d/ü.txt", offset=1, limit=1))
    assert b.edit("/home/user/d/ü.txt", "two", "2" * 200_000).error is None
    assert "/home/user/d/ü.txt" in str(b.ls("/home/user/d"))
    assert "ü.txt" in str(b.glob("*.txt", "/home/user/d"))
    assert "one" in str(b.grep("one", "/home/user/d"))


def test_files_one_by_one(fork):
    b = ForkdBackend(fork)
    data = bytes(range(256)) * 1000
    up = b.upload_files([("/home/user/x/b", data), ("/etc/nope", b""), ("/tmp", b""), ("rel", b"")])
    assert [u.error for u in up] == [None, "permission_denied", "is_directory", "invalid_path"]
    down = b.download_files(["/home/user/x/b", "/missing", "/etc/shadow", "/tmp", "/etc/passwd/x"])
    assert down[0].content == data
    assert [d.error for d in down[1:]] == ["file_not_found", "permission_denied", "is_directory", "invalid_path"]


def test_limits_and_order(fork):
    b = ForkdBackend(fork)
    assert b.execute("echo 1; echo 2 >&2; echo 3").output == "1\n2\n3\n"
    slow = b.execute("echo begun; sleep 60", timeout=1)
    assert slow.exit_code == 124 and "begun" in slow.output
    assert b.execute(f": {'y' * 400_000}\necho long").output == "long\n"
    big = b.execute("head -c 6000000 /dev/zero | tr '\\0' z")
    assert big.exit_code == 0 and (big.truncated or len(big.output) == 6_000_000)


def test_an_ended_sandbox_is_no_file_error(client, snapshot):
    sandbox = client.snapshot(snapshot).fork(ttl=60)
    b = ForkdBackend(sandbox)
    sandbox.kill()
    with pytest.raises(forkd.NotFoundError):
        b.download_files(["/etc/passwd"])
