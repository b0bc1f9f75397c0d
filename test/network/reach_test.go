package network

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// A host allowed by name is reachable by this name, over HTTP and HTTPS.
func TestAHostThatIsAllowedByNameIsReached(t *testing.T) {
	w := shared(t, "example.com")
	w.wantText(t, w.guest, `fetch("http://example.com/")`, "the web")
	w.wantText(t, w.guest, `fetch("https://example.com/")`, "the web")
}

// Any other name is refused immediately and never leaves the host. The reason is available in the
// guest, with the command line and over the API.
func TestAnotherNameIsRefusedWithTheReason(t *testing.T) {
	w := shared(t, "example.com")
	w.wantRefused(t, w.guest, `addresses("secret.example.org")`, "EAI_NONAME")
	for _, name := range w.far.asked() {
		if strings.Contains(name, "secret") {
			t.Errorf("the far side was asked for %s", name)
		}
	}
	for where, text := range map[string]string{
		"the guest's page": value[string](t, w, w.guest, `fetch("http://192.0.0.1/denied")`),
		"forkd net log":    w.cli(t, "net", "log", w.guest),
		"the API":          w.refusals(t, w.guest),
	} {
		if !strings.Contains(text, "secret.example.org") || !strings.Contains(text, "denied") {
			t.Errorf("%s does not say that secret.example.org was denied: %q", where, text)
		}
	}
}

func TestAnAddressThatNoRuleNamesIsReset(t *testing.T) {
	w := shared(t, "example.com")
	w.wantRefused(t, w.guest, `dial("`+other+`", `+echoPort+`)`, "ECONNREFUSED")
	w.wantRefused(t, w.guest, `udp("`+other+`", `+echoPort+`, "hello")`, "EHOSTUNREACH", "ECONNREFUSED", "EACCES")
}

func TestPolicyNoneRefusesAtOnce(t *testing.T) {
	w := shared(t)
	w.set(t, w.guest, api.SetNetworkRequest{Net: api.NetNone})
	w.wantRefused(t, w.guest, `dial("`+web+`", 80)`, "ECONNREFUSED")
	w.wantRefused(t, w.guest, `addresses("example.com")`, "EAI_NONAME", "EAI_AGAIN")
	w.wantRefused(t, w.guest, `udp("`+web+`", `+echoPort+`, "hello")`, "EHOSTUNREACH", "ECONNREFUSED", "EACCES")
}

// curl and Python's requests are Debian's, unchanged.
func TestProgramsThatOthersWroteReachTheWeb(t *testing.T) {
	w := shared(t, "example.com")
	for program, script := range map[string]string{
		"curl":     `curl -sS http://example.com/`,
		"requests": `python3 -c 'import requests; print(requests.get("http://example.com/").text)'`,
		"urllib":   `python3 -c 'from urllib.request import *; print(urlopen("http://example.com/").read().decode())'`,
	} {
		r, err := w.Client.Exec(t.Context(), w.guest,
			api.ExecRequest{Args: []string{"sh", "-c", script}, TimeoutSecs: patience.Seconds()})
		switch {
		case err != nil:
			t.Fatalf("%s: %v", program, err)
		case r.ExitCode != 0 || strings.TrimSpace(r.Stdout) != "the web":
			t.Errorf("%s: exit code %d, %q, %q", program, r.ExitCode, r.Stdout, r.Stderr)
		}
	}
}
