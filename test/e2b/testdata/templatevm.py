"""Builds a template over VMs with E2B's package and uses it; template.py has every method, over agents on this host.

Its name is new with each run, so that the first build finds nothing in the cache.
"""
import io
import os
import tarfile
import tempfile
import time
import urllib.request
import zipfile

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


def wheel(folder):
    """A package for pip, with nothing but a version."""
    with zipfile.ZipFile(folder + "/of_forkd-1-py3-none-any.whl", "w") as z:
        z.writestr("of_forkd.py", "made = 'by pip'\n")
        z.writestr("of_forkd-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: of-forkd\nVersion: 1\n")
        z.writestr("of_forkd-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        z.writestr("of_forkd-1.dist-info/RECORD", "of_forkd.py,,\nof_forkd-1.dist-info/METADATA,,\n")


def deb(folder):
    """A package for apt, with one file."""
    def tar(name, text):
        b = io.BytesIO()
        with tarfile.open(fileobj=b, mode="w:gz") as t:
            at = tarfile.TarInfo(name)
            at.size, at.mode = len(text), 0o644
            t.addfile(at, io.BytesIO(text))
        return b.getvalue()

    about = (b"Package: of-forkd\nVersion: 1\nArchitecture: all\nMaintainer: forkd <root@localhost>\n"
             b"Description: a package of a test\n")
    with open(folder + "/of-forkd.deb", "wb") as f:
        f.write(b"!<arch>\n")
        for name, b in (("debian-binary", b"2.0\n"), ("control.tar.gz", tar("./control", about)),
                        ("data.tar.gz", tar("./opt/of-forkd", b"by apt\n"))):
            f.write(f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(b):<10}`\n".encode() + b + b"\n" * (len(b) % 2))


def installs():
    """Packages of the context, and ones that are not there. Nothing is fetched: apt knows no mirror."""
    with tempfile.TemporaryDirectory() as context:
        wheel(context)
        deb(context)
        t = (Template(file_context_path=context).from_template(BASE)
             .copy(["of_forkd-1-py3-none-any.whl", "of-forkd.deb"], "/srv/")
             .run_cmd("rm -rf /etc/apt/sources.list /etc/apt/sources.list.d/*", user="root")
             .pip_install("--no-index /srv/of_forkd-1-py3-none-any.whl")
             .apt_install("/srv/of-forkd.deb", no_install_recommends=True))
        info = Template.build(t, "installs-" + NAME)
        print("ok   packages are installed", flush=True)
    with Sandbox.create("installs-" + NAME, timeout=300) as s:
        r = s.commands.run("python3 -c 'import of_forkd; print(of_forkd.made)'; cat /opt/of-forkd")
        assert r.stdout == "by pip\nby apt\n", r
    on = lambda: Template().from_template("installs-" + NAME)
    for t, says in (
        (on().pip_install("--no-index of-nobody"), "No matching distribution found for of-nobody"),
        (on().apt_install("of-nobody"), "Unable to locate package of-nobody"),
        (on().npm_install("of-nobody"), "npm"),  # which the image has not, nor bun
        (on().bun_install("of-nobody"), "bun"),
    ):
        e = fails(BuildException, Template.build, t, "bad-" + NAME, says=says)
        assert "exit status" in str(e), e
    assert not Template.exists("bad-" + NAME)
    assert Sandbox.delete_snapshot(info.template_id) is True


def main():
    installs()
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
