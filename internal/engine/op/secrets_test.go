package op_test

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/domain/secrets"
	"github.com/forkd/forkd/internal/engine"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/net/netpolicy"
	"github.com/forkd/forkd/internal/testing/secretstest"
)

func setSecret(t *testing.T, s *secrets.Store, name, value string) {
	t.Helper()
	if _, err := s.Set(secrets.Change{Tenant: "acme", Name: name, Value: []byte(value)}); err != nil {
		t.Fatal(err)
	}
}

// givenEnv returns the environment in the last identity of a sandbox's guest.
func givenEnv(t *testing.T, e *engine.Engine, id string) string {
	t.Helper()
	res, err := e.Eval(t.Context(), id, sandbox.EvalRequest{Code: "env"})
	if err != nil {
		t.Fatal(err)
	}
	return res.Result
}

// noFileHas fails if a file below the directories contains the text. The guest's memory is not in files here.
func noFileHas(t *testing.T, text string, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil
			}
			b, err := os.ReadFile(path)
			if err == nil && bytes.Contains(b, []byte(text)) {
				t.Errorf("%s contains the value", path)
			}
			return nil
		})
	}
}

func TestSecretsReachGuestsAndNoFile(t *testing.T) {
	h := enginefake.NewHost(t)
	store := secretstest.Open(t, t.TempDir())
	h.Cfg.Secrets = secrets.Source{Store: store}
	e := h.Open()
	const one, two, three = "value-number-one", "value-number-two", "value-number-three"
	setSecret(t, store, "TOKEN", one)
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Owner: "acme"}, nil); err != nil {
		t.Fatal(err)
	}
	refs := []sandbox.SecretRef{{Name: "TOKEN", Variable: "API_KEY"}}
	res, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Owner: "acme", Secrets: refs})
	if err != nil || res.Children[0].Err != nil {
		t.Fatal(err, res)
	}
	info := res.Children[0].Info
	id := info.ID
	if env := givenEnv(t, e, id); !strings.Contains(env, "API_KEY:"+one) || len(info.Secrets) != 1 || info.Secrets[0].Version != 1 {
		t.Error(env, info.Secrets)
	}
	noFileHas(t, one, h.Cfg.RunDir, h.Cfg.StoreDir)

	h.Close(e) // the next daemon knows the taint
	e = h.Open()
	if info, err := e.Get(id); err != nil || len(info.Secrets) != 1 || info.Secrets[0].Variable != "API_KEY" {
		t.Fatal(info.Secrets, err)
	}
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: id, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	if brief, err := e.SnapshotBrief("b"); err != nil || len(brief.Secrets) != 1 || brief.Secrets[0].Name != "TOKEN" {
		t.Error(brief, err)
	}
	if err := e.ExportSnapshot(t.Context(), sandbox.ExportRequest{Tag: "b"}, io.Discard); enginefake.ReasonOf(err) != sandbox.ReasonTainted {
		t.Error("a tainted snapshot is exported", err)
	}
	if _, err := e.CompactSnapshot(t.Context(), "b", "c", nil); err != nil {
		t.Fatal(err)
	}
	for _, tag := range []string{"b", "c"} {
		res, err = e.Fork(t.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Owner: "acme"})
		if err != nil || res.Children[0].Err != nil {
			t.Fatal(err, res)
		}
		child := res.Children[0].Info
		if env := givenEnv(t, e, child.ID); strings.Contains(env, "API_KEY") || len(child.Secrets) != 1 || child.Secrets[0].Variable != "" {
			t.Error(tag, env, child.Secrets)
		}
	}

	setSecret(t, store, "TOKEN", two)
	if info, err = e.Rollback(t.Context(), id, "a"); err != nil {
		t.Fatal(err)
	}
	if env := givenEnv(t, e, id); !strings.Contains(env, "API_KEY:"+two) || len(info.Secrets) != 1 || info.Secrets[0].Version != 2 {
		t.Error(env, info.Secrets)
	}
	if err := e.ExportSnapshot(t.Context(), sandbox.ExportRequest{Tag: "b"}, io.Discard); enginefake.ReasonOf(err) == sandbox.ReasonTainted {
		t.Error("a rotation does not clear the taint", err)
	}
	if _, err := e.Pause(t.Context(), id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	noFileHas(t, two, h.Cfg.RunDir, h.Cfg.StoreDir)
	setSecret(t, store, "TOKEN", three)
	if info, err = e.Resume(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if env := givenEnv(t, e, id); !strings.Contains(env, "API_KEY:"+three) || info.Secrets[0].Version != 3 {
		t.Error(env, info.Secrets)
	}
	noFileHas(t, three, h.Cfg.RunDir, h.Cfg.StoreDir)
}

// A daemon without the key does not resume a sandbox without its secret: the sandbox stays paused.
func TestWithoutTheKeyASandboxStaysPaused(t *testing.T) {
	h := enginefake.NewHost(t)
	store := secretstest.Open(t, t.TempDir())
	h.Cfg.Secrets = secrets.Source{Store: store}
	e := h.Open()
	setSecret(t, store, "TOKEN", "x")
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny"}, nil); err != nil {
		t.Fatal(err)
	}
	res, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: "a", N: 1, Owner: "acme", Secrets: []sandbox.SecretRef{{Name: "TOKEN"}}})
	if err != nil || res.Children[0].Err != nil {
		t.Fatal(err, res)
	}
	id := res.Children[0].Info.ID
	if _, err := e.Pause(t.Context(), id, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	h.Close(e)
	h.Cfg.Secrets = secrets.Source{Store: secrets.Off()}
	e = h.Open()
	if _, err := e.Resume(t.Context(), id); enginefake.ReasonOf(err) != sandbox.ReasonSecretsOff {
		t.Error(err)
	}
	if info, err := e.Get(id); err != nil || info.Status != sandbox.StatusPaused || len(info.Secrets) != 1 {
		t.Error(info, err)
	}
	h.Close(e)
	h.Cfg.Secrets = secrets.Source{Store: store}
	e = h.Open()
	if _, err := e.Resume(t.Context(), id); err != nil {
		t.Error(err)
	}
}

