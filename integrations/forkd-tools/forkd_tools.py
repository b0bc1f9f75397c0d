"""Tools for frameworks that define no sandbox: exec, eval, read, write, branch and rollback in one fork.

    tools = ForkdTools(sandbox)
    Agent(tools=tools.crewai())        CrewAI
    AssistantAgent(tools=tools.autogen())
    FunctionAgent(tools=tools.llama_index())
    ClaudeAgentOptions(mcp_servers={"forkd": tools.claude()})
    Agent(tools=tools.agent_framework())
    Agent(functions=tools.swarm())     OpenAI's Swarm

Errors of programs and files are answers for the model. Errors of the daemon raise.
"""
from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable
from typing import Any

import forkd
from forkd.frameworks import os_error, run

__all__ = ["ForkdTools"]

#: Characters of an answer at most; more would fill the model's context.
MAX_ANSWER = 30_000


class ForkdTools:
    """The tools of one sandbox, which the caller ends. ``timeout`` limits commands and code, in seconds."""

    def __init__(self, sandbox: forkd.Sandbox, *, timeout: float = 300) -> None:
        self.sandbox = sandbox
        self._timeout = timeout

    # The tools. Their names, docstrings and annotations are what the model sees.

    def run_command(self, command: str) -> str:
        """Run a shell command in the sandbox. Returns its output and its exit code."""
        got = run(self.sandbox, ["sh", "-c", "exec 2>&1\n" + command], timeout=self._timeout)
        end = f"exit code {got.exit_code}" + (f", killed after {self._timeout:g} s" if got.timed_out else "")
        return f"{_cut(got.stdout + got.stderr)}\n[{end}]"

    def run_python(self, code: str) -> str:
        """Run Python code in the sandbox's warm interpreter. Variables stay. Returns output and the last value."""
        try:
            got = self.sandbox.eval_raw(code, timeout=self._timeout)
        except forkd.GuestTimeoutError as e:
            return f"error: {e.message}"
        return _cut((got.stdout or "") + (got.stderr or "") + (got.error or got.result or ""))

    def read_file(self, path: str) -> str:
        """Read a text file of the sandbox."""
        return self._file(path, lambda: _cut(self.sandbox.files.read(path).decode("utf-8", "replace")))

    def write_file(self, path: str, content: str) -> str:
        """Write a text file in the sandbox. Directories above it are made."""
        def write() -> str:
            self.sandbox.files.write(path, content)
            return f"wrote {len(content.encode())} bytes to {path}"
        return self._file(path, write)

    def save_state(self) -> str:
        """Save the sandbox with its files and processes. Returns the name to restore it by."""
        return self.sandbox.branch(0).tag

    def restore_state(self, name: str) -> str:
        """Put the sandbox back to a saved state. Everything after it is lost."""
        try:
            self.sandbox.rollback(name)
        except (forkd.NotFoundError, forkd.ConflictError, forkd.InvalidRequestError) as e:
            return f"error: {e.message}"
        return f"the sandbox is in the state {name}"

    def _file(self, path: str, do: Callable[[], str]) -> str:
        try:
            return do()
        except forkd.ForkdError as e:
            if os_error(e, path) is None:
                raise
            return f"error: {e.message}"

    @property
    def functions(self) -> list[Callable[..., str]]:
        """The tools as functions."""
        return [self.run_command, self.run_python, self.read_file, self.write_file, self.save_state,
                self.restore_state]

    # Forms of the frameworks.

    def crewai(self) -> list[Any]:
        """Returns tools of CrewAI."""
        from crewai.tools import tool
        return [tool(f.__name__)(_function(f)) for f in self.functions]

    def autogen(self) -> list[Any]:
        """Returns tools of AutoGen."""
        from autogen_core.tools import FunctionTool
        return [FunctionTool(_async(f), description=_doc(f), name=f.__name__) for f in self.functions]

    def llama_index(self) -> list[Any]:
        """Returns tools of LlamaIndex."""
        from llama_index.core.tools import FunctionTool
        return [FunctionTool.from_defaults(fn=_function(f), async_fn=_async(f)) for f in self.functions]

    def agent_framework(self) -> list[Any]:
        """Returns tools of Microsoft's Agent Framework."""
        from agent_framework import tool
        return [tool(_async(f), name=f.__name__, description=_doc(f)) for f in self.functions]

    def swarm(self) -> list[Any]:
        """Returns functions of OpenAI's Swarm."""
        return [_function(f) for f in self.functions]

    def claude_tools(self) -> list[Any]:
        """Returns tools of the Claude Agent SDK, for a server of one's own."""
        from claude_agent_sdk import tool
        return [tool(f.__name__, _doc(f), {n: str for n in inspect.signature(f).parameters})(_answering(f))
                for f in self.functions]

    def claude(self, name: str = "forkd") -> Any:
        """Returns an MCP server for ClaudeAgentOptions.mcp_servers. Its tools are called mcp__NAME__run_command."""
        from claude_agent_sdk import create_sdk_mcp_server
        return create_sdk_mcp_server(name=name, tools=self.claude_tools())


def _function(f: Callable[..., str]) -> Callable[..., str]:
    """Returns a method as a plain function, with its annotations as types."""
    @functools.wraps(f)
    def call(*args: Any, **kwargs: Any) -> str:
        return f(*args, **kwargs)
    return _typed(call, f)


def _async(f: Callable[..., str]) -> Callable[..., Any]:
    """Returns a method as a coroutine function that does not block the event loop."""
    @functools.wraps(f)
    async def call(*args: Any, **kwargs: Any) -> str:
        return await asyncio.to_thread(f, *args, **kwargs)
    return _typed(call, f)


def _typed(call: Any, f: Callable[..., str]) -> Any:
    parameters = [p.replace(annotation=str) for p in inspect.signature(f).parameters.values()]
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)
    call.__annotations__ = {**{p.name: str for p in parameters}, "return": str}
    return call


def _answering(f: Callable[..., str]) -> Callable[..., Any]:
    async def call(args: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": await asyncio.to_thread(f, **args)}]}
    return call


def _doc(f: Callable[..., str]) -> str:
    return inspect.getdoc(f) or ""


def _cut(text: str) -> str:
    if len(text) <= MAX_ANSWER:
        return text
    half = MAX_ANSWER // 2
    return f"{text[:half]}\n[{len(text) - MAX_ANSWER} characters are left out]\n{text[-half:]}"
