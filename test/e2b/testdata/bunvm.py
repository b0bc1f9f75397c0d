"""Builds a template with bun over VMs: bunvm.py FOLDER, which has bun's program. Nothing else is fetched."""
import json
import os
import sys
import time

from common import leave
from e2b import Sandbox, Template

NAME = f"bun-{time.time_ns():x}"


def package(folder):
    os.mkdir(folder)
    with open(folder + "/package.json", "w") as f:
        json.dump({"name": "of-forkd", "version": "1.0.0", "main": "main.js"}, f)
    with open(folder + "/main.js", "w") as f:
        f.write("module.exports = 'by bun'\n")


def main(context):
    package(context + "/of-forkd")
    t = (Template(file_context_path=context).from_template(os.environ["E2B_TEST_TEMPLATE"])
         .copy("bun", "/usr/local/bin/bun", mode=0o755)
         .copy("of-forkd", "/srv/of-forkd")
         .set_workdir("/srv/app")
         .run_cmd("echo '{}' >package.json")
         .bun_install("/srv/of-forkd"))
    info = Template.build(t, NAME)
    with Sandbox.create(NAME, timeout=300) as s:
        r = s.commands.run("cd /srv/app && bun -e \"console.log(require('of-forkd'))\"")
        assert r.stdout == "by bun\n", r
        installed = json.loads(s.files.read("/srv/app/package.json"))
        assert list(installed["dependencies"]) == ["of-forkd"], installed
    assert Sandbox.delete_snapshot(info.template_id) is True
    print("ok   bun")


main(sys.argv[1])
leave()
