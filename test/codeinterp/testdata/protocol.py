"""Speaks with a code interpreter as E2B's SDKs do, and says what is not as it should be.

  protocol.py PORT RUN-FOLDER HOOK
"""
import http.client
import json
import os
import re
import subprocess
import sys
import threading
import time
import traceback

PORT, RUN, HOOK = int(sys.argv[1]), sys.argv[2], sys.argv[3]


def call(method, path, body=None):
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=120)
    c.request(method, path, None if body is None else json.dumps(body), {"Content-Type": "application/json"})
    r = c.getresponse()
    text = r.read().decode()
    return r.status, text, r


class Execution:
    def __init__(self, events):
        self.events = events
        kinds = [e["type"] for e in events]
        assert kinds[-1] == "end_of_execution" and kinds.count("end_of_execution") == 1, kinds
        self.results = self.of("result")
        self.stdout = "".join(e["text"] for e in self.of("stdout"))
        self.stderr = "".join(e["text"] for e in self.of("stderr"))
        self.errors = self.of("error")
        self.error = self.errors[0] if self.errors else None
        self.main = next((r for r in self.results if r["is_main_result"]), None)
        self.text = self.main and self.main["text"]

    def of(self, kind):
        return [e for e in self.events if e["type"] == kind]


def execute(code, **fields):
    body = {"code": code, "context_id": None, "language": None, "env_vars": None, **fields}
    status, text, _ = call("POST", "/execute", body)
    assert status == 200, (status, text)
    assert text.isascii() and text.endswith("\n") and "\n\n" not in text, text
    e = Execution([json.loads(line, parse_constant=lambda c: 1 / 0) for line in text.splitlines()])
    return e


def equal(got, want):
    assert got == want, "got %r, want %r" % (got, want)


def health():
    status, text, r = call("GET", "/health")
    equal((status, json.loads(text)), (200, "OK"))
    equal(r.headers["Access-Control-Allow-Origin"], "*")


def state():
    execute("x = 20")
    e = execute("x + 1")
    equal(e.text, "21")
    first = e.of("number_of_executions")[0]["execution_count"]
    equal(execute("x").of("number_of_executions")[0]["execution_count"], first + 1)
    equal(execute("'quoted'").text, "quoted")
    equal(execute("    a = 1\n    a + 1").text, "2")


def number(e):
    return e.of("number_of_executions")[0]["execution_count"]


def first():
    """After a warm-up the next execution is the first, and what it was is not to be seen, but for its names."""
    execute("kept = 6 * 7\nkept")
    execute("kept", forkd_forget=True)
    e = execute("[kept, In[1:-1], dict(Out), _, [n for n in globals() if n[1:].isdigit() or n[:2] == '_i' and n != '_ih']]")
    equal(number(e), 1)
    equal(e.error, None)
    equal(e.text, "[42, [], {}, '', ['_i', '_ii', '_iii', '_i1']]")
    e = execute("Out[1][0], _[0]")
    equal((number(e), e.error, e.text), (2, None, "(42, 42)"))
    execute("1", language="javascript", forkd_forget=True)
    equal(number(execute("2", language="javascript")), 1)
    equal(number(execute("2", language="javascript")), 2)


def output():
    e = execute("import sys\nprint('hällo')\nprint('oops', file=sys.stderr)")
    equal((e.stdout, e.stderr, e.results), ("hällo\n", "oops\n", []))
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z$", e.of("stdout")[0]["timestamp"])


def failures():
    e = execute("1/0")
    equal((e.error["name"], e.error["value"], len(e.errors)), ("ZeroDivisionError", "division by zero", 1))
    assert "\x1b" not in e.error["traceback"] and "1/0" in e.error["traceback"], e.error
    equal(execute("def f(:").error["name"], "SyntaxError")
    equal(execute("1+1").text, "2")


def formats():
    code = "from IPython.display import *\n"
    for kind, field in (("HTML('<b>x</b>')", "html"), ("Markdown('# x')", "markdown"), ("SVG('<svg/>')", "svg"),
                        ("Latex('$x$')", "latex"), ("Javascript('1')", "javascript")):
        r = execute(code + "display(%s)" % kind).results[0]
        assert r[field] and not r["is_main_result"], (kind, r)
    r = execute(code + "display({'a/b': 'c', 'text/plain': 'd'}, raw=True)").results[0]
    equal((r["extra"], r["text"]), ({"a/b": "c"}, "d"))
    equal(execute("{'a': [1, float('nan'), None], 2: {3}}").main["json"], {"a": [1, None, None], "2": [3]})
    equal(execute("[1, 'x', object]").main["json"], [1, "x", "<class 'object'>"])
    execute("l = []; l.append(l); l")
    equal(execute("None").results, [])


