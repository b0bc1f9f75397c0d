"""Builds templates with E2B's own package, sync and async: each public method, good and bad."""

import asyncio
import json
import os
import uuid
from dataclasses import replace

from common import fails, leave
from e2b import AsyncTemplate, Sandbox, Template, wait_for_file
from e2b.exceptions import BuildException, TemplateException

DIR = os.environ["E2B_TEST_DIR"]
BASE = os.environ["E2B_TEST_TEMPLATE"]
NAME = "py-" + uuid.uuid4().hex[:8]


def context():
    """A folder with files to copy."""
    at = os.path.join(DIR, "context")
    os.makedirs(os.path.join(at, "src", "sub"), exist_ok=True)
    for name, text in {"one.txt": "one", "src/a.py": "print('a')", "src/sub/b.py": "b", "src/no.log": "x"}.items():
        with open(os.path.join(at, name), "w") as f:
            f.write(text)
    if not os.path.islink(os.path.join(at, "src", "link")):
        os.symlink("a.py", os.path.join(at, "src", "link"))
    return at


def read(path):
    with open(path) as f:
        return f.read()


def template(out, skip=False):
    t = Template(file_context_path=context(), file_ignore_patterns=["*.log", "**/*.log"])
    if skip:
        t = t.skip_cache()
    return (
        t.from_template(BASE)
        .set_user("root")
        .set_workdir(out + "/work")
        .set_envs({"GREETING": "hello", "TWICE": "$GREETING $GREETING"})
        .copy("one.txt", "one-copied.txt")
        .copy("src", out + "/tree", mode=0o755)
        .copy("src/*.py", out + "/glob/", user="root")
        .run_cmd(f"echo ran >>{out}/count; echo $TWICE; pwd")
        .run_cmd(["true", f"cat one-copied.txt >{out}/was"])
        .make_dir(out + "/made/deep", mode=0o700)
        .make_symlink(out + "/was", out + "/made/link")
        .rename(out + "/made/link", out + "/made/renamed")
        .remove(out + "/glob/a.py")
        .set_start_cmd(f"echo $GREETING >{out}/started; exec sleep 1000", wait_for_file(out + "/started"))
    )


