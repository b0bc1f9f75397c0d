"""smolagents' code in the warmed interpreter of a fork.

    with ForkdExecutor(snapshot="py") as executor:
        CodeAgent(tools=[], model=model, executor=executor).run("...")

Imports that the snapshot has loaded cost nothing, and variables stay between steps.
"""
from __future__ import annotations

import re
import shlex
from typing import Any

from smolagents.local_python_executor import CodeOutput
from smolagents.monitoring import AgentLogger, LogLevel
from smolagents.remote_executors import RemotePythonExecutor
from smolagents.utils import AgentError

import forkd

__all__ = ["ForkdExecutor"]

_MARK = "forkd-final-answer:"

# Runs in the guest. A BaseException named FinalAnswerException ends the agent's run; its value is a text of
# smolagents' own format, so the host decodes it with smolagents' own decoder.
_PRELUDE = f'''
def _forkd_step(code):
    import ast
    tree = ast.parse(code)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    try:
        exec(compile(tree, "<step>", "exec"), globals())
        if last is not None:
            return eval(compile(ast.Expression(last.value), "<step>", "eval"), globals())
    except BaseException as e:
        if type(e).__name__ == "{RemotePythonExecutor.FINAL_ANSWER_EXCEPTION}":
            return _ForkdFinal(e.value)
        raise

class _ForkdFinal:
    def __init__(self, value):
        self.value = value
    def __repr__(self):
        return "{_MARK}" + self.value
'''


class ForkdExecutor(RemotePythonExecutor):
    """Runs code in one fork of ``snapshot``, or in a given sandbox.

    ``timeout`` is the limit of one step in seconds. ``options`` are those of Snapshot.fork.
    """

    def __init__(self, additional_imports: list[str] | None = None, logger: Any = None, allow_pickle: bool = False, *,
                 snapshot: str = "py", client: forkd.Forkd | None = None, sandbox: forkd.Sandbox | None = None,
                 timeout: float | None = None, **options: Any) -> None:
        super().__init__(additional_imports or [], logger or AgentLogger(level=LogLevel.ERROR), allow_pickle)
        self._timeout = timeout
        self._optional: list[str] = []
        self._own = sandbox is None
        self._client = client if client is not None or sandbox is not None else forkd.Forkd()
        self.sandbox = sandbox if sandbox is not None else self._client.snapshot(snapshot).fork(**options)
        try:
            self.sandbox.eval(_PRELUDE)
            if additional_imports:
                self.installed_packages = self.install_packages(additional_imports)
        except BaseException:
            self.cleanup()
            raise

    def run_code_raise_errors(self, code: str) -> CodeOutput:
        if code.startswith("!"):
            return self._shell(code[1:])
        for package in self._optional:  # a top-level import of a tool's code, which may fail
            code = re.sub(rf"^((?:import|from) {package}\b.*)$", r"try:\n    \1\nexcept ImportError:\n    pass", code,
                          flags=re.M)
        code = re.sub(r"^locals\(\)\.update\(", "globals().update(", code, flags=re.M)  # of send_variables
        try:
            got = self.sandbox.eval_raw(f"_forkd_step({code!r})", timeout=self._timeout)
        except forkd.GuestTimeoutError as e:
            raise AgentError(f"The code ran for more than {self._timeout:g} s: {e.message}", self.logger) from e
        logs = (got.stdout or "") + (got.stderr or "")
        if got.error:
            raise AgentError(f"{logs}\nExecuting code yielded an error:\n{got.error}", self.logger)
        result = got.result
        if result is not None and result.startswith(_MARK):
            answer = self._deserialize_final_answer(result[len(_MARK):], self.allow_pickle)
            return CodeOutput(output=answer, logs=logs, is_final_answer=True)
        return CodeOutput(output=result, logs=logs, is_final_answer=False)

    def _shell(self, command: str) -> CodeOutput:
        got = self.sandbox.exec(command, timeout=self._timeout)
        if got.exit_code != 0:
            raise AgentError(f"{command}: exit code {got.exit_code}\n{got.stdout}{got.stderr}", self.logger)
        return CodeOutput(output=None, logs=got.stdout, is_final_answer=False)

    def send_tools(self, tools: dict[str, Any]) -> None:
        """Sends the tools. smolagents' own final_answer names packages that it uses only if they are there."""
        needed = {p for name, t in tools.items() if name != "final_answer" for p in t.to_dict()["requirements"]}
        self._optional = [p for p in ("PIL", "numpy") if p not in needed]
        self.installed_packages += self._optional
        try:
            super().send_tools(tools)
        finally:
            self._optional = []

    def install_packages(self, additional_imports: list[str]) -> list[str]:
        """Installs packages with the guest's pip. It needs a network policy with an index."""
        missing = [p for p in additional_imports if not self._has(p)]
        if missing:
            self._shell("python3 -m pip install -q " + shlex.join(missing))
        return additional_imports

    def _has(self, package: str) -> bool:
        code = f"__import__('importlib.util').util.find_spec({package!r}) is not None"
        return package.isidentifier() and self.sandbox.eval(code) == "True"

    def cleanup(self) -> None:
        """Ends the sandbox, unless it was given."""
        if self._own:
            try:
                self.sandbox.kill()
            except forkd.NotFoundError:
                pass

    def __enter__(self) -> ForkdExecutor:
        return self

    def __exit__(self, *_: object) -> None:
        self.cleanup()
