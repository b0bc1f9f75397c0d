"""Uses forkd's MCP server with the official Python package, over stdio and HTTP, in each version of the protocol that
the package has. MCP_TEST_FORKD is the program, FORKD_URL and FORKD_TOKEN lead to a daemon with VMs, and
MCP_TEST_SNAPSHOT is a snapshot with Python."""
import asyncio
import base64
import contextlib
import importlib.metadata
import json
import os
import re
import subprocess
import sys
import time
import urllib.request

import anyio
import mcp
from mcp.client.stdio import StdioServerParameters, stdio_client

FORKD, SNAPSHOT = os.environ["MCP_TEST_FORKD"], os.environ.get("MCP_TEST_SNAPSHOT", "py")
NEW = importlib.metadata.version("mcp") >= "2"
TOKEN = "0123456789abcdef0123456789abcdef"
DAEMON = {k: v for k, v in os.environ.items() if k.startswith("FORKD_")}


def cli(*args):
    return subprocess.run([FORKD, *args], capture_output=True, text=True, check=True).stdout


def field(o, snake):
    """A field by its name in either generation of the package."""
    camel = re.sub(r"_(.)", lambda m: m[1].upper(), snake)
    return getattr(o, snake) if hasattr(o, snake) else getattr(o, camel)


class Server:
    """A client's session, whatever the package's generation."""

    def __init__(self, session):
        self.session = session

    async def call(self, tool, progress=None, /, **args):
        res = await self.session.call_tool(tool, args, progress_callback=progress)
        assert not field(res, "is_error"), f"{tool}: {res.content}"
        return field(res, "structured_content")

    async def fails(self, tool, code, /, **args):
        res = await self.session.call_tool(tool, args)
        text = "".join(c.text for c in res.content)
        assert field(res, "is_error") and f"code: {code}" in text, text
        return text

    async def read(self, uri):
        return (await self.session.read_resource(uri)).contents[0]


@contextlib.asynccontextmanager
async def stdio(mode, args):
    params = StdioServerParameters(command=FORKD, args=["mcp", *args], env=DAEMON)
    if NEW:
        async with mcp.Client(params, mode=mode) as c:
            yield Server(c)
        return
    async with stdio_client(params) as (r, w), mcp.ClientSession(r, w) as s:
        await s.initialize()
        yield Server(s)


@contextlib.asynccontextmanager
async def http(mode, args):
    p = subprocess.Popen([FORKD, "mcp", "--listen", "127.0.0.1:0", *args], stderr=subprocess.PIPE, text=True,
                         env={**os.environ, "FORKD_MCP_TOKEN": TOKEN})
    try:
        url = re.search(r"http://\S+", p.stderr.readline())[0]
        headers = {"Authorization": "Bearer " + TOKEN}
        if NEW:
            import httpx2
            from mcp.client.streamable_http import streamable_http_client
            async with httpx2.AsyncClient(headers=headers, timeout=60) as h:
                async with mcp.Client(streamable_http_client(url, http_client=h), mode=mode) as c:
                    yield Server(c)
        else:
            from mcp.client.streamable_http import streamablehttp_client
            async with streamablehttp_client(url, headers=headers) as (r, w, _), mcp.ClientSession(r, w) as s:
                await s.initialize()
                yield Server(s)
    finally:
        p.terminate()
        assert p.wait(30) == 0
        p.stderr.close()


async def tools(s, _):
    names = {t.name for t in (await s.session.list_tools()).tools}
    for name in ("list_snapshots spawn_sandboxes branch_sandbox create_snapshot wait_for_text list_sandboxes get_sandbox "
                 "kill_sandbox exec_command eval_code ping_sandbox").split():
        assert name in names, name
    assert SNAPSHOT in [x["tag"] for x in (await s.call("list_snapshots"))["snapshots"]]
    prompts = {p.name for p in (await s.session.list_prompts()).prompts}
    assert prompts == {"try_ways", "branch_before_risk", "reproduce_bug"}, prompts
    got = await s.session.get_prompt("try_ways", {"task": "sort {ways} lists"})
    assert "sort {ways} lists" in got.messages[0].content.text and "trying 3 different" in got.messages[0].content.text


