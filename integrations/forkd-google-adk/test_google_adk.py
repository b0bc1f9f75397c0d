"""The real Google ADK with a scripted model."""
import base64
from pathlib import Path

import pytest

pytest.importorskip("google.adk.environment")

from google.adk.agents import LlmAgent
from google.adk.code_executors.code_execution_utils import CodeExecutionInput, File
from google.adk.models import BaseLlm, LlmResponse
from google.adk.runners import InMemoryRunner
from google.genai import types

import forkd
from forkd_google_adk import ForkdCodeExecutor, ForkdEnvironment


class Script(BaseLlm):
    turns: list = []
    seen: list = []

    async def generate_content_async(self, llm_request, stream=False):
        self.seen.append(llm_request.contents[-1])
        yield LlmResponse(content=types.Content(role="model", parts=[types.Part(text=self.turns.pop(0))]))


async def test_an_agent_runs_code(client, snapshot):
    executor = ForkdCodeExecutor(client, snapshot=snapshot, stateful=True, options={"ttl": 600})
    model = Script(model="script", turns=["```python\nx = 6 * 7\nprint('x is', x)\n```", "done"])
    agent = LlmAgent(name="a", model=model, code_executor=executor)
    runner = InMemoryRunner(agent=agent, app_name="app")
    session = await runner.session_service.create_session(app_name="app", user_id="u")
    texts = []
    try:
        async for event in runner.run_async(user_id="u", session_id=session.id, new_message=types.Content(
                role="user", parts=[types.Part(text="go")])):
            texts += [str(p) for p in (event.content.parts if event.content else [])]
        assert any("x is 42" in t for t in texts), texts
        assert "done" in texts[-1]
    finally:
        executor.close()


def test_code_files_and_state(client, snapshot):
    executor = ForkdCodeExecutor(client, snapshot=snapshot, stateful=True, options={"ttl": 600}, timeout_seconds=20)
    try:
        def run(code, *files):
            return executor.execute_code(None, CodeExecutionInput(code=code, input_files=[*files], execution_id="e"))
        got = run("y = open('in.csv').read(); open('out.txt', 'w').write(y.upper())",
                  File(name="in.csv", content="a,b", mime_type="text/csv"))
        assert [f.name for f in got.output_files] == ["out.txt"]
        assert base64.b64decode(got.output_files[0].content) == b"A,B"
        assert run("y").stdout == "'a,b'\n"
        assert "ZeroDivisionError" in run("1/0").stderr
    finally:
        executor.close()


async def test_environment(snapshot):
    async with forkd.AsyncForkd() as client:
        env = ForkdEnvironment(snapshot, client=client, ttl=600)
        with pytest.raises(RuntimeError):
            await env.execute("true")
        await env.initialize()
        try:
            await env.write_file(Path("d/ü"), b"\0\xff")
            assert await env.read_file(env.working_dir / "d/ü") == b"\0\xff"
            with pytest.raises(FileNotFoundError):
                await env.read_file(Path("missing"))
            got = await env.execute("pwd; echo bad >&2; exit 3")
            assert (got.exit_code, got.stdout, got.stderr) == (3, f"{env.working_dir}\n", "bad\n")
            assert (await env.execute("sleep 60", timeout=1)).timed_out
        finally:
            await env.close()
            await env.close()
