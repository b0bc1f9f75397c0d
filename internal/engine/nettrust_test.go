package engine

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
	"github.com/forkd/forkd/internal/engine/trust"
	"github.com/forkd/forkd/internal/net/netpolicy"
)

const secretValue = "Bearer 7f3a9c01-never-in-a-guest"

func withSecret(spec netpolicy.Spec) netpolicy.Spec {
	spec.Headers = []netpolicy.HeaderRule{{Host: "example.org", Headers: map[string]string{"Authorization": secretValue}}}
	return spec
}

// bundle returns the content of a fake guest's bundle.
func (h *host) bundle(sb sandbox.Info) string {
	b, _ := os.ReadFile(guestFile(filepath.Join(h.cfg.RunDir, "fake"), sb.PID, trust.Bundle))
	return string(b)
}

func TestAGuestTrustsTheCertificateIfHeadersAreSet(t *testing.T) {
	h, n := netHost(t)
	e := h.open()
	h.snapshot(e, "a")
	plain := h.forkNet(e, "a", 1, &someNet)[0]
	if env := h.eval(e, plain.ID, "env"); strings.Contains(env, "SSL_CERT_FILE") || h.bundle(plain) != "" {
		t.Errorf("without headers: %s, and a bundle %q", env, h.bundle(plain))
	}
	spec := withSecret(someNet)
	sb := h.forkNet(e, "a", 1, &spec)[0]
	if env := h.eval(e, sb.ID, "env"); !strings.Contains(env, "SSL_CERT_FILE:"+trust.Bundle) ||
		!strings.Contains(env, "NODE_EXTRA_CA_CERTS:"+trust.Own) {
		t.Errorf("with headers: %s", env)
	}
	if got := h.bundle(sb); !strings.Contains(got, "certificate 0 of a") {
		t.Errorf("the bundle is %q", got)
	}
	n.kill()
	eventually(t, "the certificate of the next forkd-net", func() bool {
		return strings.Contains(h.bundle(sb), "certificate 1 of a") && !strings.Contains(h.bundle(sb), "certificate 0")
	})
	if _, err := e.SetNetwork(t.Context(), plain.ID, sandbox.NetworkRequest{Policy: spec}); err != nil {
		t.Fatal(err)
	}
	if got := h.bundle(plain); !strings.Contains(got, "certificate 1 of a") {
		t.Errorf("after its policy got headers: %q", got)
	}
}

// lines is a log that is checked later.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// Only the VM's journal, which is in the run directory, may contain it: the next daemon needs it.
func TestASecretIsNowhereButInItsVMsJournal(t *testing.T) {
	h, _ := netHost(t)
	var log lines
	h.cfg.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	e := h.open()
	h.snapshot(e, "a")
	spec := withSecret(someNet)
	sb := h.forkNet(e, "a", 1, &spec)[0]
	h.branchNet(e, sb.ID, "b", nil)
	if _, err := e.Rollback(t.Context(), sb.ID, "b"); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(h.eval(e, sb.ID, "env"), secretValue) {
		t.Error("it is in the guest's environment")
	}
	h.close(e)
	journals := 0
	for _, dir := range []string{h.cfg.RunDir, h.cfg.StoreDir} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() {
				return nil // sockets, and files removed meanwhile
			}
			b, _ := os.ReadFile(path)
			if !bytes.Contains(b, []byte(secretValue)) {
				return nil
			}
			info, err := d.Info()
			if err == nil && info.Mode().Perm()&0o077 == 0 && strings.HasPrefix(path, h.cfg.RunDir) && strings.HasSuffix(path, ".json") {
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
	log.mu.Lock()
	defer log.mu.Unlock()
	if strings.Contains(log.b.String(), secretValue) {
		t.Error("it is in the log")
	}
}
