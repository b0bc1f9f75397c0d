package forkcmd

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"path/filepath"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

// answering returns a command with an agent that gives the answer, and the command's output.
func answering(t *testing.T, a tokenwire.Answer) (c command, stdout, stderr *bytes.Buffer) {
	t.Helper()
	c.tokens = filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", c.tokens)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if got := r.URL.Query().Get("audience"); got != "a&b" {
			t.Errorf("the audience is %q", got)
		}
		_ = json.NewEncoder(w).Encode(a)
	})}
	served := make(chan struct{})
	go func() { defer close(served); _ = srv.Serve(l) }()
	t.Cleanup(func() { srv.Close(); <-served })
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	c.stdout, c.stderr = stdout, stderr
	return c, stdout, stderr
}

func TestForkdTokenPrintsAToken(t *testing.T) {
	c, stdout, _ := answering(t, tokenwire.Answer{Token: "x.y.z", Expires: 7})
	if code, known := c.run(tokenName, []string{"--audience", "a&b"}); code != 0 || !known || stdout.String() != "x.y.z\n" {
		t.Errorf("exit code %d, printed %q", code, stdout)
	}
	stdout.Reset()
	code, _ := c.run(tokenName, []string{"--json", "--audience", "a&b"})
	if want := `{"token":"x.y.z","expires":7}` + "\n"; code != 0 || stdout.String() != want {
		t.Errorf("exit code %d, printed %q, want %q", code, stdout, want)
	}
}

func TestExitCodesOfForkdToken(t *testing.T) {
	for code, want := range map[tokenwire.Code]int{tokenwire.Invalid: exitUsage, tokenwire.Denied: exitDenied,
		tokenwire.Limit: exitBusy, tokenwire.Unavailable: exitFailed} {
		c, stdout, stderr := answering(t, tokenwire.Answer{Error: tokenwire.Errorf(code, "because")})
		if got, _ := c.run(tokenName, []string{"--audience=a&b"}); got != want || stdout.Len() > 0 ||
			stderr.String() != "forkd-token: because\n" {
			t.Errorf("%s: exit code %d, want %d; printed %q and %q", code, got, want, stdout, stderr)
		}
	}
	for _, args := range [][]string{nil, {"--audience", ""}, {"a"}, {"--audience", "a", "b"}, {"--nonsense"}} {
		var stderr bytes.Buffer
		if got, _ := (command{stderr: &stderr, stdout: &stderr}).run(tokenName, args); got != exitUsage {
			t.Errorf("%q: exit code %d, %s", args, got, &stderr)
		}
	}
	var stderr bytes.Buffer
	gone := command{tokens: filepath.Join(t.TempDir(), "s"), stdout: &stderr, stderr: &stderr}
	if got, _ := gone.run(tokenName, []string{"--audience", "a"}); got != exitFailed {
		t.Errorf("without an agent: exit code %d, %s", got, &stderr)
	}
}
