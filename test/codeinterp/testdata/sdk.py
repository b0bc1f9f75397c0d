"""The real SDK against a server on this host: E2B_DEBUG has it call http://localhost:49999."""
from e2b_code_interpreter import Sandbox
from e2b.exceptions import NotFoundException

s = Sandbox.create()
seen = []
e = s.run_code("x = 1\nprint('one')\nx + 1", on_stdout=lambda m: seen.append(m.line))
assert (e.text, e.logs.stdout, seen, e.error) == ("2", ["one\n"], ["one\n"], None), e
assert s.run_code("x").text == "1"
e = s.run_code("1/0")
assert (e.error.name, e.error.value) == ("ZeroDivisionError", "division by zero"), e.error
e = s.run_code("import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.title('T')\nplt.show()")
assert e.results[0].png and e.results[0].chart.title == "T", e.results[0].formats()
assert e.results[0].chart.elements[0].points[0] == (1, 3), e.results[0].chart.elements
e = s.run_code("import pandas as pd\npd.DataFrame({'a': [1, 2]})")
assert e.results[0].data == {"a": [1, 2]}, e.results[0].data
assert s.run_code("import os; os.environ['CI_X']", envs={"CI_X": "y"}).text == "y"
assert s.run_code("echo hi", language="bash").logs.stdout[0].strip() == "hi"
c = s.create_code_context()
assert s.run_code("x", context=c).error.name == "NameError"
s.run_code("z = 3", context=c)
s.restart_code_context(c)
assert s.run_code("z", context=c).error.name == "NameError"
assert c.id in [k.id for k in s.list_code_contexts()]
s.remove_code_context(c)
try:
    s.run_code("1", context=c)
    raise AssertionError("a removed context ran code")
except NotFoundException:
    pass
try:
    s.run_code("import time\ntime.sleep(60)", timeout=2)
    raise AssertionError("no timeout")
except Exception as err:
    assert "imeout" in type(err).__name__, repr(err)
assert s.run_code("1+1").text == "2"
print("ok")