def main():
    out = os.path.join(DIR, "out")
    os.makedirs(out)
    assert not Template.exists(NAME)
    said = []
    info = Template.build(template(out), NAME, on_build_logs=lambda e: said.append(e.message))
    log = "\n".join(said)
    assert info.name == NAME and info.template_id and uuid.UUID(info.build_id), info
    assert "[stdout]: hello hello" in log and "[stdout]: " + out + "/work" in log, log
    assert "Uploaded 'one.txt'" in log and "Template is ready" in log, log
    assert read(out + "/work/one-copied.txt") == "one" and read(out + "/was") == "one"
    assert read(out + "/tree/sub/b.py") == "b" and os.readlink(out + "/tree/link") == "a.py"
    assert os.stat(out + "/tree/a.py").st_mode & 0o777 == 0o755
    assert not os.path.exists(out + "/tree/no.log") and not os.path.exists(out + "/glob/a.py")
    assert os.readlink(out + "/made/renamed") == out + "/was" and read(out + "/started") == "hello\n"
    assert Template.exists(NAME) and Template.alias_exists(NAME)

    # the same again is all in the cache; without it, steps run again
    said.clear()
    again = Template.build(template(out), NAME, tags=["v1.0", "stable"], on_build_logs=lambda e: said.append(e.message))
    assert again.template_id == info.template_id and again.build_id != info.build_id
    log = "\n".join(said)
    assert "Skipping upload of 'one.txt', already cached" in log and "CACHED" in log, log
    assert read(out + "/count") == "ran\n"
    Template.build(template(out), NAME, skip_cache=True)
    assert read(out + "/count") == "ran\nran\n"

    # sandboxes of it
    with Sandbox.create(NAME) as s:
        r = s.commands.run("echo $GREETING; pwd; id -un")
        assert r.stdout == f"hello\n{out}/work\nroot\n", r.stdout
    with Sandbox.create(NAME + ":v1.0", envs={"GREETING": "mine"}) as s:
        assert s.commands.run("echo $GREETING").stdout == "mine\n"

    # tags
    given = Template.assign_tags(NAME + ":v1.0", ["prod", "v1.0.1"])
    assert given.build_id == again.build_id and sorted(given.tags) == ["prod", "v1.0.1"], given
    Template.assign_tags(NAME + ":prod", "canary")
    assert sorted(t.tag for t in Template.get_tags(NAME)) == ["canary", "default", "prod", "stable", "v1.0", "v1.0.1"]
    Template.remove_tags(NAME, ["canary", "prod"])
    assert "prod" not in [t.tag for t in Template.get_tags(info.template_id)]
    assert Template.exists(NAME + ":stable") and not Template.exists(NAME + ":prod")
    fails(TemplateException, Template.remove_tags, NAME, "default", says="Cannot delete the 'default' tag")
    fails(TemplateException, Template.assign_tags, NAME + ":v1.0", "a b", says="Invalid tag")
    fails(TemplateException, Template.assign_tags, "nope-" + NAME + ":v1", "a", says="404")
    fails(TemplateException, Template.get_tags, "nope-" + NAME, says="404")

    # what fails says what and where
    never = "bad-" + NAME
    bad = Template().from_template(BASE).run_cmd("true").run_cmd("echo to the log; echo why >&2; exit 7", user="root")
    said.clear()
    fails(BuildException, Template.build, bad, never, on_build_logs=lambda e: said.append(e.message),
          says="exit status 7\nwhy")
    assert any("[stdout]: to the log" in m for m in said), said
    assert not Template.exists(never) and not Template.alias_exists(never)
    for t, says in (
        (Template().from_template(BASE).run_cmd("true", user="nobody-here"), "invalid username: 'nobody-here'"),
        (Template().from_template(BASE).set_workdir("/proc/nowhere"), "failed to create workdir"),
        (Template().from_template(BASE).set_start_cmd("exit 3", "false"), "exit status 3"),
        (Template().from_template("nope-" + NAME), "not found"),
        (Template().from_template(BASE).bun_install("none"), "exit status"),  # E2B's own base has bun
        (Template().from_python_image("3"), "would come from a registry"),
        (Template().from_node_image(), "would come from a registry"),
        (Template().from_bun_image(), "would come from a registry"),
        (Template().from_debian_image(), "would come from a registry"),
        (Template().from_ubuntu_image(), "template 'ubuntu' not found"),
        (Template().from_fedora_image(), "would come from a registry"),
        (Template().from_alpine_image(), "would come from a registry"),
        (Template().from_arch_image(), "template 'archlinux' not found"),
        (Template().from_aws_registry("1.dkr.ecr.eu-west-1.amazonaws.com/a", "id", "key", "eu-west-1"), "would come from a registry"),
        (Template().from_gcp_registry("gcr.io/a/b", {"type": "service_account"}), "would come from a registry"),
        (Template().from_image("ghcr.io/a/b", username="u", password="p"), "would come from a registry"),
        (Template().from_dockerfile("FROM python:3\nRUN true"), "would come from a registry"),
    ):
        fails(BuildException, Template.build, t, never, says=says)
    for f in (Template.build, Template.build_in_background):
        fails(BuildException, f, Template().from_template(BASE), "a b", says="Invalid template name")
    fails(Exception, Template.build, Template(file_context_path=context()).from_template(BASE).copy("none.txt", "/x"),
          never, says="none.txt")
    fails(Exception, lambda: Template(file_context_path=context()).from_template(BASE).copy("../../x", "/x"))
    bad_steps(out, never)

    # what is local to the package
    plain = Template().from_image("base").run_cmd("true")
    assert Template.to_dockerfile(plain).startswith("FROM base\nRUN true"), Template.to_dockerfile(plain)
    fails(ValueError, Template.to_dockerfile, Template().from_template(BASE))
    assert json.loads(Template.to_json(plain))["fromImage"] == "base"

    # in the background, and from the base image that is the default
    begun = Template.build_in_background(Template().from_base_image().run_cmd("sleep 0.3; echo done"), "bg-" + NAME, cpu_count=1)
    while True:
        status = Template.get_build_status(begun, logs_offset=0)
        if status.status.value not in ("waiting", "building"):
            break
    assert status.status.value == "ready" and status.build_id == begun.build_id, status
    assert any("FROM base" in e.message for e in status.log_entries), status
    assert Template.get_build_status(begun, logs_offset=10000).log_entries == []
    fails(BuildException, Template.get_build_status, replace(begun, build_id=str(uuid.uuid4())), says="404")
    asyncio.run(main_async())
    print("ok")


