"""Builds a template over VMs with E2B's package and uses it; template.py has every method, over agents on this host.

Its name is new with each run, so that the first build finds nothing in the cache.
"""
import os
import tempfile
import time
import urllib.request

from common import fails, leave
from e2b import Sandbox, Template
from e2b.exceptions import BuildException

BASE = os.environ["E2B_TEST_TEMPLATE"]
NAME = f"vm-{time.time_ns():x}"


def template(context):
    return (
        Template(file_context_path=context)
        .from_template(BASE)
        .set_envs({"GREETING": "hello " + NAME})
        .set_workdir("/srv/app")
        .copy("site", "site")
        .run_cmd("echo $GREETING from $(id -un) >site/made; echo it is made")
        .set_user("worker")
        .set_start_cmd("id -un >/tmp/started-by; exec python3 -m http.server 8000 -d site",
                       "curl -sf http://127.0.0.1:8000/made")
    )


def build(context, **how):
    said = []
    began = time.time()
    info = Template.build(template(context), NAME, on_build_logs=lambda e: said.append(e.message), **how)
    return info, time.time() - began, "\n".join(said)


def page(s, path):
    asked = urllib.request.Request(os.environ["E2B_API_URL"] + path, headers={"Host": s.get_host(8000)})
    return urllib.request.urlopen(asked).read()


def main():
    with tempfile.TemporaryDirectory() as context:
        os.mkdir(context + "/site")
        with open(context + "/site/index.html", "w") as f:
            f.write("<h1>uploaded</h1>")
        info, first, log = build(context)
        assert "[stdout]: it is made" in log and "Template is ready" in log and "CACHED" not in log, log
        again, second, log = build(context, tags=["v1"])
        assert again.template_id == info.template_id and again.build_id != info.build_id, again
        assert "CACHED" in log and "[stdout]: it is made" not in log, log
        assert second < first / 4, (first, second)
    assert sorted(t.tag for t in Template.get_tags(NAME)) == ["default", "v1"]

    began = time.time()
    with Sandbox.create(NAME + ":v1", timeout=300, envs={"MORE": "1"}) as s:
        created = time.time() - began
        r = s.commands.run("echo $GREETING, $MORE; pwd; id -un; cat site/made")
        assert r.stdout == f"hello {NAME}, 1\n/srv/app\nworker\nhello {NAME} from user\n", r.stdout
        assert s.files.read("/srv/app/site/index.html") == "<h1>uploaded</h1>"
        # The server runs from the sandbox's first moment on.
        assert page(s, "/") == b"<h1>uploaded</h1>" and page(s, "/made").startswith(b"hello ")
        assert s.files.read("/tmp/started-by") == "worker\n"

    said = []
    bad = Template().from_template(NAME).run_cmd("echo to the log of $GREETING; echo why >&2; exit 7")
    e = fails(BuildException, Template.build, bad, "bad-" + NAME, on_build_logs=lambda e: said.append(e.message),
              says="exit status 7\nwhy")
    assert "[builder 1/1]" in "\n".join(said) and any(f"[stdout]: to the log of hello {NAME}" in m for m in said), said
    assert not Template.exists("bad-" + NAME)
    assert Sandbox.delete_snapshot(info.template_id) is True and not Template.exists(NAME)
    print(f"ok   built in {first:.2f} s, again in {second:.2f} s, a sandbox of it in {created:.2f} s")
    print("a step that fails:", e)


main()
leave()
