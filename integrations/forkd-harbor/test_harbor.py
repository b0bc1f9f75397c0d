"""A trial of the real Harbor with its oracle agent, each in a fork."""
import logging

import pytest

pytest.importorskip("harbor")

from harbor.models.task.config import EnvironmentConfig
from harbor.models.trial.config import AgentConfig, EnvironmentConfig as TrialEnvironment, TaskConfig, TrialConfig
from harbor.models.trial.paths import TrialPaths
from harbor.trial.trial import Trial

import forkd
from forkd_harbor import ForkdEnvironment

TASK = """version = "1.0"
[verifier]
timeout_sec = 120.0
[agent]
timeout_sec = 120.0
[environment]
"""


@pytest.fixture
def task(tmp_path):
    """A task: write 42 to a file."""
    root = tmp_path / "task"
    for name, text in {"task.toml": TASK, "instruction.md": "Write 42 to /app/answer.",
                       "environment/Dockerfile": "FROM debian:12\n",
                       "solution/solve.sh": "#!/bin/bash\npython3 -c 'print(6*7)' > /app/answer\n",
                       "tests/test.sh": "#!/bin/bash\ngrep -qx 42 /app/answer && r=1 || r=0\n"
                                        "echo $r > /logs/verifier/reward.txt\n"}.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return root


async def test_a_trial_of_the_oracle_passes(task, tmp_path, snapshot):
    config = TrialConfig(task=TaskConfig(path=task), trials_dir=tmp_path / "trials", agent=AgentConfig(name="oracle"),
                         environment=TrialEnvironment(import_path="forkd_harbor:ForkdEnvironment",
                                                      kwargs={"snapshot": snapshot, "ttl": 600}))
    trial = await Trial.create(config)
    result = await trial.run()
    assert result.exception_info is None, result.exception_info
    assert result.verifier_result.rewards == {"reward": 1}


async def test_files_and_programs(tmp_path, snapshot):
    paths = TrialPaths(tmp_path / "trial")
    async with forkd.AsyncForkd() as client:
        env = ForkdEnvironment(tmp_path, "t", "s", paths, EnvironmentConfig(), logging.getLogger(), snapshot=snapshot,
                               ttl=600, client=client)
        await env.start(False)
        try:
            source = tmp_path / "src"
            (source / "sub").mkdir(parents=True)
            (source / "sub" / "ü.sh").write_text("echo hi")
            (source / "sub" / "ü.sh").chmod(0o750)
            await env.upload_dir(source, "/data/x")
            assert (await env.exec("stat -c %a sub/ü.sh && id -un", cwd="/data/x")).stdout == "750\nroot\n"
            assert (await env.exec("id -un", user="user")).stdout == "user\n"
            assert (await env.exec("id -un", user=1000)).stdout == "user\n"
            await env.upload_file(source / "sub" / "ü.sh", "/new/dir/f")
            await env.download_file("/new/dir/f", tmp_path / "f")
            assert (tmp_path / "f").read_text() == "echo hi"
            await env.download_dir("/data/x", tmp_path / "back")
            await env.download_dir("/data/x", tmp_path / "back")
            assert (tmp_path / "back" / "sub" / "ü.sh").read_text() == "echo hi"
            with pytest.raises(FileNotFoundError):
                await env.download_file("/missing", tmp_path / "g")
            assert await env.is_dir("/data") and not await env.is_dir("/missing")
            with pytest.raises(TimeoutError):
                await env.exec("sleep 60", timeout_sec=1)
        finally:
            await env.stop(delete=True)
