package guesttoken_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/guesttoken"
	"github.com/forkd/forkd/internal/guest/agentproto/forkwire"
	"github.com/forkd/forkd/internal/guest/agentproto/tokenwire"
)

// plainIssuer issues the facts about a sandbox, unsigned. Package idtoken has the real one.
type plainIssuer struct{}

func (plainIssuer) Mint(of sandbox.Info, audience string) (sandbox.IdentityToken, error) {
	if audience == "" {
		return sandbox.IdentityToken{}, sandbox.Errorf(sandbox.ErrInvalid, "", "the audience is empty")
	}
	return sandbox.IdentityToken{Text: fmt.Sprintf("%s of %s, parent %s, index %d", of.ID, of.Owner, of.ParentSandbox(), of.Index),
		Expires: time.Unix(1, 0)}, nil
}

func issuing(c *engine.Config) { c.Identity = plainIssuer{} }

// tokenBench is a guestBench with an issuer.
type tokenBench struct{ *enginefake.GuestBench }

func newTokenBench(t *testing.T) tokenBench { return tokenBench{enginefake.NewGuestBench(t, issuing)} }

func (g tokenBench) fork(req sandbox.ForkRequest) []sandbox.Info {
	g.T.Helper()
	r, err := g.E.Fork(g.T.Context(), req)
	if err != nil {
		g.T.Fatal(err)
	}
	var out []sandbox.Info
	for _, c := range r.Children {
		if c.Err != nil {
			g.T.Fatal(c.Err)
		}
		out = append(out, c.Info)
	}
	return out
}

func (g tokenBench) ask(id, line string) (a tokenwire.Answer, err error) {
	r, err := g.E.Eval(context.Background(), id, sandbox.EvalRequest{Code: "token " + line})
	if err == nil && r.Error != "" {
		err = fmt.Errorf("%s", r.Error)
	}
	if err == nil {
		err = json.Unmarshal([]byte(r.Result), &a)
	}
	return a, err
}

// identified checks that a sandbox's guest gets a token about this sandbox and its parent.
func (g tokenBench) identified(id, owner, parent string, index int) {
	g.T.Helper()
	a, err := g.ask(id, `{"audience":"x"}`)
	want := fmt.Sprintf("%s of %s, parent %s, index %d", id, owner, parent, index)
	if err != nil || a.Token != want {
		g.T.Errorf("the token of %s is %q, %v, %v, want %q", id, a.Token, a.Error, err, want)
	}
}

// Each way to make or change a sandbox ends with tokens about itself.
func TestEachCloneGetsTokensAboutItself(t *testing.T) {
	g := newTokenBench(t)
	children := g.fork(sandbox.ForkRequest{Tag: "a", N: 2, Owner: "acme", Identity: true, GuestFork: true})
	g.identified(children[0].ID, "acme", "", 1)
	g.identified(children[1].ID, "acme", "", 2)
	id := children[0].ID
	for i, child := range g.Forked(id, 2) { // inherits the right
		g.identified(child, "acme", id, i+1)
	}
	if _, err := g.E.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	g.identified(id, "acme", "", 1)
	for _, c := range []struct{ owner, parent string }{{"acme", id}, {"other", ""}} { // of a published snapshot
		g.identified(g.fork(sandbox.ForkRequest{Tag: "b", N: 1, Owner: c.owner, Identity: true})[0].ID, c.owner, c.parent, 1)
	}
	plain := g.fork(sandbox.ForkRequest{Tag: "b", N: 1, Owner: "acme"})[0].ID // does not inherit the right
	if a, err := g.ask(plain, `{"audience":"x"}`); err != nil || a.Error == nil || a.Error.Code != tokenwire.Denied {
		t.Errorf("a clone made without identity: %+v, %v", a, err)
	}
	if _, err := g.E.Rollback(t.Context(), id, "b"); err != nil {
		t.Fatal(err)
	}
	g.identified(id, "acme", "", 1)
	if _, err := g.E.Pause(t.Context(), id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.E.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	g.identified(id, "acme", "", 1)
	g.Close(g.E)
	g.E = g.Open() // a new daemon adopts the VMs
	g.identified(id, "acme", "", 1)
	g.identified(children[1].ID, "acme", "", 2)
}

func TestTokensAreOffByDefault(t *testing.T) {
	g := newTokenBench(t)
	if a, err := g.ask(g.Root.ID, `{"audience":"x"}`); err != nil || a.Error == nil || a.Error.Code != tokenwire.Denied {
		t.Errorf("without identity: %+v, %v", a, err)
	}
	none := enginefake.NewGuestBench(t)
	_, err := none.E.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Identity: true})
	if enginefake.ReasonOf(err) != sandbox.ReasonIdentityOff {
		t.Errorf("without an issuer: %v", err)
	}
}

func TestARequestForATokenThatIsWrong(t *testing.T) {
	g := newTokenBench(t)
	id := g.fork(sandbox.ForkRequest{Tag: "a", N: 1, Identity: true})[0].ID
	for _, line := range []string{"", "{}", "\x00", `{"audience":""}`, `{"audience":"` + strings.Repeat("a", 1<<20) + `"}`} {
		a, err := g.ask(id, line)
		if err == nil && (a.Error == nil || a.Error.Code != tokenwire.Invalid) { // the host hangs up on a long line
			t.Errorf("%.20q: %+v", line, a)
		}
	}
	g.identified(id, "", "", 1)
}

// A guest that floods the port is limited, and other guests are not affected.
func TestAGuestThatAsksForTokensWithoutEnd(t *testing.T) {
	g := newTokenBench(t)
	children := g.fork(sandbox.ForkRequest{Tag: "a", N: 2, Identity: true})
	began, got, limited, refused := time.Now(), 0, 0, 0
	for range 200 {
		a, err := g.ask(children[0].ID, `{"audience":"x"}`)
		switch {
		case err != nil:
			refused++
		case a.Error == nil:
			got++
		case a.Error.Code == tokenwire.Limit:
			limited++
		default:
			t.Fatalf("answer %+v", a)
		}
	}
	if most := guesttoken.TokenBurst + int(time.Since(began).Seconds()*guesttoken.TokenRate) + 1; got > most || got == 0 ||
		limited == 0 || refused == 0 {
		t.Errorf("%d tokens, want 1 to %d; %d limited, %d refused", got, most, limited, refused)
	}
	g.identified(children[1].ID, "", "", 2)
	if a := g.Call(g.Root.ID, enginefake.Call{Req: forkwire.Request{Op: forkwire.OpWait, TimeoutMS: 1}}); a.Error == nil {
		t.Errorf("the port of forks: %+v", a)
	}
}