def bad_steps(out, never):
    on = lambda: Template(file_context_path=context()).from_template(BASE)
    for t, says in (
        (on().set_envs({"A=": "b"}), "no name"),
        (on().make_dir("/proc/nowhere"), "exit status"),
        (on().make_symlink("/x", "/proc/nowhere/x"), "exit status"),
        (on().rename(out + "/none", out + "/other"), "exit status"),
        (on().remove("/proc/version"), "exit status"),
        (on().git_clone(out + "/none", out + "/never"), "exit status"),
    ):
        fails(BuildException, Template.build, t, never, says=says)
    fails(Exception, Template.build, on().copy_items([{"src": "none.txt", "dest": "/x"}]), never, says="none.txt")
    # These want a base of E2B's that is not here, and the package says so.
    fails(BuildException, lambda: on().add_mcp_server("x"), says="mcp-gateway")
    fails(BuildException, lambda: on().beta_dev_container_prebuild("/x"), says="devcontainer")
    fails(BuildException, lambda: on().beta_set_dev_container_start("/x"), says="devcontainer")
    # A step that can succeed but once is found in the cache, and fails where that is not looked at.
    once = f"test ! -e {out}/once && touch {out}/once"
    for _ in range(2):
        Template.build(on().run_cmd(once, user="root"), "once-" + NAME)
    fails(BuildException, Template.build, on().skip_cache().run_cmd(once, user="root"), "once-" + NAME, says="exit status 1")
    # A server that has neither the image nor a snapshot of it.
    fails(BuildException, Template.build, Template().from_base_image().run_cmd("true"), never,
          api_url=os.environ["E2B_TEST_BARE"], says="template 'base' not found")
    Template.build(on().set_user("root").copy_items([{"src": "one.txt", "dest": out + "/items/"}])
                   .set_ready_cmd(wait_for_file(out + "/items/one.txt")), "items-" + NAME)
    assert read(out + "/items/one.txt") == "one"


async def main_async():
    out = os.path.join(DIR, "out-async")
    os.makedirs(out)
    t = (AsyncTemplate(file_context_path=context()).from_template(NAME).copy("one.txt", out + "/")
         .run_cmd(f"echo $GREETING >{out}/inherited"))
    said = []
    info = await AsyncTemplate.build(t, "async-" + NAME, on_build_logs=lambda e: said.append(e.message))
    assert read(out + "/one.txt") == "one" and read(out + "/inherited") == "hello\n", said
    assert await AsyncTemplate.exists("async-" + NAME)
    await AsyncTemplate.assign_tags("async-" + NAME, "x")
    assert len(await AsyncTemplate.get_tags(info.template_id)) == 2
    await AsyncTemplate.remove_tags("async-" + NAME, "x")
    begun = await AsyncTemplate.build_in_background(t, "async-" + NAME)
    while (await AsyncTemplate.get_build_status(begun)).status.value in ("waiting", "building"):
        await asyncio.sleep(0.02)
    try:
        await AsyncTemplate.build(AsyncTemplate().from_template(NAME).run_cmd("exit 9"), "bad-" + NAME)
        raise AssertionError("it did not fail")
    except BuildException as e:
        assert "exit status 9" in str(e), e


main()
leave()
