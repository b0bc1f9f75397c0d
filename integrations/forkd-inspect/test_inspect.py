"""Inspect's own suite, and an evaluation with Inspect's mock model."""
import pytest

pytest.importorskip("inspect_ai")

from inspect_ai import Task, eval as inspect_eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, use_tools
from inspect_ai.tool import bash
from inspect_ai.util import SandboxEnvironmentSpec
from inspect_ai.util._sandbox.self_check import *  # noqa: F403

import forkd
from forkd_inspect import ForkdConfig, ForkdSandboxEnvironment


@pytest.fixture(scope="module")
def shared(client, snapshot):
    """One sandbox for all checks: they clean up after themselves."""
    with client.snapshot(snapshot).fork(ttl=900) as sandbox:
        yield sandbox.id


@pytest.fixture
async def sandbox_env(shared):
    async with forkd.AsyncForkd() as client:
        sandbox = client.sandbox(shared)
        home = (await sandbox.exec(["pwd"])).stdout.strip()
        yield ForkdSandboxEnvironment(sandbox, home)


async def words(text):
    return len(text.split())


def test_an_evaluation_runs_in_forks(snapshot, tmp_path):
    answers = [ModelOutput.for_tool_call("mockllm", "bash", {"command": "cat given.txt; expr 6 '*' 7"}),
               ModelOutput.from_content("mockllm", "the answer is 42")]
    task = Task(dataset=[Sample(input="go", target="42", files={"given.txt": "given"})],
                solver=[use_tools(bash()), generate()], scorer=includes(),
                sandbox=SandboxEnvironmentSpec("forkd", ForkdConfig(snapshot=snapshot, ttl=600)))
    model = get_model("mockllm/model", custom_outputs=answers)
    model.api.count_text_tokens = words  # Inspect's own counting downloads a tokenizer
    log, = inspect_eval(task, model=model, log_dir=str(tmp_path),
                        display="none")
    assert log.status == "success", log.error
    assert log.results.scores[0].metrics["accuracy"].value == 1
    tool = next(m for m in log.samples[0].messages if m.role == "tool")
    assert "given" in tool.text and "42" in tool.text


async def test_an_ended_sandbox_is_unavailable(snapshot):
    from inspect_ai.util._sandbox.environment import SandboxUnavailableError
    async with forkd.AsyncForkd() as client:
        env = await ForkdSandboxEnvironment.start(client, ForkdConfig(snapshot=snapshot, ttl=60))
        await env.sandbox.kill()
        with pytest.raises(SandboxUnavailableError):
            await env.exec(["true"])