async def spawn(s, ids):
    told = []

    async def progress(done, total, message):
        told.append((done, total, message))
    made = await s.call("spawn_sandboxes", progress, snapshot_tag=SNAPSHOT, n=2)
    ids += [sb["id"] for sb in made["sandboxes"]]
    assert len(ids) == 2 and told[-1][:2] == (2, 2), told
    for sb in (await s.call("list_sandboxes"))["sandboxes"]:
        assert sb["ends_with_session"] == (sb["id"] in ids), sb
    assert (await s.call("ping_sandbox", sandbox_id=ids[0]))["pong"]


async def runs(s, ids):
    got = await s.call("exec_command", sandbox_id=ids[0], args=["python3", "-c", "print('größe \\u2028 ☃')"])
    assert got == {"stdout": "größe \u2028 ☃\n", "stderr": "", "exit_code": 0}, got
    got = await s.call("exec_command", sandbox_id=ids[0], command="echo out; echo err >&2; exit 3")
    assert (got["stdout"], got["stderr"], got["exit_code"]) == ("out\n", "err\n", 3), got
    got = await s.call("exec_command", sandbox_id=ids[0], args=["sleep", "60"], timeout_secs=1)
    assert got["timed_out"] and got["exit_code"] == 124, got
    await s.call("eval_code", sandbox_id=ids[0], code="x = 41")
    assert (await s.call("eval_code", sandbox_id=ids[0], code="x + 1"))["result"] == "42"
    got = await s.call("eval_code", sandbox_id=ids[0], code="1/0")
    assert "ZeroDivisionError" in got["error"] and got["exit_code"] == 1, got


async def outputs(s, ids):
    frame = '{"jsonrpc":"2.0","id":1,"result":{}}'
    got = await s.call("exec_command", sandbox_id=ids[0], command=f"printf '\\n%s\\n\\0\\033[2J' '{frame}'")
    assert got["stdout"] == f"\n{frame}\n\0\033[2J", got
    got = await s.call("exec_command", sandbox_id=ids[0], command="seq 1 100000")
    assert len(got["stdout"]) < 40000 and "bytes left out" in got["stdout"], len(got["stdout"])
    uri = re.search(r"forkd://output/\d+/stdout", got["notes"][0])[0]
    assert (await s.read(uri)).text == "".join(f"{i}\n" for i in range(1, 100001))
    assert (await s.read(uri + "?offset=-7")).text == "100000\n"
    got = await s.call("exec_command", sandbox_id=ids[0], command="printf '\\377\\376'")
    uri = re.search(r"forkd://output/\d+/stdout", got["notes"][0])[0]
    assert base64.b64decode((await s.read(uri)).blob) == b"\xff\xfe"


async def files(s, ids):
    path, data = "/tmp/dir with space/größe%41?x#y", bytes(range(256)) * 10
    await s.call("write_file", sandbox_id=ids[0], path=path, content_base64=base64.b64encode(data).decode())
    got = await s.call("read_file", sandbox_id=ids[0], path=path)
    assert base64.b64decode(got["content_base64"]) == data and got["size_bytes"] == len(data), got
    got = await s.call("read_file", sandbox_id=ids[0], path=path, offset=65, limit=2)
    assert (got["content"], got["next_offset"]) == ("AB", 67), got
    uri = "forkd://sandbox/" + ids[0] + "/file/tmp/dir%20with%20space/gr%C3%B6%C3%9Fe%2541%3Fx%23y"
    assert base64.b64decode((await s.read(uri)).blob) == data
    listed = (await s.call("list_files", sandbox_id=ids[0], path="/tmp/dir with space"))["entries"]
    assert [(f["name"], f["type"], f["size_bytes"]) for f in listed] == [("größe%41?x#y", "file", len(data))], listed
    assert "Linux" in (await s.call("read_file", sandbox_id=ids[0], path="/proc/version"))["content"]
    await s.fails("read_file", "not_found", sandbox_id=ids[0], path="/nowhere")
    assert (await s.read(f"forkd://sandbox/{ids[0]}/log")).uri
    assert ids[0] in (await s.read("forkd://tree")).text


