package network_test

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/enginefake"
	"github.com/forkd/forkd/internal/engine/trust"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

const secretValue = "Bearer 7f3a9c01-never-in-a-guest"

func withSecret(spec netpolicy.Spec) netpolicy.Spec {
	spec.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": secretValue}}}
	return spec
}

// bundle returns the content of a fake guest's bundle.
func bundle(h *enginefake.Host, sb sandbox.Info) string {
	b, _ := os.ReadFile(enginefake.GuestFile(filepath.Join(h.Cfg.RunDir, "fake"), sb.PID, trust.Bundle))
	return string(b)
}

func TestAGuestTrustsTheCertificateIfHeadersAreSet(t *testing.T) {
	h, n := enginefake.NetHost(t)
	e := h.Open()
	h.Snapshot(e, "a")
	plain := enginefake.ForkNet(h, e, "a", 1, &enginefake.SomeNet)[0]
	if env := h.Eval(e, plain.ID, "env"); strings.Contains(env, "SSL_CERT_FILE") || bundle(h, plain) != "" {
		t.Errorf("without headers: %s, and a bundle %q", env, bundle(h, plain))
	}
	spec := withSecret(enginefake.SomeNet)
	sb := enginefake.ForkNet(h, e, "a", 1, &spec)[0]
	if env := h.Eval(e, sb.ID, "env"); !strings.Contains(env, "SSL_CERT_FILE:"+trust.Bundle) ||
		!strings.Contains(env, "NODE_EXTRA_CA_CERTS:"+trust.Own) {
		t.Errorf("with headers: %s", env)
	}
	if got := bundle(h, sb); !strings.Contains(got, "certificate 0 of a") {
		t.Errorf("the bundle is %q", got)
	}
	n.Kill()
	enginefake.Eventually(t, "the certificate of the next forkd-net", func() bool {
		return strings.Contains(bundle(h, sb), "certificate 1 of a") && !strings.Contains(bundle(h, sb), "certificate 0")
	})
	if _, err := e.SetNetwork(t.Context(), plain.ID, sandbox.NetworkRequest{Policy: spec}); err != nil {
		t.Fatal(err)
	}
	if got := bundle(h, plain); !strings.Contains(got, "certificate 1 of a") {
		t.Errorf("after its policy got headers: %q", got)
	}
}

// Only the VM's journal, which is in the run directory, may contain it: the next daemon needs it.
func TestASecretIsNowhereButInItsVMsJournal(t *testing.T) {
	h, _ := enginefake.NetHost(t)
	var log enginefake.Log
	h.Cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := h.Open()
	h.Snapshot(e, "a")
	spec := withSecret(enginefake.SomeNet)
	sb := enginefake.ForkNet(h, e, "a", 1, &spec)[0]
	branchNet(h, e, sb.ID, "b", nil)
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.Eval(e, sb.ID, "env"), secretValue) {
		t.Error("it is in the guest's environment")
	}
	h.Close(e)
	journals := 0
	for _, dir := range []string{h.Cfg.RunDir, h.Cfg.StoreDir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // sockets, and files removed meanwhile
			}
			b, _ := os.ReadFile(path)
			if !bytes.Contains(b, []byte(secretValue)) {
				return nil
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o077 == 0 && strings.HasPrefix(path, h.Cfg.RunDir) && strings.HasSuffix(path, ".json") {
				journals++
				return nil
			}
			t.Errorf("it is in %s", path)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if journals > 1 {
		t.Errorf("it is in %d journals", journals)
	}
	if log.Count(secretValue) != 0 {
		t.Error("it is in the log")
	}
}