def frames():
    r = execute("import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': [0.5, float('nan')], "
                "'t': pd.to_datetime(['2026-01-02', None])})").main
    equal(r["data"], {"a": [1, 2], "b": [0.5, None], "t": ["2026-01-02T00:00:00", None]})
    assert "<table" in r["html"] and r["text"], r


def charts():
    e = execute("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3], [2, 4, float('nan')], label='l')\n"
                "plt.title('T')\nplt.xlabel('Time (s)')\nplt.show()")
    r = e.results[0]
    assert r["png"].startswith("iVBOR") and "\n" not in r["png"] and r["extra"] == {}, r["extra"]
    c = r["chart"]
    equal((c["type"], c["title"], c["x_label"], c["x_unit"], c["elements"][0]["label"]), ("line", "T", "Time (s)", "s", "l"))
    equal(c["elements"][0]["points"][1], [2.0, 4.0])
    c = execute("plt.bar(['a', 'b'], [1, 2]); plt.show()").results[0]["chart"]
    equal((c["type"], [e["value"] for e in c["elements"]]), ("bar", [1, 2]))
    c = execute("f, a = plt.subplots(1, 2); a[0].pie([1, 2]); a[1].scatter([1], [2]); plt.show()").results[0]["chart"]
    equal((c["type"], [e["type"] for e in c["elements"]]), ("superchart", ["pie", "scatter"]))


def images():
    path = os.path.join(RUN, "i.png")
    e = execute("from PIL import Image\nImage.new('RGB', (2, 2)).save(%r)" % path)
    equal([r["is_main_result"] for r in e.results], [False])
    assert e.results[0]["png"] and os.path.exists(path), e.events
    assert execute("Image.new('RGB', (2, 2)).show()").results[0]["png"]
    r = execute("Image.new('RGB', (2, 2))").results
    equal((len(r), r[0]["is_main_result"]), (1, True))


def shell_and_await():
    equal(execute("!echo hi").stdout.strip(), "hi")
    equal(execute("import asyncio\nawait asyncio.sleep(0, 'done')").text, "done")
    equal(execute("%pwd").text, call("GET", "/contexts") and json.loads(call("GET", "/contexts")[1])[0]["cwd"])


def stream(code, **fields):
    """An open /execute."""
    c = http.client.HTTPConnection("127.0.0.1", PORT, timeout=60)
    c.request("POST", "/execute", json.dumps({"code": code, **fields}))
    return c, c.getresponse()


def streaming():
    t = time.monotonic()
    c, r = stream("import time\nprint('a', flush=True)\ntime.sleep(6.5)\nprint('b')")
    assert time.monotonic() - t < 2, "headers came late"
    seen = []
    while line := r.readline():
        seen.append((json.loads(line)["type"], time.monotonic() - t))
    kinds = [k for k, _ in seen]
    equal(kinds, ["number_of_executions", "stdout", "keepalive", "stdout", "end_of_execution"])
    assert seen[1][1] < 3 and 4.5 < seen[2][1] < 6.4, seen
    c.close()


def gone(code, after, **fields):
    c, r = stream(code, **fields)
    while json.loads(r.readline())["type"] != after:
        pass
    r.close()
    c.close()
    t = time.monotonic()
    e = execute({"bash": "echo 2", "r": "cat(1+1)"}.get(fields.get("language"), "1+1"), **fields)
    assert (e.text or e.stdout.strip()) == "2", (code, e.events)
    assert time.monotonic() - t < 5, "the kernel was not interrupted: %.1f s" % (time.monotonic() - t)


def disconnects():
    for _ in range(30):  # an interrupt may come between two of the kernel's own steps, which replies to nothing then
        gone("import time\ntime.sleep(60)", "number_of_executions")
    gone("!echo x; sleep 60", "stdout")
    gone("try:\n  time.sleep(60)\nexcept KeyboardInterrupt:\n  time.sleep(60)", "number_of_executions")
    equal(execute("x").text, "20")  # state is kept