async def waits(s, ids):
    await s.call("exec_command", sandbox_id=ids[0], command="(sleep 1; echo READY) >/tmp/log 2>&1 &")
    got = await s.call("wait_for_text", sandbox_id=ids[0], path="/tmp/log", marker="READY", timeout_secs=30)
    assert got["found"] and got["last_excerpt"] == "READY\n", got
    got = await s.call("wait_for_text", sandbox_id=ids[0], path="/tmp/log", marker="never", timeout_secs=1)
    assert not got["found"], got


async def branches(s, ids):
    await s.call("eval_code", sandbox_id=ids[0], code="open('/tmp/f','w').write('before'); y = 'before'")
    got = await s.call("branch_sandbox", sandbox_id=ids[0], n=1)
    tag, child = got["snapshot"]["tag"], got["sandboxes"][0]["id"]
    assert (await s.call("eval_code", sandbox_id=child, code="y"))["result"] == "'before'"
    await s.call("eval_code", sandbox_id=ids[0], code="open('/tmp/f','w').write('after'); y = 'after'")
    await s.call("rollback_sandbox", sandbox_id=ids[0], snapshot_tag=tag)
    assert (await s.call("eval_code", sandbox_id=ids[0], code="y + open('/tmp/f').read()"))["result"] == "'beforebefore'"
    diff = await s.call("snapshot_diff", before=SNAPSHOT, after=tag)
    assert diff["files"]["counts"]["added"] > 0, diff
    assert tag in (await s.call("snapshot_tree"))["tree"]
    await s.fails("delete_snapshot", "forbidden", tag=SNAPSHOT)
    await timelines(s, ids[0], child)
    await s.call("kill_sandbox", sandbox_id=ids.pop(0))
    await s.call("delete_snapshot", tag=tag)


async def timelines(s, first, child):
    await s.call("write_file", sandbox_id=child, path="/tmp/found", content="7\n")
    await s.call("write_file", sandbox_id=first, path="/tmp/score", content="1\n")
    await s.call("write_file", sandbox_id=child, path="/tmp/score", content="2\n")
    got = await s.call("keep_best", sandbox_ids=[first, child], best=1, file="/tmp/score", dry_run=True)
    assert [(e["id"], e["score"], e["outcome"]) for e in got["sandboxes"]] == [
        (child, 2, "kept"), (first, 1, "ended")], got
    got = await s.call("merge_sandbox", sandbox_id=first, theirs=child)
    assert not got["applied"] and [c["path"] for c in got["conflicts"]] == ["/tmp/score"], got
    got = await s.call("merge_sandbox", sandbox_id=first, theirs=child, resolve="ours")
    assert got["applied"] and {"path": "/tmp/found", "action": "added"} in got["changes"], got
    await s.call("eval_code", sandbox_id=child, code="y = 'promoted'")
    got = await s.call("promote_sandbox", sandbox_id=child, discard=True)
    assert got["sandbox"]["id"] == first and got["promoted_from"] == child, got
    assert (await s.call("eval_code", sandbox_id=first, code="y"))["result"] == "'promoted'"
    await s.fails("get_sandbox", "not_found", sandbox_id=child)


async def lives(s, ids):
    assert (await s.call("pause_sandbox", sandbox_id=ids[0]))["status"] == "paused"
    text = await s.fails("eval_code", "conflict", sandbox_id=ids[0], code="1")
    assert "resume_sandbox" in text, text
    assert (await s.call("resume_sandbox", sandbox_id=ids[0]))["status"] == "running"
    assert (await s.call("eval_code", sandbox_id=ids[0], code="1+1"))["result"] == "2"


