package e2e

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/forkd/forkd/api"
)

// issuerURL is the issuer of the shared daemon's identity tokens. The relying party of the tests reaches it over the
// daemon's socket.
const issuerURL = "http://127.0.0.1:9"

// identityClaims are the claims that a relying party decides by.
type identityClaims struct {
	Subject  string `json:"sub"`
	Sandbox  string `json:"sandbox"`
	Snapshot string `json:"snapshot"`
	Digest   string `json:"snapshot_digest"`
	Parent   string `json:"parent"`
	Index    int    `json:"fork_index"`
}

// relyingParty returns a verifier that knows the issuer's address only.
func (d *daemon) relyingParty() func(token string) identityClaims {
	d.t.Helper()
	t, socket := d.t, strings.TrimPrefix(d.url(), "unix://")
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	t.Cleanup(transport.CloseIdleConnections)
	ctx := oidc.ClientContext(context.Background(), &http.Client{Transport: transport})
	provider, err := oidc.NewProvider(ctx, issuerURL)
	if err != nil {
		t.Fatal(err)
	}
	verifier := provider.VerifierContext(ctx, &oidc.Config{ClientID: "sts.example"})
	return func(token string) (c identityClaims) {
		t.Helper()
		v, err := verifier.Verify(ctx, strings.TrimSpace(token))
		if err == nil {
			err = v.Claims(&c)
		}
		if err != nil {
			t.Fatalf("%.40q: %v", token, err)
		}
		return c
	}
}

func TestIdentityTokens(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	verify := d.relyingParty()
	n := 1
	root := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: small, N: &n, GuestFork: true, Identity: true}).OK()[0].ID
	t.Cleanup(func() { d.killTree(t, root) })
	const ask = "forkd-token --audience sts.example"
	was := verify(d.sh(root, ask+" | tee /tmp/token"))
	if was.Subject != "operator:sandbox:"+root || was.Sandbox != root || was.Snapshot != small || was.Digest == "" ||
		was.Parent != "" || was.Index != 1 {
		t.Errorf("the token has %+v", was)
	}
	out := strings.Fields(d.sh(root, ask+" >/tmp/next 2>&1 & forkd-fork 1"))
	if len(out) != 2 {
		t.Fatalf("forkd-fork printed %q", out)
	}
	child := out[1]
	got := strings.Fields(d.sh(child, ask+"; cat /tmp/token"))
	if len(got) != 2 {
		t.Fatalf("the child printed %q", got)
	}
	own := verify(got[0])
	if own.Subject != "operator:sandbox:"+child || own.Parent != root || own.Index != 1 ||
		!strings.HasPrefix(own.Snapshot, "gf-"+root) {
		t.Errorf("the token of a child has %+v", own)
	}
	if copied := verify(got[1]); copied.Sandbox != root { // from before the fork: docs/use/identity.md
		t.Errorf("a copied token has %+v", copied)
	}
	if _, err := d.life().Pause(t.Context(), root, api.PauseRequest{}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.life().Resume(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	if now := verify(d.sh(root, ask)); now != was {
		t.Errorf("after a pause the token has %+v, had %+v", now, was)
	}
}
