package recipes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// children is the number of forks of each recipe.
const children = 20

// use is a task for every child of a recipe, by bash as the recipe's user or in the warm Python interpreter.
type use struct {
	name   string
	script string
	eval   string // instead: code for the warm interpreter
	want   string // the output in every child
	unique bool   // instead: each line of the output differs from the same line of every other child
	same   bool   // instead: the output is some text, the same in every child
	few    bool   // only two children do it, because it takes long
}

// node returns a script that runs a program in the warm Node process.
func node(program string) string { return "node-run <<'END'\n" + program + "\nEND" }

// java returns a script that runs a program in the warm JVM.
func java(body string) string {
	return "java-run <<'END'\nimport java.util.*;\nclass A { public static void main(String[] a) throws Exception {\n" +
		body + "\n} }\nEND"
}

// kernel starts a kernel and executes a cell in it.
const kernel = `
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel(startup_timeout=400)
out = []
client.execute_interactive("import pandas; print(pandas.Series(range(10)).sum())", timeout=400,
                           output_hook=lambda m: out.append(m["content"].get("text", "")))
print("".join(out).strip())
client.stop_channels()
manager.shutdown_kernel(now=True)`

// recipes are the project's, with the uses of their children.
var recipes = []struct {
	recipe string
	uses   []use
}{
	{"nodejs", []use{
		{name: "a program in the warm process", want: "84 18\n0",
			script: node(`console.log(await Promise.resolve(84), process.version.slice(1, 3))`) + "\necho $?"},
		{name: "an error is the program's status", want: "1",
			script: "{ " + node(`throw new Error("x")`) + "\n} >/dev/null; echo $?"},
		{name: "TypeScript", want: "Version 5.9.3", few: true, script: "tsc --version"},
		{name: "random values of a process from before the snapshot", unique: true, script: node(`
const crypto = require("crypto");
console.log(crypto.randomUUID());
console.log(crypto.randomBytes(16).toString("hex"));
console.log(crypto.randomInt(2 ** 47));
console.log(Math.random());
console.log(crypto.generateKeyPairSync("ed25519").publicKey.export({ type: "spki", format: "pem" }).split("\n")[1]);
console.log(Buffer.from(require("tls").createServer().getTicketKeys()).toString("hex"));`)},
	}},
	{"postgres-fixture", []use{
		{name: "the fixture is there", script: "psql -Atc 'SELECT count(*), sum(cents) FROM orders'", want: "2000|9768200"},
		{name: "a child's writes are its own", want: "2001|1",
			script: `psql -qAtc 'INSERT INTO orders (customer, cents, made) VALUES (1, 1, now())' \
				-c 'SELECT count(*), count(*) FILTER (WHERE cents = 1) FROM orders'`},
		{name: "random values", script: "psql -Atc 'SELECT random()' -c 'SELECT gen_random_uuid()'", unique: true},
	}},
	{"jvm", []use{
		{name: "a program in the warm JVM", script: java(`System.out.println(List.of(1, 2));`) + "\necho $?", want: "[1, 2]\n0"},
		{name: "a compiler error is the program's status", script: "echo 'class A { int }' | java-run >/dev/null; echo $?", want: "1"},
		{name: "random values of a JVM from before the snapshot", unique: true, script: java(`
System.out.println(UUID.randomUUID());
System.out.println(Math.random());
System.out.println(new Random().nextLong());
System.out.println(new SplittableRandom().nextLong());
System.out.println(java.util.concurrent.ThreadLocalRandom.current().nextLong());
System.out.println(new java.security.SecureRandom().nextLong());`)},
	}},
	{"jupyter", []use{
		{name: "a kernel in each child", want: "45", few: true, script: "python3 - <<'END'\n" + kernel + "\nEND"},
		{name: "pandas in the warm interpreter", want: "36", eval: `int(pandas.DataFrame({"a": range(9)}).a.sum())`},
		{name: "random values of the warm interpreter", unique: true, eval: "print(numpy.random.rand())"},
	}},
	{"embeddings", []use{
		{name: "all children at once, the published vector", want: "[0.0677, 0.0635, 0.0487, 0.0793]",
			eval: `[round(float(x), 4) for x in embed("This is an example sentence")[:4]]`},
		{name: "the same bytes in all children", same: true, eval: `print(__import__("hashlib").sha256(` +
			`embed(["one text", "another, which is longer"]).tobytes()).hexdigest())`},
	}},
	{"playwright-browser", []use{
		{name: "the page from before the snapshot", want: "forkd 1", few: true, eval: "print(page.title())"},
		{name: "random values of each child's page", unique: true, eval: `
print("\n".join(page.evaluate("[crypto.getRandomValues(new Uint32Array(4)).join(), String(Math.random())]")))`},
		{name: "random values of a new page", unique: true, few: true, eval: `
print("\n".join(context.new_page().evaluate("[crypto.getRandomValues(new Uint32Array(4)).join(), String(Math.random())]")))`},
		{name: "a child uses its own page", unique: true, few: true, eval: `
page.fill("#text", __import__("os").environ["FORKD_SANDBOX_ID"])
page.click("button")
assert page.title() == "forkd 2", page.title()
print(page.evaluate("document.querySelector('output').textContent"))`},
		{name: "another page", want: "14", few: true, eval: `print(browser.new_page().evaluate("[1, 2, 3].reduce((a, n) => a + n * n, 0)"))`},
	}},
	{"coding-agent", []use{
		{name: "the tools", want: "all",
			script: `for p in bat cc c++ cmake clangd curl fd file gdb git git-lfs go gopls jq less lsof make nano nc node npm ps pylsp \
				pytest python rg rsync shellcheck sqlite3 strace tmux tree tsc typescript-language-server bash-language-server \
				unzip vim wget zip; do command -v $p >/dev/null || echo "$p is missing"; done; echo all`},
		{name: "a program of two languages, in git", want: "hello from C\nhello from Go\n1", few: true,
			script: `set -e; mkdir work; cd work; git init -q
				printf '#include <stdio.h>\nint main(void) { puts("hello from C"); }\n' >a.c; cc -o a a.c; ./a
				printf 'package main\n\nfunc main() { println("hello from Go") }\n' >a.go; go run a.go 2>&1
				git add -A; git commit -qm one; git rev-list --count HEAD`},
		{name: "limits for development servers", want: "65536 524288 1024",
			script: "echo $(ulimit -n) $(cat /proc/sys/fs/inotify/max_user_watches /proc/sys/fs/inotify/max_user_instances)"},
	}},
}