def one_at_a_time():
    c, r = stream("import time\nfor i in range(5): time.sleep(0.1)\norder = ['first']")
    equal(execute("order.append('second'); order").text, "['first', 'second']")
    r.read()
    c.close()


def contexts():
    status, text, _ = call("GET", "/contexts")
    equal([c["language"] for c in json.loads(text)][:2], ["python", "javascript"])
    os.makedirs(RUN + "/sub", exist_ok=True)
    status, text, _ = call("POST", "/contexts", {"language": " Python ", "cwd": RUN + "/sub"})
    a = json.loads(text)
    equal((status, a["language"], a["cwd"], sorted(a)), (200, "python", RUN + "/sub", ["cwd", "id", "language"]))
    equal(execute("import os; os.getcwd()", context_id=a["id"]).text, os.path.realpath(RUN + "/sub"))
    equal(execute("x", context_id=a["id"]).error["name"], "NameError")
    equal(json.loads(call("GET", "/contexts")[1])[-1], a)
    execute("y = 1", context_id=a["id"])
    c, r = stream("import time\ntime.sleep(60)", context_id=a["id"])
    r.readline()
    equal(call("POST", "/contexts/%s/restart" % a["id"])[:2], (200, "null"))
    assert b"ContextRestarting" in r.read()
    equal(execute("y", context_id=a["id"]).error["name"], "NameError")
    equal(execute("import os; os._exit(3)", context_id=a["id"]).error["name"], "UnexpectedEndOfExecution")
    equal(execute("1+1", context_id=a["id"]).text, "2")
    equal(call("DELETE", "/contexts/" + a["id"])[:2], (200, "null"))
    missing = (404, "Context %s not found" % a["id"])
    equal(call("DELETE", "/contexts/" + a["id"])[:2], missing)
    equal(call("POST", "/contexts/%s/restart" % a["id"])[:2], missing)
    equal(call("POST", "/execute", {"code": "1", "context_id": a["id"]})[:2], missing)
    equal(call("POST", "/execute", {"code": "1", "context_id": "x", "language": "python"})[0], 400)
    equal(call("POST", "/contexts", {"cwd": "/nowhere"})[0], 500)
    status, text, _ = call("POST", "/execute", {"code": "1", "language": "cobol"})
    assert status == 500 and "this image has python" in text, (status, text)


def spare():
    """A kernel that was set aside serves the next new context, and a restart. A dead one does not."""
    os.makedirs(RUN + "/sub", exist_ok=True)

    def create(**fields):
        status, text, _ = call("POST", "/contexts", {"language": "python", **fields})
        equal(status, 200)
        return json.loads(text)["id"]

    def aside(code):
        id = create()
        pid = execute(code, context_id=id, forkd_forget=True).text
        equal(call("POST", "/contexts/%s/spare" % id)[:2], (200, "null"))
        equal(call("DELETE", "/contexts/" + id)[0], 404)
        return pid

    pid = aside("import os; os.getpid()")
    a = create(cwd=RUN + "/sub")
    e = execute("import os; os.getpid()", context_id=a)
    equal((e.text, e.of("number_of_executions")[0]["execution_count"]), (pid, 1))
    equal(execute("os.getcwd()", context_id=a).text, os.path.realpath(RUN + "/sub"))
    second = aside("import os; os.getpid()")
    equal(call("POST", "/contexts/%s/restart" % a)[0], 200)
    equal(execute("import os; os.getpid()", context_id=a).text, second)
    equal(execute("os.getcwd()", context_id=a).text, os.path.realpath(RUN + "/sub"))
    os.kill(int(aside("import os; os.getpid()").strip("'")), 9)
    b = create()
    equal(execute("1 + 1", context_id=b).text, "2")
    for id in (a, b):
        equal(call("DELETE", "/contexts/" + id)[0], 200)


def env():
    look = "import os; os.environ.get('CI_A'), os.environ.get('HOME')"
    home = execute(look).text
    equal(execute(look, env_vars={"CI_A": "1 'x'\n", "HOME": "/elsewhere"}).text, "(\"1 'x'\\n\", '/elsewhere')")
    equal(execute(look).text, home)
    equal(execute("1/0", env_vars={"CI_A": "1"}).error["name"], "ZeroDivisionError")
    equal(execute(look).text, home)
    for value in ("a b", "it's", "two\nlines"):
        equal(execute('echo "$CI_A"', language="bash", env_vars={"CI_A": value}).stdout.replace("\r", ""), value + "\n")
    equal(execute('echo "[$CI_A]"', language="bash").stdout.strip(), "[]")


