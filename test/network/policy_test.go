package network

import (
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
)

// A policy change cuts running flows that it denies, and leaves the others.
func TestAChangeOfPolicyCutsWhatIsNoLongerAllowed(t *testing.T) {
	w := shared(t, "example.com", "other.example.com")
	w.run(t, w.guest, `
taken = dial("example.com", `+echoPort+`)
left = dial("other.example.com", `+echoPort+`)`)
	for _, name := range []string{"taken", "left"} {
		w.wantText(t, w.guest, `exchange(`+name+`, "before")`, "before")
	}
	flows := w.cli(t, "net", "ps", w.guest)
	for _, want := range []string{"example.com", "other.example.com", web + ":" + echoPort, other + ":" + echoPort} {
		if !strings.Contains(flows, want) {
			t.Errorf("forkd net ps does not show %s:\n%s", want, flows)
		}
	}
	shown := w.cli(t, "net", "policy", w.guest, "--net", "none", "--allow", "other.example.com")
	if !strings.Contains(shown, "other.example.com") {
		t.Errorf("forkd net policy says %q", shown)
	}
	w.wantRefused(t, w.guest, `taken.recv(1).decode()`, "ECONNRESET")
	w.wantText(t, w.guest, `exchange(left, "after")`, "after")
	w.wantRefused(t, w.guest, `addresses("example.com")`, "EAI_NONAME")
}

// fork makes one child of a snapshot with its own policy.
func (w *world) fork(t *testing.T, tag string, p api.NetworkPolicy) api.SandboxInfo {
	t.Helper()
	n := 1
	res, err := w.Client.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: tag, N: &n, Network: &p})
	if err != nil {
		t.Fatal(err)
	}
	sb := res.Sandboxes[0]
	if sb.Error != "" {
		t.Fatal(sb.Error)
	}
	t.Cleanup(func() {
		if err := w.Kill(sb.ID); err != nil {
			t.Error(err)
		}
	})
	return sb
}

func (w *world) narrower(t *testing.T, tag string) {
	id := w.fork(t, tag, api.NetworkPolicy{Allow: []string{"other.example.com"}}).ID
	w.wantText(t, id, `fetch("http://other.example.com/")`, "another host")
	w.wantRefused(t, id, `addresses("example.com")`, "EAI_NONAME")
	// The clone remembers a name resolved by the source. This allows no flow.
	w.wantRefused(t, id, `dial("`+web+`", `+echoPort+`)`, "ECONNREFUSED")
}

func (w *world) cutByCeiling(t *testing.T, sb api.SandboxInfo) {
	if sb.Network == nil || !strings.Contains(strings.Join(sb.Network.Cut, "\n"), forbidden) {
		t.Errorf("the answer does not say that %s was cut: %+v", forbidden, sb.Network)
	}
	w.wantText(t, sb.ID, `fetch("http://example.com/")`, "the web")
	w.wantRefused(t, sb.ID, `dial("`+forbidden+`", `+echoPort+`)`, "ECONNREFUSED")
	now := w.set(t, sb.ID, api.SetNetworkRequest{Net: api.NetPublic})
	w.wantText(t, sb.ID, `exchange(dial("`+other+`", `+echoPort+`), "public")`, "public")
	w.wantRefused(t, sb.ID, `dial("`+forbidden+`", `+echoPort+`)`, "ECONNREFUSED")
	t.Logf("public within the ceiling: %+v", now.Effective)
}