// random is a recipe with programs that keep random state in memory.
var random = []use{
	{name: "a server with TLS and bson", script: "curl -sk https://localhost:8443", unique: true},
	{name: "the keys of its session tickets", unique: true, // 16 bytes of a ticket name the key
		script: `openssl s_client -tls1_2 -connect localhost:8443 </dev/null 2>/dev/null |
			grep -A 1 "session ticket:" | tail -n 1 | cut -c 1-60 | grep 0000`},
	{name: "SSH host keys and machine-id", unique: true,
		script: "cut -d ' ' -f 2 /etc/ssh/ssh_host_ed25519_key.pub /etc/ssh/ssh_host_ecdsa_key.pub; cat /etc/machine-id"},
	{name: "D-Bus's copy of the machine-id", script: "cat /var/lib/dbus/machine-id", unique: true},
	{name: "the copy is the same machine", want: "same",
		script: "cmp /etc/machine-id /var/lib/dbus/machine-id && echo same"},
}

// TestRandom forks programs that keep random state in memory: 20 children have 20 different values.
func TestRandom(t *testing.T) {
	kvmtest.Soak(t)
	m := machine(t)
	c := dial(t, m)
	const tag = "test-random"
	m.Forkd(t, "image", "build", "testdata/random")
	if strings.Contains("\n"+string(m.Forkd(t, "-q", "snapshot", "ls")), "\n"+tag+"\n") {
		m.Forkd(t, "snapshot", "rm", "--force", tag)
	}
	m.Forkd(t, "snapshot", "create", "--image", tag, "--tag", tag)
	ids := fork(t, c, tag)
	for _, u := range random {
		t.Run(u.name, func(t *testing.T) { u.check(t, c, ids, children) })
	}
	t.Run("bson in the warm interpreter", func(t *testing.T) {
		var outs []string
		for _, id := range ids {
			res, err := c.Eval(t.Context(), id, api.EvalRequest{Code: "str(bson.ObjectId())[8:18]"})
			if err != nil || res.Result == nil {
				t.Fatalf("%v: %+v", err, res)
			}
			outs = append(outs, *res.Result)
		}
		if again := repeated(outs); again != "" {
			t.Error(again)
		}
	})
}

// machine starts the machine that the tests of this package share.
func machine(t *testing.T) *harness.Machine {
	t.Helper()
	return harness.StartMachine(t, "", "--memory", "8000", "--disk", "40")
}

// TestRecipes builds each recipe, forks it and uses every child.
func TestRecipes(t *testing.T) {
	kvmtest.Soak(t)
	m := machine(t)
	c := dial(t, m)
	for _, r := range recipes {
		t.Run(r.recipe, func(t *testing.T) {
			m.Image(t, r.recipe, r.recipe)
			ids := fork(t, c, r.recipe)
			for _, u := range r.uses {
				t.Run(u.name, func(t *testing.T) { u.check(t, c, ids, atOnce(r.recipe)) })
			}
		})
	}
}

