"""Pydantic AI's own suite, and an agent with its test model."""
import pytest

pytest.importorskip("pydantic_ai.workspaces")

from pydantic_ai import Agent
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.workspaces import Workspace
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

import forkd
from forkd_pydantic_ai import ForkdWorkspaceBackend


@pytest.fixture
async def async_client():
    async with forkd.AsyncForkd() as client:
        yield client


@pytest.fixture
async def made(async_client):
    """Backends of a test; their sandboxes end with it."""
    backends: list[ForkdWorkspaceBackend] = []
    yield backends
    for backend in backends:
        if backend.ref is not None:
            try:
                await async_client.sandbox(backend.ref.id).kill()
            except forkd.NotFoundError:
                pass


@pytest.fixture(scope="module")
def shared(client, snapshot):
    """One sandbox for the rules that end none."""
    with client.snapshot(snapshot).fork(ttl=900) as sandbox:
        yield sandbox.id


class TestForkd(WorkspaceBackendSuite):
    @pytest.fixture
    def fresh_backend(self, async_client, snapshot, made):
        def make():
            backend = ForkdWorkspaceBackend(async_client, snapshot, ttl=300)
            made.append(backend)
            return backend
        return make

    @pytest.fixture
    def backend(self, async_client, shared, attach_backend):
        from pydantic_ai.workspaces import WorkspaceRef
        return attach_backend(WorkspaceRef(provider="forkd", id=shared))

    @pytest.fixture
    def attach_backend(self, async_client):
        return lambda ref: ForkdWorkspaceBackend(async_client, ref=ref)

    @pytest.fixture
    def destroy_environment(self, async_client):
        async def destroy(backend):
            await async_client.sandbox(backend.ref.id).kill()
        return destroy


async def test_an_agent_uses_the_workspace(async_client, snapshot, made):
    backend = ForkdWorkspaceBackend(async_client, snapshot, ttl=300)
    made.append(backend)
    workspace = Workspace(backend)

    def answer(messages, info):
        last = messages[-1].parts[-1]
        if last.part_kind == "tool-return":
            return ModelResponse(parts=[TextPart(f"saw {last.content}")])
        return ModelResponse(parts=[ToolCallPart("shell", {"command": "python3 -c 'print(6*7)'"})])

    agent = Agent(FunctionModel(answer))

    @agent.tool_plain
    async def shell(command: str) -> str:
        return (await workspace.run(command, shell=True)).stdout

    assert (await agent.run("go")).output == "saw 42\n"


async def test_a_long_script_and_a_silent_flood(async_client, snapshot, made):
    backend = ForkdWorkspaceBackend(async_client, snapshot, ttl=300)
    made.append(backend)
    assert (await backend.run(f": {'x' * 300_000}\necho long", shell=True)).stdout == "long\n"
    assert len((await backend.run("head -c 3000000 /dev/zero | tr '\\0' z", shell=True)).stdout) == 3_000_000