async def networks(s, ids):
    assert (await s.call("get_network_policy", sandbox_id=ids[0]))["policy"] == "none"
    got = await s.call("set_network_policy", sandbox_id=ids[0], allow=["pypi.org:443"])
    assert got["policy"] == "custom" and got["allow"] == ["pypi.org:443"], got
    await s.fails("set_network_policy", "invalid_request", sandbox_id=ids[0], allow=["not a rule!"])
    await s.call("exec_command", sandbox_id=ids[0],
                 command="cd /etc && python3 -m http.server 8000 --bind 127.0.0.1 >/tmp/http 2>&1 &")
    url = (await s.call("expose_port", sandbox_id=ids[0], port=8000))["url"]

    def ready():
        try:
            return urllib.request.urlopen(url + "/hostname", timeout=10).read()
        except OSError:
            return b""
    for _ in range(100):
        if await asyncio.to_thread(ready):
            break
        await asyncio.sleep(0.2)
    else:
        raise AssertionError("nothing answers at " + url)


async def cancels(s, ids):
    began = time.time()
    with anyio.move_on_after(2):
        await s.call("eval_code", sandbox_id=ids[0], code="import time; time.sleep(120)")
        raise AssertionError("it was not cancelled")
    assert (await s.call("eval_code", sandbox_id=ids[0], code="6*7"))["result"] == "42"
    with anyio.move_on_after(1):
        await s.call("exec_command", sandbox_id=ids[0], args=["sleep", "4711"], timeout_secs=120)
        raise AssertionError("it was not cancelled")
    for _ in range(50):
        if (await s.call("exec_command", sandbox_id=ids[0], command="pgrep -f 'sleep 471[1]' || true"))["stdout"] == "":
            break
        await asyncio.sleep(0.2)
    else:
        raise AssertionError("the program still runs")
    assert time.time() - began < 90


async def errors(s, ids):
    text = await s.fails("get_sandbox", "not_found", sandbox_id="sb-none")
    assert "list_sandboxes" in text, text
    await s.fails("spawn_sandboxes", "quota_exceeded", snapshot_tag=SNAPSHOT, n=50)
    await s.fails("spawn_sandboxes", "not_found", snapshot_tag="no-such")
    for broken in ({"sandbox_id": 7}, {}, {"sandbox_id": ids[0], "bogus": 1}):
        res = await s.session.call_tool("get_sandbox", broken)
        assert field(res, "is_error"), res
    for uri in ("forkd://sandbox/x/file", "forkd://output/1/../../x", "file:///etc/passwd"):
        try:
            await s.read(uri)
        except Exception as e:
            assert "root:" not in str(e)
        else:
            raise AssertionError(uri)


async def session(kind, mode, parts):
    ids = []
    async with kind(mode, ["--max-sandboxes", "4"]) as s:
        for part in parts:
            began = time.time()
            await part(s, ids)
            print(f"ok   {kind.__name__} {mode} {part.__name__} {time.time() - began:.2f} s", flush=True)
    for end in range(100):
        if not set(ids) & set(cli("-q", "ps").split()):
            break
        await asyncio.sleep(0.1)
    else:
        raise AssertionError("sandboxes are left after the session")


async def main():
    print("mcp", importlib.metadata.version("mcp"))
    full = [tools, spawn, runs, outputs, files, waits, errors, networks, lives, cancels, branches]
    short = [tools, spawn, runs, outputs, cancels]
    modes = ["legacy", "2026-07-28"] if NEW else ["legacy"]
    if not NEW:  # the older package does not tell the server of a cancelled call
        full.remove(cancels)
        short.remove(cancels)
    await session(stdio, modes[-1], full)
    await session(http, modes[-1], short)
    if NEW:
        await session(http, "legacy", short)
        await session(stdio, "auto", short[:2])


anyio.run(main)