func dial(t *testing.T, m *harness.Machine) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: m.URL, Token: m.Token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// fork makes the children of a snapshot, which end with the test.
func fork(t *testing.T, c *client.Client, tag string) []string {
	t.Helper()
	var ids []string
	t.Cleanup(func() {
		for _, id := range ids {
			if err := c.Kill(context.Background(), id); err != nil {
				t.Error(err)
			}
		}
	})
	n := atOnce(tag)
	for len(ids) < children {
		res, err := c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n})
		if err != nil {
			t.Fatal(err)
		}
		for _, sb := range res.OK() {
			ids = append(ids, sb.ID)
		}
		if failed := res.Failed(); len(failed) > 0 {
			t.Fatalf("%d children of %s failed: %s", len(failed), tag, failed[0].Error)
		}
	}
	return ids
}

// atOnce returns the number of children that are forked, and used, at the same time. Each browser needs an emulated
// CPU for seconds after the fork.
func atOnce(recipe string) int {
	if recipe == "playwright-browser" {
		return 4
	}
	return children
}

// check runs the use in all children, so many at once.
func (u use) check(t *testing.T, c *client.Client, ids []string, atOnce int) {
	if u.few {
		ids = ids[:2]
	}
	outs := make([]string, len(ids))
	start := time.Now()
	var all errgroup.Group
	all.SetLimit(atOnce)
	for i, id := range ids {
		all.Go(func() error {
			var err error
			if outs[i], err = u.run(t.Context(), c, id); err != nil {
				t.Errorf("child %d: %v", i+1, err)
			}
			return nil
		})
	}
	_ = all.Wait()
	t.Logf("%d children in %v", len(ids), time.Since(start).Round(10*time.Millisecond))
	if t.Failed() {
		return
	}
	if u.unique {
		if again := repeated(outs); again != "" {
			t.Error(again)
		}
		return
	}
	if u.same {
		u.want = outs[0]
	}
	for i, out := range outs {
		if out != u.want || out == "" {
			t.Errorf("child %d: %q, want %q", i+1, out, u.want)
		}
	}
}

// run runs the use in one child, and returns its output.
func (u use) run(ctx context.Context, c *client.Client, id string) (string, error) {
	if u.eval != "" {
		return u.evaluate(ctx, c, id)
	}
	res, err := c.Exec(ctx, id, api.ExecRequest{Args: []string{"bash", "-c", u.script}, TimeoutSecs: 900})
	if err == nil && res.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s%s", res.ExitCode, res.Stdout, res.Stderr)
	}
	return strings.TrimSpace(res.Stdout), err
}

// evaluate returns the printed text of the code, or else the value of its last expression.
func (u use) evaluate(ctx context.Context, c *client.Client, id string) (string, error) {
	res, err := c.Eval(ctx, id, api.EvalRequest{Code: u.eval, TimeoutSecs: 900})
	switch {
	case err != nil:
		return "", err
	case res.Error != nil && *res.Error != "":
		return "", errors.New(*res.Error)
	case res.Stdout == "" && res.Result != nil:
		return *res.Result, nil
	}
	return strings.TrimSpace(res.Stdout), nil
}

// repeated describes the first line that two children have in common, at the same place.
func repeated(outs []string) string {
	first := map[string]int{}
	lines := 0
	for i, out := range outs {
		all := strings.Split(out, "\n")
		if i == 0 {
			lines = len(all)
		}
		if len(all) != lines || out == "" {
			return fmt.Sprintf("child %d has %d lines, child 1 has %d: %q", i+1, len(all), lines, out)
		}
		for n, line := range all {
			key := fmt.Sprint(n, " ", line)
			if before, ok := first[key]; ok {
				return fmt.Sprintf("line %d of children %d and %d is the same: %s", n+1, before, i+1, line)
			}
			first[key] = i + 1
		}
	}
	return ""
}

func TestRepeated(t *testing.T) {
	for name, tc := range map[string]struct {
		outs []string
		same bool
	}{
		"all differ":                      {[]string{"a\nb", "c\nd"}, false},
		"the same value at another place": {[]string{"a\nb", "b\na"}, false},
		"one line in common":              {[]string{"a\nb", "c\nb"}, true},
		"a line is missing":               {[]string{"a\nb", "c"}, true},
		"no output":                       {[]string{"", ""}, true},
	} {
		if got := repeated(tc.outs); (got != "") != tc.same {
			t.Errorf("%s: %q", name, got)
		}
	}
}
