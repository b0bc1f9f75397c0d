"""Builds templates from a registry's images with E2B's package. The registry has open/tools, and private/tools for one
user. Over agents on this host a template's programs are the host's; over VMs they are the image's."""
import os
import tempfile
import time

from common import fails, leave
from e2b import Sandbox, Template
from e2b.exceptions import BuildException

HOST = os.environ["E2B_TEST_REGISTRY"]
ECR = os.environ.get("E2B_TEST_ECR")  # a registry of Amazon with amazon/tools, if AWS has a stand-in
VM = "E2B_TEST_VM" in os.environ
NAME = f"reg-{time.time_ns():x}"
OUT = os.environ["E2B_TEST_DIR"] if not VM else "/srv"


def build(template, name, **how):
    said = []
    began = time.time()
    Template.build(template, name, on_build_logs=lambda e: said.append(e.message), **how)
    print(f"ok   {name} {time.time() - began:.2f} s", flush=True)
    return "\n".join(said)


def sandbox(name, check):
    s = Sandbox.create(name, timeout=300)
    try:
        check(s)
    finally:
        s.kill()


def image():
    """An image without a step. Programs run as E2B's user, with the variables of the image."""
    log = build(Template().from_image(f"{HOST}/open/tools:1"), NAME, cpu_count=1, memory_mb=256)
    assert f"FROM {HOST}/open/tools:1" in log and "[base] layers: " in log, log
    if VM:
        def check(s):
            out = s.commands.run("id -un; pwd; echo $OF_IMAGE; cat /of-image").stdout
            assert out == "user\n/home/user\nby the image\nmade for the test\n", out
            s.files.write("mine", "x")
            assert s.commands.run("stat -c %U:%G mine").stdout == "user:user\n"
        sandbox(NAME, check)
    again = build(Template().from_image(f"{HOST}/open/tools:1"), NAME, cpu_count=1, memory_mb=256)
    assert "[base] layers: " not in again, again  # the manifest is read again, the layers are not


DOCKERFILE = """# comment
FROM {host}/open/tools:1
ARG WHO=world
ENV GREETING="hello $WHO" OTHER=two\\ words
RUN mkdir -p {out}/made && echo "$GREETING" >{out}/made/greeting \\
    && echo $(id -un) >{out}/made/by
RUN <<EOF
echo here >{out}/made/here
EOF
COPY site {out}/site
COPY --chmod=0750 site/page {out}/site/program
COPY <<DOC {out}/made/doc
of $OTHER
DOC
ADD site/page {out}/made/
EXPOSE 80
LABEL a=b
VOLUME /x
WORKDIR {out}/made
USER root
ENTRYPOINT ["sh", "-c"]
CMD ["echo started >{out}/made/started; sleep 1000"]
"""


def dockerfile():
    """Every instruction that the package sends."""
    with tempfile.TemporaryDirectory() as context:
        os.mkdir(context + "/site")
        with open(context + "/site/page", "w") as f:
            f.write("a page\n")
        text = DOCKERFILE.format(host=HOST, out=OUT)
        build(Template(file_context_path=context).from_dockerfile(text), NAME + "-file", memory_mb=256)

    def check(s):
        got = {name: s.files.read(f"{OUT}/{name}") for name in
               ("made/greeting", "made/by", "made/here", "site/page", "site/program", "made/doc", "made/page", "made/started")}
        want = {"made/greeting": "hello world\n", "made/by": "root\n", "made/here": "here\n", "site/page": "a page\n",
                "site/program": "a page\n", "made/doc": "of two words\n", "made/page": "a page\n", "made/started": "started\n"}
        assert got == want, got
        if VM:
            out = s.commands.run(f"pwd; id -un; echo $GREETING; echo $OF_IMAGE; stat -c %a {OUT}/site/program").stdout
            assert out == f"{OUT}/made\nroot\nhello world\nby the image\n750\n", out
    sandbox(NAME + "-file", check)


def credentials():
    private = f"{HOST}/private/tools:1"
    build(Template().from_image(private, username="me", password="secret"), NAME + "-private", memory_mb=256)
    build(Template().from_gcp_registry(f"{HOST}/google/tools:1", {"type": "service_account"}), NAME + "-gcp", memory_mb=256)
    never = "never-" + NAME
    for t, says in (
        (Template().from_image(private), "access denied"),
        (Template().from_image(private, username="me", password="wrong"), "access denied"),
        (Template().from_image(f"{HOST}/open/none:1"), "not found"),
        (Template().from_image(f"{HOST}/open/arm:1"), "linux/arm64"),
        (Template().from_image(f"{HOST}/open/tools@sha256:00"), "want HOST/REPOSITORY:TAG"),
        (Template().from_aws_registry(f"{HOST}/a", "AKIAEXAMPLEEXAMPLE12", "secret", "eu-west-1"), "no registry of ECR"),
        (Template().from_aws_registry(f"{HOST}/a", "AKIAEXAMPLEEXAMPLE12", "secret", "eu-west-1.evil.example"),
         "no region of AWS"),
        (Template().from_aws_registry("public.ecr.aws/a/b:1", "AKIAEXAMPLEEXAMPLE12", "secret", "eu-west-1"),
         "from_image without a registry"),
    ):
        e = fails(BuildException, Template.build, t, never, says=says)
        assert "secret" not in str(e) and "wrong" not in str(e), e
    if VM:
        fails(BuildException, Template.build, Template().from_image(f"{HOST}/open/static:1"), never, says="/bin/sh")
    assert not Template.exists(never)


def amazon():
    """Amazon's registry. Its password is asked of AWS with the keys, for each build."""
    if not ECR:
        return
    key, denied, secret, password = (os.environ["E2B_TEST_ECR_" + n] for n in ("KEY", "DENIED", "SECRET", "PASSWORD"))
    image, never = f"{ECR}/amazon/tools:1", "never-aws-" + NAME

    def silent(text):
        assert not any(s in text for s in (key, denied, secret, password)), text
    for _ in range(2):
        silent(build(Template().from_aws_registry(image, key, secret, "eu-west-1"), NAME + "-aws", memory_mb=256))
    for t, says in (
        (Template().from_aws_registry(image, "AKIAUNKNOWNEXAMPLE12", secret, "eu-west-1"), "check awsAccessKeyId"),
        (Template().from_aws_registry(image, key, "other", "eu-west-1"), "check awsSecretAccessKey"),
        (Template().from_aws_registry(image, denied, secret, "eu-west-1"), "ecr:GetAuthorizationToken"),
        (Template().from_aws_registry(image, key, secret, "eu-west-2"), "awsRegion is eu-west-2"),
        (Template().from_aws_registry(f"{ECR}/amazon/none:1", key, secret, "eu-west-1"), "not found"),
        (Template().from_image(image), "access denied"),
    ):
        said = []
        e = fails(BuildException, Template.build, t, never, on_build_logs=lambda l: said.append(l.message), says=says)
        silent(str(e) + "".join(said))
    assert not Template.exists(never)


only = os.environ.get("E2B_TEST_ONLY", "")
for part in (image, dockerfile, credentials, amazon):
    if only in ("", part.__name__):
        part()
print("ok")
leave()
