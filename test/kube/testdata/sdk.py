"""A user's program with agent-sandbox's client: api_url token namespace."""
import sys
import time

from k8s_agent_sandbox import SandboxClient
from k8s_agent_sandbox.exceptions import SandboxClaimFailedError, SandboxRequestError, SandboxWarmPoolNotFoundError
from k8s_agent_sandbox.models import SandboxDirectConnectionConfig

url, token, namespace = sys.argv[1:]
config = SandboxDirectConnectionConfig(api_url=url, extra_headers={"Authorization": f"Bearer {token}"})
client = SandboxClient(connection_config=config)

times = []
for _ in range(10):
    began = time.monotonic()
    sandbox = client.create_sandbox(warmpool="pool", namespace=namespace, pod_labels={"app": "sdk"})
    times.append(time.monotonic() - began)
    sandbox.terminate()
print(f"create p50 {sorted(times)[5] * 1000:.0f} ms")

sandbox = client.create_sandbox(warmpool="pool", namespace=namespace, env={"WHO": "sdk"}, claim_name="mine",
                                shutdown_after_seconds=600)
result = sandbox.commands.run("echo hello")
assert (result.stdout, result.exit_code) == ("hello\n", 0), result
result = sandbox.commands.run("exit 3", command_timeout=5)
assert result.exit_code == 3 and not result.timed_out, result
assert "WHO=sdk" in sandbox.commands.run("env").stdout

sandbox.files.write("dir/a.txt", b"one\n")
with open(__file__, "rb") as stream:
    sandbox.files.write("b.py", stream)
assert sandbox.files.read("dir/a.txt") == b"one\n"
assert sandbox.files.read("b.py") == open(__file__, "rb").read()
assert {e.name: e.type for e in sandbox.files.list(".")} == {"dir": "directory", "b.py": "file"}, sandbox.files.list(".")
assert sandbox.files.exists("dir/a.txt") and sandbox.files.exists("dir") and not sandbox.files.exists("c")
try:
    sandbox.files.read("c")
    raise AssertionError("a missing file was read")
except SandboxRequestError as error:
    assert error.status_code == 404, error

assert client.list_all_sandboxes(namespace=namespace) == ["mine"]
assert client.get_sandbox("mine", namespace=namespace).sandbox_id == sandbox.sandbox_id

# Suspend and resume: the client has them for GKE's snapshots only, so the program patches the object, as that does.
def mode(value):
    client.k8s_helper.custom_objects_api.patch_namespaced_custom_object(
        group="agents.x-k8s.io", version="v1beta1", plural="sandboxes", namespace=namespace, name=sandbox.sandbox_id,
        body={"spec": {"operatingMode": value}})


def wait(condition, reason):
    for _ in range(200):
        status = (client.k8s_helper.get_sandbox(sandbox.sandbox_id, namespace) or {}).get("status", {})
        if any(c["type"] == condition and c["status"] == "True" and c["reason"] == reason for c in status["conditions"]):
            return
        time.sleep(0.05)
    raise AssertionError(status)


mode("Suspended")
wait("Suspended", "PodTerminated")
mode("Running")
wait("Ready", "DependenciesReady")
assert sandbox.files.read("dir/a.txt") == b"one\n"
assert "WHO=sdk" in sandbox.commands.run("env").stdout

for warmpool, expected in {"missing": SandboxWarmPoolNotFoundError, "volumes": SandboxClaimFailedError}.items():
    try:
        client.create_sandbox(warmpool=warmpool, namespace=namespace)
        raise AssertionError(f"{warmpool} made a sandbox")
    except expected as error:
        print(f"{warmpool}: {error}")

sandbox.terminate()
print("done")
