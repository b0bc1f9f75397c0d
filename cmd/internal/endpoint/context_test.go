package endpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const someContexts = `version: 1
current: used
contexts:
  used:
    url: http://used:1
    token: of-used
  far:
    url: https://far:1
    tls_fingerprint: ab
  lab:
    machine: lab
  here:
    host: true
  lost:
    url: http://lost:1
    token_file: /nowhere/token
`

// Flags have precedence over --context, that over FORKD_URL and FORKD_MACHINE, those over
// FORKD_CONTEXT, and that over the context in use.
func TestPrecedenceOfContexts(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "forkd"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "forkd", "config.yaml"), []byte(someContexts), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, row := range map[string]struct {
		flags    Flags
		env      map[string]string
		url      string
		force    Where
		machine  string
		token    string
		complain string
	}{
		"the context in use":            {url: "http://used:1", token: "of-used"},
		"a token of a flag":             {flags: Flags{Token: "x"}, url: "http://used:1", token: "x"},
		"a token of the environment":    {env: map[string]string{"FORKD_TOKEN": "x"}, url: "http://used:1", token: "of-used"},
		"and a context without one":     {env: map[string]string{"FORKD_TOKEN": "x", "FORKD_CONTEXT": "far"}, url: "https://far:1", token: "x"},
		"FORKD_CONTEXT":                 {env: map[string]string{"FORKD_CONTEXT": "far"}, url: "https://far:1"},
		"FORKD_URL":                     {env: map[string]string{"FORKD_URL": "http://e:1", "FORKD_CONTEXT": "far"}, url: "http://e:1"},
		"FORKD_MACHINE":                 {env: map[string]string{"FORKD_MACHINE": "m", "FORKD_CONTEXT": "far"}, force: Machine, machine: "m"},
		"--context":                     {flags: Flags{Context: "far"}, env: map[string]string{"FORKD_URL": "http://e:1"}, url: "https://far:1"},
		"--context and a machine":       {flags: Flags{Context: "lab"}, env: map[string]string{"FORKD_URL": "http://e:1"}, force: Machine, machine: "lab"},
		"--context and two variables":   {flags: Flags{Context: "far"}, env: map[string]string{"FORKD_URL": "http://e:1", "FORKD_MACHINE": "m"}, url: "https://far:1"},
		"--context and this host":       {flags: Flags{Context: "here"}, env: map[string]string{"FORKD_MACHINE": "m"}, force: Host},
		"--context default":             {flags: Flags{Context: "default"}, env: map[string]string{"FORKD_URL": "http://e:1", "FORKD_MACHINE": "m"}},
		"FORKD_CONTEXT default":         {env: map[string]string{"FORKD_CONTEXT": "default"}},
		"--url":                         {flags: Flags{URL: "http://f:1"}, url: "http://f:1"},
		"--host":                        {flags: Flags{Host: true}, force: Host},
		"--machine-name":                {flags: Flags{MachineName: "m"}, force: Machine, machine: "m"},
		"a context that does not exist": {flags: Flags{Context: "none"}, complain: "context none not found"},
		"a lost token":                  {flags: Flags{Context: "lost"}, complain: "context lost: open /nowhere/token"},
		"a lost token, and another":     {flags: Flags{Context: "lost", Token: "x"}, url: "http://lost:1", token: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, v := range []string{"FORKD_URL", "FORKD_MACHINE", "FORKD_CONTEXT", "FORKD_TOKEN"} {
				t.Setenv(v, row.env[v])
			}
			t.Setenv("XDG_CONFIG_HOME", dir)
			f, err := row.flags.Chosen()
			if row.complain != "" {
				if err == nil || !strings.Contains(err.Error(), row.complain) {
					t.Errorf("got %v, want %q", err, row.complain)
				}
				return
			}
			opt, err2 := f.complete(Options{})
			if err != nil || err2 != nil {
				t.Fatal(err, err2)
			}
			want := row.machine
			if opt.URL != row.url || opt.Force != row.force || opt.Token != row.token ||
				opt.Force == Machine && (opt.MachineName != want || row.flags.NameOfMachine() != want) {
				t.Errorf("got %+v", opt)
			}
		})
	}
}

// Without a home directory, such as of a service, there are no contexts.
func TestNoContextsWithoutAHome(t *testing.T) {
	for _, v := range []string{"HOME", "XDG_CONFIG_HOME", "FORKD_URL", "FORKD_MACHINE", "FORKD_CONTEXT", "USERPROFILE", "home"} {
		t.Setenv(v, "")
	}
	if name, err := (Flags{}).ContextName(); name != "default" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	if _, err := (Flags{Context: "x"}).ContextName(); err == nil {
		t.Error("a context was found")
	}
}
