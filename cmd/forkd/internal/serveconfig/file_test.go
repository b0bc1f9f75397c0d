package serveconfig_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/forkd/forkd/cmd/forkd/internal/serveconfig"
)

// options are flags of each kind that forkd serve has.
type options struct {
	pool   int
	e2b    bool
	ratio  float64
	every  time.Duration
	file   string
	listen []string
	hosts  []string
}

func flagsOf(o *options) *pflag.FlagSet {
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	f.IntVar(&o.pool, "pool", 0, "keep `N` VMs")
	f.BoolVar(&o.e2b, "e2b", true, "serve it")
	f.Float64Var(&o.ratio, "ratio", 1.5, "promise `RATIO`")
	f.DurationVar(&o.every, "scrub-interval", time.Hour, "check every `DURATION`")
	f.StringVar(&o.file, "audit-log", "", "write to `FILE`")
	f.StringArrayVar(&o.listen, "listen", nil, "listen on `ADDRESS`")
	f.StringSliceVar(&o.hosts, "host-port", nil, "allow `PORT`")
	f.String("config", "", "read `FILE`")
	return f
}

func apply(t *testing.T, text string, args ...string) (options, *serveconfig.File, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var o options
	flags := flagsOf(&o)
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	f, err := serveconfig.Apply(path, flags, "config")
	if err != nil {
		err = errorText(strings.ReplaceAll(err.Error(), path, "FILE"))
	}
	return o, f, err
}

type errorText string

func (e errorText) Error() string { return string(e) }

func TestAFileSetsFlags(t *testing.T) {
	o, f, err := apply(t, `# a comment
pool: 2
e2b: no
ratio: 2
scrub-interval: "30m"
audit-log: ""
listen: tcp://127.0.0.1:1
host-port:
  - 80
  - 8000-8010
`, "--e2b=false")
	if err != nil {
		t.Fatal(err)
	}
	if o.pool != 2 || o.e2b || o.ratio != 2 || o.every != 30*time.Minute || o.file != "" ||
		strings.Join(o.listen, " ") != "tcp://127.0.0.1:1" || strings.Join(o.hosts, " ") != "80 8000-8010" {
		t.Errorf("got %+v", o)
	}
	if got := f.Source("pool"); !strings.HasSuffix(got, "config.yaml:2") {
		t.Errorf("pool is from %q", got)
	}
	if got := f.Source("e2b"); got != "" {
		t.Errorf("e2b is from the command line, got %q", got)
	}
}

func TestTheCommandLineWins(t *testing.T) {
	o, _, err := apply(t, "listen: [tcp://a:1, tcp://b:1]\npool: 7\n", "--listen", "tcp://c:1", "--pool", "1")
	if err != nil || strings.Join(o.listen, " ") != "tcp://c:1" || o.pool != 1 {
		t.Errorf("got %+v, %v", o, err)
	}
}

func TestEmptyFiles(t *testing.T) {
	for _, text := range []string{"", "\n", "# only a comment\n", "---\n", "---\n# x\n"} {
		if _, _, err := apply(t, text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestWrongFilesAreRefusedWithTheLine(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"pool: 1\npoll: 2\n", "FILE:2: poll: unknown setting; is it pool?"},
		{"zebra: 2\n", "FILE:1: zebra: unknown setting; settings are the flags of `forkd serve --help`, without the dashes"},
		{"--pool: 2\n", "FILE:1: --pool: unknown setting; is it pool?"},
		{"config: x\n", "FILE:1: config: unknown setting"},
		{"pool: many\n", `FILE:1: pool: "many": invalid syntax`},
		{"\n\nscrub-interval: 5\n", `FILE:3: scrub-interval: "5"`},
		{"pool: [1, 2]\n", "FILE:1: pool: want one value, not a list"},
		{"pool: []\n", "FILE:1: pool: want one value, not a list"},
		{"pool:\n", `FILE:1: pool: the value is missing; write "" for an empty one`},
		{"pool: {a: 1}\n", "FILE:1: pool: want a value or a list of values, not a mapping"},
		{"listen: [[a]]\n", "FILE:1: listen: want a value or a list of values, not a sequence"},
		{"pool: 1\npool: 2\n", "FILE:2: "},
		{"- pool\n", "FILE:1: want settings, each as KEY: VALUE"},
		{"pool\n", "FILE:1: want settings, each as KEY: VALUE"},
		{"pool: &x 1\n", "FILE:1: pool: want a value or a list of values, not a anchor"},
		{"pool: !!int 1\n", "FILE:1: pool: want a value"},
		{"<<: {pool: 1}\n", "FILE:1: <<"},
		{"a: b: c\n", "FILE:1: "},
		{"pool: 1\n---\npool: 2\n", "FILE:3: a configuration file has one document"},
		{"pool: \"1\n", "FILE:"},
	} {
		_, _, err := apply(t, c.text)
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%q: got %v, want %s", c.text, err, c.want)
		}
	}
	_, _, err := apply(t, "a: 1\nb: 2\npool: 3\n")
	if err == nil || len(strings.Split(err.Error(), "\n")) != 2 {
		t.Errorf("all unknown keys are listed, got %v", err)
	}
}

func TestAWrongValueIsAnErrorEvenIfTheCommandLineWins(t *testing.T) {
	if _, _, err := apply(t, "pool: [1, 2]\n", "--pool", "1"); err == nil {
		t.Error("no error")
	}
}

func TestAHugeFileIsRefused(t *testing.T) {
	if _, _, err := apply(t, "# "+strings.Repeat("x", 2<<20)); err == nil || !strings.Contains(err.Error(), "larger than 1024 KiB") {
		t.Errorf("got %v", err)
	}
}

// TestAnExampleIsAFile writes an example and reads it with all its comments made settings.
func TestAnExampleIsAFile(t *testing.T) {
	var b strings.Builder
	var o options
	use := []serveconfig.Setting{{Key: "pool", Value: "3", Why: "Keep three."}}
	title := func(*pflag.Flag) string { return "All" }
	if err := serveconfig.WriteExample(&b, flagsOf(&o), title, use, "config"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Keep three.\npool: 3\n", "# Serve it.\n#e2b: true\n", "\n#scrub-interval: 1h0m0s\n", "\n#listen: [ADDRESS]\n",
		"\n#audit-log: FILE\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "#config") {
		t.Error("an excluded flag is in the example")
	}
	got, f, err := apply(t, b.String())
	if err != nil || got.pool != 3 || f.Source("e2b") != "" {
		t.Errorf("got %+v, %v", got, err)
	}
}

func FuzzApply(f *testing.F) {
	for _, seed := range []string{"pool: 2\n", "listen: [a, b]\n", "a: {b: c}\n", "x: &a [*a]\n", "? a\n: b\n", "pool: |\n 3\n", "- a\n", "<<: *x\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "c")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var o options
		_, err := serveconfig.Apply(path, flagsOf(&o), "config")
		if err != nil && !strings.HasPrefix(err.Error(), path) {
			t.Errorf("the error does not name the file: %v", err)
		}
	})
}
