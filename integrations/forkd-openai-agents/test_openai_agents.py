"""The real OpenAI Agents SDK with a model that is a list of answers."""
import io
import json
from pathlib import Path

import pytest

pytest.importorskip("agents.sandbox")

from agents import ModelResponse, RunConfig, Runner, Usage
from agents.models.interface import Model
from agents.run_config import SandboxRunConfig
from agents.sandbox import Manifest, SandboxAgent
from agents.sandbox.capabilities import Shell
from agents.sandbox.entries import File
from agents.sandbox.errors import ExecTimeoutError, WorkspaceReadNotFoundError
from agents.sandbox.snapshot import LocalSnapshotSpec
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import forkd
from forkd_openai_agents import ForkdSandboxClient, ForkdSandboxClientOptions, ForkdSandboxSessionState

TTL = 600


@pytest.fixture
async def backend():
    async with forkd.AsyncForkd() as client:
        yield ForkdSandboxClient(client)


@pytest.fixture(autouse=True)
def clean(client):
    """Deletes the snapshots of persisted sessions, which stay so that a session can go on later."""
    before = {s.tag for s in client.snapshots()}
    yield
    for s in client.snapshots():
        if s.tag.startswith("agents-") and s.tag not in before:
            client.snapshot(s.tag).delete()


@pytest.fixture
def options(snapshot):
    return ForkdSandboxClientOptions(snapshot=snapshot, ttl=TTL, env={"FROM_OPTIONS": "yes"})


class Script(Model):
    """Answers with the given items, one turn each, and keeps its inputs."""

    def __init__(self, *turns):
        self.turns, self.inputs = list(turns), []

    async def get_response(self, system_instructions, input, *args, **kwargs):
        self.inputs.append(input)
        return ModelResponse(output=[self.turns.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args, **kwargs):
        raise NotImplementedError


def shell(cmd):
    return ResponseFunctionToolCall(type="function_call", call_id="c1", name="exec_command",
                                    arguments=json.dumps({"cmd": cmd}))


def said(text):
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m1", type="message", role="assistant", status="completed", content=[part])


async def test_an_agent_works_in_a_fork(backend, options):
    model = Script(shell("cat task.txt; python3 -c 'print(6*7)'; pwd; echo $FROM_OPTIONS"), said("done"))
    agent = SandboxAgent(name="a", model=model, capabilities=[Shell()],
                         default_manifest=Manifest(entries={"task.txt": File(content=b"from the manifest\n")}))
    config = RunConfig(sandbox=SandboxRunConfig(client=backend, options=options), tracing_disabled=True)
    got = await Runner.run(agent, "go", run_config=config)
    assert got.final_output == "done"
    seen = json.dumps(model.inputs[1], default=str)
    assert "from the manifest" in seen and "42" in seen and "/workspace" in seen and "yes" in seen


async def test_files_commands_and_errors(backend, options):
    session = await backend.create(options=options)
    async with session:
        await session.write(Path("data/ü.bin"), io.BytesIO(bytes(range(256))))
        assert (await session.read(Path("data/ü.bin"))).read() == bytes(range(256))
        assert await session.read_bounded(Path("data/ü.bin"), max_bytes=10) == bytes(range(10))
        with pytest.raises(WorkspaceReadNotFoundError):
            await session.read(Path("missing"))
        assert (await session.exec("exit 7")).exit_code == 7
        assert (await session.exec("no-such-program", shell=False)).exit_code == 127
        assert (await session.exec("id -un", user="root")).stdout == b"root\n"
        assert (await session.exec(f"true {'x' * 300_000}; echo long")).stdout == b"long\n"
        with pytest.raises(ExecTimeoutError):
            await session.exec("sleep 60", timeout=1)
        assert await session.running()
    assert not await session.running()


async def test_a_branch_brings_back_files_and_processes(backend, options, tmp_path):
    session = await backend.create(options=options, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        await session.exec("echo kept > f; setsid sleep 4321 >/dev/null 2>&1 </dev/null &")
    await backend.delete(session)
    state = backend.deserialize_session_state(json.loads(json.dumps(backend.serialize_session_state(session.state))))
    assert isinstance(state, ForkdSandboxSessionState)
    assert len(next(tmp_path.iterdir()).read_bytes()) < 200  # a tag, not the files
    again = await backend.resume(state)
    await again.start()
    try:
        got = await again.exec("cat f; grep -qa 'sleep.432[1]' /proc/[0-9]*/cmdline && echo alive")
        assert got.stdout == b"kept\nalive\n"
    finally:
        await again.shutdown()
        await backend.forget(again)


async def test_tar_restores_the_files(backend, options, tmp_path):
    options = options.model_copy(update={"persistence": "tar"})
    session = await backend.create(options=options, snapshot=LocalSnapshotSpec(base_path=tmp_path))
    async with session:
        await session.exec("mkdir d; echo kept > d/f; chmod 700 d/f")
    again = await backend.resume(session.state)
    async with again:
        assert (await again.exec("cat d/f; stat -c %a d/f")).stdout == b"kept\n700\n"


async def test_pause_and_resume_keep_the_sandbox(backend, options):
    options = options.model_copy(update={"pause_on_exit": True})
    session = await backend.create(options=options)
    async with session:
        await session.exec("setsid sleep 4322 >/dev/null 2>&1 </dev/null &")
    again = await backend.resume(session.state)
    assert again.state.sandbox_id == session.state.sandbox_id
    await again.start()
    try:
        assert (await again.exec("grep -a 'sleep.432[2]' /proc/[0-9]*/cmdline")).exit_code == 0
    finally:
        await backend.delete(again)


async def test_a_port_is_reachable(backend, options):
    import asyncio
    options = options.model_copy(update={"exposed_ports": (8000,)})
    session = await backend.create(options=options)
    async with session:
        await session.exec("echo hello > index.html; setsid python3 -m http.server 8000 >/dev/null 2>&1 </dev/null &")
        end = await session.resolve_exposed_port(8000)
        for _ in range(50):
            try:
                reader, writer = await asyncio.open_connection(end.host, end.port)
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                got = await reader.read(10_000)
                writer.close()
            except OSError:
                got = b""
            if b"hello" in got:
                return
            await asyncio.sleep(0.2)
        raise AssertionError(got)
