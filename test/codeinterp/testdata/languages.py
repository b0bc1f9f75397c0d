"""R and Java over VMs, with E2B's real SDK.

  languages.py LANGUAGE [TEMPLATE]    in the template code-interpreter-LANGUAGE, or another
"""
import json
import sys
import time

from common import fails, leave, run  # test/e2b/testdata
from e2b.exceptions import TimeoutException
from e2b_code_interpreter import Sandbox

language = sys.argv[1]
template = sys.argv[2] if len(sys.argv) > 2 else "code-interpreter-" + language

# What the same means in each language.
WORDS = {
    "r": {"set": "x <- 20", "get": "x", "20": "[1] 20", "print": "cat('one\\n')", "slow": "cat('one\\n')\nSys.sleep(120)",
          "fail": "stop('gone wrong')", "error": ("ERROR", "gone wrong"), "env": "cat(Sys.getenv('CI'))",
          "draw": "cat(runif(1), rnorm(1))", "cwd": "cat(getwd())"},
    "java": {"set": "int x = 20;", "get": "x", "20": "20", "print": 'System.out.println("one");',
             "slow": 'System.out.println("one");\nfor (;;) {}',
             "fail": 'throw new IllegalStateException("gone wrong");', "error": ("IllegalStateException", "gone wrong"),
             "env": 'System.out.print(System.getProperty("CI"));',
             "draw": 'System.out.print(Math.random() + " " + ThreadLocalRandom.current().nextLong() + " " + new Random().nextLong()'
                     ' + " " + UUID.randomUUID());',
             "cwd": 'System.out.print(new File("").getAbsolutePath());'},
}
w = WORDS[language]


def code(s, word, **kw):
    return s.run_code(w[word], **({} if "context" in kw else {"language": language}), **kw)


def out(e):
    assert not e.error, e.error
    return "".join(e.logs.stdout)


def state(s):
    assert not code(s, "set").error
    e = code(s, "get")
    assert e.text == w["20"], e
    said = []
    e = code(s, "print", on_stdout=lambda m: said.append(m.line))
    assert "".join(said) == out(e) == "one\n", e
    e = code(s, "fail")
    name, value = w["error"]
    assert e.error.name == name and value in e.error.value and value in e.error.traceback, e.error
    assert out(code(s, "env", envs={"CI": "of the run"})) == "of the run"
    assert out(code(s, "cwd")) == "/home/user"
    assert s.run_code("1 + 1").text == "2" and s.run_code("1 + 1", language="js").text == "2"


def shown(s):
    if language == "r":
        e = s.run_code("plot(1:10, main = 'T')", language="r")
        assert len(e.results) == 1 and len(e.results[0].png) > 2000, e
        e = s.run_code("library(MASS); summary(lm(dist ~ speed, cars))", language="r")
        assert "Multiple R-squared" in e.text, e
        assert s.run_code("head(cars, 2)", language="r").results[0].html
    else:
        e = s.run_code("List.of(1, 2).stream().map(i -> i + 1).toList()", language="java")
        assert e.text == "[2, 3]", e
        assert s.run_code("nothing", language="java").error.name == "CompilationException"


def contexts(s):
    began = time.time()
    c = s.create_code_context(language=language, cwd="/tmp")
    print("another context: %.2f s" % (time.time() - began))
    assert c.language == language and c.id in [k.id for k in s.list_code_contexts()]
    assert out(code(s, "cwd", context=c)) == "/tmp"
    assert code(s, "get", context=c).error
    code(s, "set", context=c)
    assert code(s, "get", context=c).text == w["20"]
    s.restart_code_context(c)
    assert code(s, "get", context=c).error
    s.remove_code_context(c)
    assert c.id not in [k.id for k in s.list_code_contexts()]


def interrupt(s):
    seen = []
    fails(TimeoutException, code, s, "slow", timeout=5, on_stdout=lambda m: seen.append(m.line))
    assert seen == ["one\n"], seen  # it streams
    began = time.time()
    assert code(s, "get").text == w["20"]  # and what was there is
    assert time.time() - began < 10


def paused(s):
    s.pause()
    assert code(Sandbox.connect(s.sandbox_id, timeout=600), "get").text == w["20"]


def forks(s):
    made = [f if isinstance(f, Exception) else getattr(f, "sandbox", f) for f in s.fork(count=3, timeout=600)]
    first, drawn = [], set()
    for f in made:
        began = time.time()
        assert code(f, "get").text == w["20"]
        first.append(round(time.time() - began, 3))
        drawn.update(out(code(f, "draw")).split())
        f.kill()
    assert len(drawn) == 3 * {"r": 2, "java": 4}[language], drawn
    print(json.dumps({"first_run_in_forks_s": first}))


def main():
    first = []
    for _ in range(3):
        began = time.time()
        s = Sandbox.create(template, timeout=1800)
        created = time.time()
        assert s.run_code("1 + 1", language=language).text.endswith("2")
        first.append((round(created - began, 3), round(time.time() - created, 3)))
        if len(first) < 3:
            s.kill()
    print(json.dumps({"language": language, "create_and_first_run_s": first}))
    failed = run(s, (state, shown, contexts, interrupt, paused, forks))
    s.kill()
    leave(failed)


main()