def bash():
    execute("v=3", language="bash")
    equal(execute("echo $((v+1))", language="bash").stdout.strip(), "4")
    equal(execute("for i in 1 2; do\n  echo $i\ndone", language="bash").stdout.split(), ["1", "2"])
    assert execute("false", language="bash").error
    gone("echo x; sleep 60", "stdout", language="bash")
    # The second interrupt comes before the prompt that follows the first.
    gone("echo x; (trap '' INT; sleep 1.5)", "stdout", language="bash")
    equal(execute("echo 3", language="bash").stdout.strip(), "3")


def javascript():
    js = lambda code, **f: execute(code, **{"language": "js", **f})
    e = js("const a = 1; console.log('one', a)")
    equal(([x["text"] for x in e.of("stdout")], e.results), (["one 1\n"], []))
    equal(js("a + 1").text, "2")
    equal(js("await new Promise(r => setTimeout(() => r(5), 1))").text, "5")
    equal(js("Promise.resolve(6)").text, "6")
    equal(js("'text'").text, "text")
    equal(js("({b: [1]})").main["json"], {"b": [1]})
    e = js("nothing")
    equal((e.error["name"], e.error["value"]), ("ReferenceError", "nothing is not defined"))
    equal(js("throw new TypeError('t')").error["name"], "TypeError")
    equal(js("await Promise.reject(new Error('r'))").error["value"], "r")
    equal(js("process.env.CI_B", env_vars={"CI_B": "x"}).text, "x")
    equal(js("process.env.CI_B").results, [])
    for code in ("for (;;) {}", "await new Promise(() => {})"):
        c, r = stream(code, language="js")
        r.readline()
        r.close()
        c.close()
        t = time.monotonic()
        equal(js("1+1").text, "2")
        assert time.monotonic() - t < 5
    equal(js("process.exit(1)").error["name"], "UnexpectedEndOfExecution")
    equal(js("1+1").text, "2")
    e = execute("const n: number = 7; n", language="ts")
    if e.error and "esbuild" in e.error["value"]:
        print("javascript: no esbuild here")
        return
    equal(e.text, "7")
    equal(js("import path, { join as j } from 'node:path'\nj('a', path.basename('/b'))").text, "a/b")
    equal(js("j('x', 'y')").text, "x/y")
    equal(js("function f(s: string): string { return s }\nf('typed')").text, "typed")
    equal(execute("let q: = 1", language="typescript").error["name"], "SyntaxError")


def fork(index):
    """Plays a fork."""
    hook = open(HOOK).read().replace("/run/forkd-code-interpreter", RUN)
    subprocess.run(["sh", "-c", hook], check=True, env={
        "PATH": os.environ["PATH"], "FORKD_SANDBOX_ID": "s" + index, "FORKD_INDEX": index, "OWN": "o'" + index})


def here(language):
    """Whether this host has it. A server without it names the template that does."""
    status, text, _ = call("POST", "/contexts", {"language": language})
    if status == 500 and "not in this image" in text and "template code-interpreter-" + language in text:
        print("%s: not here" % language)
        return False
    equal(status, 200)
    c = json.loads(text)
    equal(c["language"], language)
    equal(call("DELETE", "/contexts/" + c["id"])[0], 200)
    return True


