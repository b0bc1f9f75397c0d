"""The plugin in real runs of pytest, with and without xdist."""
import pytest

pytest_plugins = ["pytester"]

TESTS = """
import pytest

@pytest.mark.forkd(snapshot="{tag}", env={{"GIVEN": "yes"}}, ttl=300)
@pytest.mark.parametrize("n", [1, 2])
def test_alone(sandbox, n):
    assert sandbox.exec("test -e mark; echo $?; touch mark; echo $GIVEN").stdout == "1\\nyes\\n"

def test_default(sandbox):
    assert sandbox.eval("6 * 7") == "42"
"""


def run(pytester, snapshot, *args):
    pytester.makepyfile(TESTS.format(tag=snapshot))
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *args)


def test_each_test_has_its_fork(pytester, snapshot):
    run(pytester, snapshot, "--forkd-snapshot", snapshot).assert_outcomes(passed=3)


def test_workers_of_xdist(pytester, snapshot):
    pytest.importorskip("xdist")
    run(pytester, snapshot, "-n", "2", "--forkd-snapshot", snapshot).assert_outcomes(passed=3)


def test_no_snapshot_is_a_clear_error(pytester, snapshot, monkeypatch):
    monkeypatch.delenv("FORKD_SNAPSHOT", raising=False)
    result = run(pytester, snapshot, "-k", "default")
    result.stdout.fnmatch_lines(["*no snapshot is named*"])
    result.assert_outcomes(errors=1)


def test_keep_leaves_the_sandbox_of_a_failure(pytester, snapshot, client):
    pytester.makepyfile(f"""
import pytest
@pytest.mark.forkd(snapshot="{snapshot}", ttl=60)
def test_bad(sandbox):
    open("id", "w").write(sandbox.id)
    assert 0
""")
    pytester.runpytest_subprocess("--forkd-keep").assert_outcomes(failed=1)
    kept = client.sandbox((pytester.path / "id").read_text())
    assert kept.info().status == "running"
    kept.kill()
