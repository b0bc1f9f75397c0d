package recipebench

// A Way asks a sandbox for an answer: by code for its warm Python interpreter, or by a program.
type Way struct {
	Eval string   // an expression for the warm interpreter; empty: run Exec
	Exec []string // a program and its arguments
}

// A Work is the same question to a child of a recipe, and to a fresh process.
type Work struct {
	Recipe  string // the name of the recipe, and of its snapshot
	Warm    Way    // uses the process from before the snapshot
	Prepare Way    // runs before Cold, without being measured; may be empty
	Cold    Way    // starts a process for the same answer
	Want    string // the answer of both
}

func bash(script string) Way { return Way{Exec: []string{"bash", "-c", script}} }

func python(program string) Way { return Way{Exec: []string{"python3", "-c", program}} }

const (
	sum   = `[1, 2, 3].map(n => n * n).reduce((a, b) => a + b)`
	hello = `import java.util.stream.*; class Hello { public static void main(String[] a) { ` +
		`System.out.println(IntStream.range(0, 9).sum()); } }`
	cents  = "psql -Atc 'SELECT sum(cents) FROM orders'"
	vector = `round(float(embed("a cat")[0]) * 10000)`
	frame  = `int(pandas.DataFrame({"a": range(9)}).a.sum())`
	solve  = `int(np.linalg.inv(np.eye(8) / 2).sum())`
	page   = `(page.set_content("<h1>forkd</h1>"), len(page.inner_text("h1")))[1]`
	pgBin  = "/usr/lib/postgresql/15/bin"
)

// browse opens a page in a new browser.
const browse = `from playwright.sync_api import sync_playwright
playwright = sync_playwright().start()
browser = playwright.chromium.launch(executable_path="/usr/bin/chromium-headless-shell", timeout=540_000,
                                     args=["--disable-gpu", "--disable-dev-shm-usage"])
page = browser.new_page()
page.set_default_timeout(120_000)
print(` + page + `)
browser.close()
playwright.stop()`

// Works are the recipes with a program that runs before the snapshot.
var Works = []Work{
	{Recipe: "python-numpy", Warm: Way{Eval: solve}, Cold: python("import numpy as np; print(" + solve + ")"), Want: "16"},
	{Recipe: "jupyter", Warm: Way{Eval: frame}, Cold: python("import pandas; print(" + frame + ")"), Want: "36"},
	{Recipe: "nodejs", Warm: bash("echo 'console.log(" + sum + ")' | node-run"),
		Cold: bash("node -e 'console.log(" + sum + ")'"), Want: "14"},
	{Recipe: "jvm", Warm: bash("echo '" + hello + "' | java-run"),
		Cold: bash("echo '" + hello + "' > /tmp/Hello.java && java /tmp/Hello.java"), Want: "36"},
	{Recipe: "postgres-fixture", Warm: bash(cents),
		Prepare: bash(pgBin + "/pg_ctl --silent --pgdata ~/pgdata --mode fast --wait stop"),
		Cold: bash("setsid " + pgBin + "/postgres -D ~/pgdata -c unix_socket_directories=/tmp " +
			">/tmp/cold.log 2>&1 </dev/null & until " + pgBin + "/pg_isready --quiet; do sleep 0.05; done; " + cents),
		Want: "9768200"},
	{Recipe: "embeddings", Warm: Way{Eval: vector}, Cold: python("from embeddings import embed; print(" + vector + ")"), Want: "617"},
	{Recipe: "playwright-browser", Warm: Way{Eval: page}, Cold: python(browse), Want: "5"},
}
