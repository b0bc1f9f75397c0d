"""The tools, called through the frameworks' own tool classes."""
import pytest

from forkd_tools import ForkdTools


@pytest.fixture
def tools(fork):
    return ForkdTools(fork, timeout=60)


def test_functions(tools, client):
    assert tools.run_command("echo out; echo bad >&2; exit 3") == "out\nbad\n\n[exit code 3]"
    assert tools.run_python("x = 6\nprint('p')\nx * 7") == "p\n42"
    assert "ZeroDivisionError" in tools.run_python("1/0")
    assert tools.write_file("d/ü", "ä") == "wrote 2 bytes to d/ü" and tools.read_file("d/ü") == "ä"
    assert tools.read_file("/missing").startswith("error: ") and tools.read_file("/etc/shadow").startswith("error: ")
    state = tools.save_state()
    try:
        tools.run_python("x = 0")
        tools.write_file("d/ü", "other")
        assert tools.restore_state(state) == f"the sandbox is in the state {state}"
        assert tools.run_python("x") == "6" and tools.read_file("d/ü") == "ä"
        assert tools.restore_state("no-such-state").startswith("error: ")
    finally:
        client.snapshot(state).delete(force=True)
    assert len(tools.run_command("head -c 100000 /dev/zero | tr '\\0' z")) < 31_000


def test_crewai(tools):
    pytest.importorskip("crewai")
    found = {t.name: t for t in tools.crewai()}
    assert "[exit code 0]" in found["run_command"].run(command="true")
    assert set(found["write_file"].args_schema.model_json_schema()["properties"]) == {"path", "content"}


async def test_autogen(tools):
    core = pytest.importorskip("autogen_core")
    found = {t.name: t for t in tools.autogen()}
    got = await found["run_python"].run_json({"code": "6*7"}, core.CancellationToken())
    assert found["run_python"].return_value_as_string(got) == "42"
    assert found["write_file"].schema["parameters"]["required"] == ["path", "content"]


async def test_llama_index(tools):
    pytest.importorskip("llama_index.core")
    found = {t.metadata.name: t for t in tools.llama_index()}
    assert str(found["run_python"].call(code="6*7")) == "42"
    assert str(await found["run_python"].acall(code="6*7")) == "42"
    assert found["write_file"].metadata.get_parameters_dict()["required"] == ["path", "content"]


async def test_agent_framework(tools):
    pytest.importorskip("agent_framework")
    found = {t.name: t for t in tools.agent_framework()}
    got = await found["run_python"].invoke(arguments={"code": "6*7"})
    assert "42" in str(got[0].text if isinstance(got, list) else got)


async def test_claude(tools):
    pytest.importorskip("claude_agent_sdk")
    found = {t.name: t for t in tools.claude_tools()}
    got = await found["run_python"].handler({"code": "6*7"})
    assert got == {"content": [{"type": "text", "text": "42"}]}
    assert tools.claude()["type"] == "sdk"


def test_swarm(tools):
    swarm = pytest.importorskip("swarm")
    chat = pytest.importorskip("openai.types.chat")

    class Model:
        """Answers with one call of a tool, and then with its result."""

        def __init__(self):
            self.chat = self.completions = self

        def create(self, messages, tools, **_):
            assert "run_python" in [t["function"]["name"] for t in tools]
            if messages[-1]["role"] == "tool":
                message = {"role": "assistant", "content": "It is " + messages[-1]["content"]}
            else:
                call = {"id": "1", "type": "function", "function": {"name": "run_python", "arguments": '{"code": "6*7"}'}}
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return chat.ChatCompletion.model_validate(
                {"id": "1", "created": 0, "model": "m", "object": "chat.completion", "choices": [choice]})

    agent = swarm.Agent(name="a", functions=tools.swarm())
    answer = swarm.Swarm(client=Model()).run(agent, [{"role": "user", "content": "What is 6 * 7?"}])
    assert answer.messages[-1]["content"] == "It is 42"