// header returns the header that forkd-net adds for a sandbox, or the reason why it refuses requests.
func header(n *enginefake.Net, t *testing.T, id string) string {
	t.Helper()
	// The binding of a VM that a rollback has replaced goes with that VM's end.
	enginefake.Eventually(t, "one binding of "+id, func() bool { return len(n.Of(id)) == 1 })
	all := n.Of(id)
	if len(all[0].Spec.Headers) == 0 {
		return ""
	}
	h := all[0].Spec.Headers[0]
	if h.Missing != "" {
		return h.Missing
	}
	return h.Headers["Authorization"]
}

func TestPoliciesReferToSecrets(t *testing.T) {
	h, n := enginefake.NetHost(t)
	store := secretstest.Open(t, t.TempDir())
	h.Cfg.Secrets = secrets.Source{Store: store}
	e := h.Open()
	const one, two = "value-number-one", "value-number-two"
	setSecret(t, store, "KEY", one)
	if _, err := e.CreateSnapshot(t.Context(), sandbox.CreateRequest{Tag: "a", Image: "tiny", Owner: "acme"}, nil); err != nil {
		t.Fatal(err)
	}
	policy := netpolicy.Spec{Default: netpolicy.Deny, Allow: []string{"api.example.com:443"}, Headers: []netpolicy.HeaderRule{
		{Host: "api.example.com", Headers: map[string]string{"X-Plain": "literal"},
			Secrets: map[string]string{"Authorization": "Bearer {KEY}"}}}}
	fork := func(tag, owner string, spec *netpolicy.Spec) sandbox.Info {
		t.Helper()
		res, err := e.Fork(t.Context(), sandbox.ForkRequest{Tag: tag, N: 1, Owner: owner, Network: spec})
		if err != nil || res.Children[0].Err != nil {
			t.Fatal(err, res)
		}
		return res.Children[0].Info
	}
	info := fork("a", "acme", &policy)
	if got := header(n, t, info.ID); got != "Bearer "+one || info.Secrets != nil {
		t.Error(got, info.Secrets)
	}
	noFileHas(t, one, h.Cfg.RunDir, h.Cfg.StoreDir)
	shown, err := e.Network(info.ID)
	if err != nil || shown.Asked.Headers[0].Secrets["Authorization"] != "Bearer {KEY}" || shown.Asked.Headers[0].Headers["X-Plain"] != "***" {
		t.Error(shown, err)
	}

	// Clones of the same owner inherit the reference, and no literal header.
	if _, err := e.Branch(t.Context(), sandbox.BranchRequest{SandboxID: info.ID, Tag: "b"}); err != nil {
		t.Fatal(err)
	}
	child := fork("b", "acme", nil)
	if got := n.Of(child.ID)[0].Spec.Headers[0].Headers; header(n, t, child.ID) != "Bearer "+one || got["X-Plain"] != "" {
		t.Error(got)
	}
	if brief, err := e.SnapshotBrief("b"); err != nil || brief.Secrets != nil {
		t.Error("a reference taints", brief.Secrets, err)
	}
	// Another owner's clone does not: the name would be one of that owner's secrets.
	if _, err := store.Set(secrets.Change{Tenant: "evil", Name: "KEY", Value: []byte("evil's own")}); err != nil {
		t.Fatal(err)
	}
	if other := fork("b", "evil", nil); header(n, t, other.ID) != "" {
		t.Error(header(n, t, other.ID))
	}

	setSecret(t, store, "KEY", two)
	for _, id := range []string{info.ID, child.ID} {
		if got := header(n, t, id); got != "Bearer "+two {
			t.Error("a rotation does not reach a running sandbox:", got)
		}
	}
	if _, err := e.Rollback(t.Context(), info.ID, "a"); err != nil {
		t.Fatal(err)
	}
	if got := header(n, t, info.ID); got != "Bearer "+two {
		t.Error("after a rollback:", got)
	}
	if _, err := e.Pause(t.Context(), info.ID, sandbox.PauseOptions{}); err != nil {
		t.Fatal(err)
	}
	setSecret(t, store, "KEY", one)
	if _, err := e.Resume(t.Context(), info.ID); err != nil {
		t.Fatal(err)
	}
	if got := header(n, t, info.ID); got != "Bearer "+one {
		t.Error("after a resume:", got)
	}
	if _, err := store.Remove("acme", "KEY"); err != nil {
		t.Fatal(err)
	}
	if got := header(n, t, info.ID); !strings.Contains(got, "secret KEY not found") {
		t.Error("a removed secret:", got)
	}
	noFileHas(t, one, h.Cfg.RunDir, h.Cfg.StoreDir)
}