def r():
    if not here("r"):
        return
    r = lambda code, **f: execute(code, **{"language": "r", **f})
    equal(r("x <- 20").results, [])
    e = r("x + 1")
    equal((e.text, e.main["html"], e.error), ("[1] 21", "21", None))
    e = r("print('one'); cat('two\\n'); message('three')")
    equal((e.stdout, e.stderr.strip(), e.results), ('[1] "one"\ntwo\n', "three", []))
    e = r("head(cars, 2)\n'last'")
    equal([x["is_main_result"] for x in e.results], [False, True])
    assert "<table" in e.results[0]["html"] and e.text == '[1] "last"', e.results
    e = r("plot(1:3, main = 'T')")
    assert e.results[0]["png"].startswith("iVBOR") and not e.results[0]["is_main_result"], e.events
    e = r("f <- function() stop('gone wrong')\nf()\nx <- 0")
    equal((e.error["name"], len(e.errors)), ("ERROR", 1))
    assert "gone wrong" in e.error["value"] and "f()" in e.error["traceback"], e.error
    assert r("x <-").error and r("x").text == "[1] 20"
    for value in ("a b", "it's", "two\nlines \\ ä"):
        equal(r("cat(Sys.getenv('CI_R'))", env_vars={"CI_R": value}).stdout, value)
    equal(r("cat(Sys.getenv('CI_R'))").stdout, "")
    assert "Warning" in r("warning('careful')").stderr
    t = time.monotonic()
    c, s = stream("cat('a\\n')\nSys.sleep(3)\ncat('b\\n')", language="r")
    while json.loads(s.readline())["type"] != "stdout":
        pass
    assert time.monotonic() - t < 2.5, "stdout came late"
    s.read()
    c.close()
    for code in ("Sys.sleep(60)", "repeat 1", "system('sleep 60')"):
        gone(code, "number_of_executions", language="r")
    equal(r("x").text, "[1] 20")
    seen = set()
    for index in ("3", "4"):
        r("set.seed(1)")
        fork(index)
        seen.add(r("runif(1)").text)
        equal(r("cat(Sys.getenv('OWN'))").stdout, "o'" + index)
    equal((len(seen), r("x").text), (2, "[1] 20"))
    equal(r("quit_now <- 1; tools::pskill(Sys.getpid(), 9)").error["name"], "UnexpectedEndOfExecution")
    assert r("x").error and r("1").text == "[1] 1"


def java():
    if not here("java"):
        return
    j = lambda code, **f: execute(code, **{"language": "java", **f})
    equal((j("int x = 20;").results, j("x + 1").text), ([], "21"))
    e = j('System.out.println("one");\nSystem.out.printf("%d %s%n", 2, "hällo");\nSystem.err.println("oops");')
    equal((e.stdout, e.stderr, e.results), ("one\n2 hällo\n", "oops\n", []))
    equal(j('String s = "quoted"; s').text, "quoted")
    equal(j("int twice(int i) {\n  return i * 2;\n}\nrecord P(int a, int b) {}\n// done\nnew P(twice(4), 1)").text, "P[a=8, b=1]")
    equal(j("List.of(1, 2).stream().map(i -> i + 1).toList()").text, "[2, 3]")
    equal(j("new int[] {1, 2}").text, "int[2] { 1, 2 }")
    equal([j(c).results for c in ("null", "", "// nothing", "System.gc()")], [[], [], [], []])
    e = j("int y = 1;\nint z = x / 0;\ny = 2;")
    equal((e.error["name"], e.error["value"], len(e.errors)), ("ArithmeticException", "/ by zero", 1))
    assert e.error["traceback"].startswith("java.lang.ArithmeticException: / by zero\n    at "), e.error
    equal(j("y").text, "1")
    e = j('class Odd extends RuntimeException { Odd(Throwable c) { super("odd", c); } }\n'
          'throw new Odd(new IllegalStateException("why"));')
    equal((e.error["name"], e.error["value"]), ("Odd", "odd"))
    assert "Caused by: java.lang.IllegalStateException: why" in e.error["traceback"], e.error
    e = j("nothing + 1")
    equal(e.error["name"], "CompilationException")
    assert "cannot find symbol" in e.error["value"] and "\n  nothing + 1\n  ^" in e.error["traceback"], e.error
    equal([j(c).error["name"] for c in ("int q = ;", "int f( {", 'String t = "')], ["CompilationException"] * 3)
    e = j("int later() { return missing(); }")
    assert e.error is None and "missing()" in e.stderr, e.events
    equal(j("later()").error["name"], "UnresolvedReferenceException")
    equal(j("int missing() { return 6; }\nlater()").text, "6")
    for value in ("a b", "it's", "two\nlines \\ ä", ""):
        equal(j('System.getProperty("CI_J")', env_vars={"CI_J": value}).text, value)
    equal(j('System.getProperty("CI_J")').results, [])
    equal(j('System.getProperty("user.dir").isEmpty()', env_vars={"user.dir": "/"}).text, "false")
    equal(j('System.getProperty("user.dir")').text, os.path.realpath(os.path.join(RUN, "home")))
    t = time.monotonic()
    c, s = stream('System.out.print("a"); Thread.sleep(3000); System.out.println("b");', language="java")
    while json.loads(s.readline())["type"] != "stdout":
        pass
    assert time.monotonic() - t < 2.5, "stdout came late"
    s.read()
    c.close()
    equal(len(j('for (int i = 0; i < 100000; i++) System.out.println("a line of text");').stdout), 1500000)
    for code in ("Thread.sleep(60000);", "for (;;) {}", 'new ProcessBuilder("sleep", "60").start().waitFor()'):
        gone(code, "number_of_executions", language="java")
    equal(j("x").text, "20")
    seen = set()
    for index in ("5", "6"):
        j("Math.random(); UUID.randomUUID(); ThreadLocalRandom.current().nextInt();")
        fork(index)
        seen.add(j('Math.random() + " " + ThreadLocalRandom.current().nextLong()').text)
        equal(j('System.getProperty("OWN")').text, "o'" + index)
    equal((len(seen), j("x").text), (2, "20"))
    e = j('System.out.print("last"); System.exit(3);')
    equal((e.stdout, e.error["name"]), ("last", "UnexpectedEndOfExecution"))
    equal((j("x").error["name"], j("1 + 1").text), ("CompilationException", "2"))


