"""The real CodeAgent with a scripted model."""
import pytest

pytest.importorskip("smolagents")

from smolagents import ChatMessage, CodeAgent, Model, tool
from smolagents.utils import AgentError

from forkd_smolagents import ForkdExecutor


class Script(Model):
    def __init__(self, *steps):
        super().__init__()
        self.steps = list(steps)

    def generate(self, messages, **kwargs):
        return ChatMessage(role="assistant", content=f"Thought: go\n<code>\n{self.steps.pop(0)}\n</code>")


@tool
def double(n: int) -> int:
    """Doubles a number.

    Args:
        n: the number
    """
    return 2 * n


@pytest.fixture
def executor(client, snapshot):
    with ForkdExecutor(client=client, snapshot=snapshot, timeout=60, ttl=600) as executor:
        yield executor


def test_an_agent_computes_in_a_fork(executor):
    model = Script("import socket, numpy as np\nx = int(np.arange(7).sum())\nprint('sum', x)",
                   "final_answer({'twice': double(x), 'given': given, 'tuple': (1, b'2')})")
    agent = CodeAgent(tools=[double], model=model, executor=executor, additional_authorized_imports=["numpy"])
    assert agent.run("go", additional_args={"given": [1, 2]}) == {"twice": 42, "given": [1, 2], "tuple": (1, b"2")}
    assert "sum 21" in str(agent.memory.steps[1].observations)


def test_errors_and_state(executor):
    executor("y = 5")
    assert executor("y + 1").output == "6"
    with pytest.raises(AgentError, match="ZeroDivisionError"):
        executor("print('before')\n1/0")
    with pytest.raises(AgentError, match="SyntaxError"):
        executor("x = = 1")
    executor.send_variables({"z": {"a": (1, 2)}})
    assert executor("z").output == "{'a': (1, 2)}"


def test_a_branch_forks_the_interpreter(executor):
    executor("state = ['warm']")
    branch = executor.sandbox.branch(1)
    with branch.children[0] as child:
        other = ForkdExecutor(sandbox=child)
        assert other("state").output == "['warm']"
        other("state.append('other')")
    assert executor("state").output == "['warm']"
    executor._client.snapshot(branch.tag).delete(force=True)