def clones():
    """What a fork's hook leaves is taken in before the next execution, once."""
    draw = "import random, numpy as np; (random.random(), float(np.random.rand()))"
    seed = "random.seed(1); np.random.seed(1)"
    execute(draw)
    execute(seed)
    same = execute(draw).text
    execute(seed)
    equal(execute(draw).text, same)
    execute("import os, forkd_guest\ntold = []\nforkd_guest.on_fork(told.append)")
    execute("r=1", language="bash")
    seen = {same}
    for index in ("1", "2"):
        execute(seed)
        fork(index)
        seen.add(execute(draw).text)
        equal(execute("os.environ['OWN'], told[-1]['sandbox_id'], len(told)").text, "(\"o'%s\", 's%s', %s)" % (index, index, index))
        equal(execute("echo $OWN $r", language="bash").stdout.strip(), "o'%s 1" % index)
    equal(len(seen), 3)
    equal(execute("os.environ['OWN']", env_vars={"OWN": "mine"}).text, "mine")
    equal(execute("os.environ['OWN']").text, "o'2")


def many():
    """Contexts do not wait for each other."""
    slow = threading.Thread(target=execute, args=("import time\ntime.sleep(3)",))
    slow.start()
    t = time.monotonic()
    equal(execute("echo 1", language="bash").stdout.strip(), "1")
    assert time.monotonic() - t < 2.5
    slow.join()


def used(server):
    """The CPU time, in ms, of the server and of each process below it, by their names."""
    below, times = {server}, {}
    while True:
        more = {int(pid) for parent in below for t in os.listdir("/proc/%d/task" % parent)
                for pid in open("/proc/%d/task/%s/children" % (parent, t)).read().split()} - below
        if not more:
            break
        below |= more
    for pid in below:
        name = open("/proc/%d/cmdline" % pid).read().replace("\0", " ")
        times["%d %s" % (pid, name)] = sum(int(open("/proc/%d/task/%s/schedstat" % (pid, t)).read().split()[0])
                                          for t in os.listdir("/proc/%d/task" % pid)) / 1e6
    return times


def idle():
    """Nobody has anything to do by himself: in each of a hundred clones it would cost memory that they share."""
    for language, code in ("bash", "echo 1"), ("javascript", "a = []; for (let i = 0; i < 1e5; i++) a.push({i}); 1"):
        execute(code, language=language)
    server = int(execute("import os; os.getppid()").text)
    time.sleep(1)
    before = used(server)
    time.sleep(12)  # V8 would wait for 8 s before it collects an idle heap
    after = used(server)
    assert len(after) >= 4 and after.keys() == before.keys(), after
    busy = {name: ms - before[name] for name, ms in after.items() if ms - before[name] > 5}
    assert not busy, busy


failed = 0
for check in (health, first, state, output, failures, formats, frames, charts, images, shell_and_await, one_at_a_time,
              streaming, disconnects, contexts, spare, env, bash, javascript, clones, r, java, many, idle):
    if len(sys.argv) > 4 and check.__name__ not in sys.argv[4:]:
        continue
    t = time.monotonic()
    try:
        check()
        print("ok   %s (%.1f s)" % (check.__name__, time.monotonic() - t), flush=True)
    except Exception:
        failed += 1
        print("FAIL %s\n%s" % (check.__name__, traceback.format_exc()), flush=True)
sys.exit(failed > 0)
