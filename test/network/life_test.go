package network

import (
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/domain/audit"
)

// back is the maximum time until new flows work after a kill of forkd-net.
const back = 10 * time.Second

// forkd-net is restarted automatically. Flows handed over by it survive, relayed flows are reset,
// and new flows work.
func TestAKilledForkdNetComesBack(t *testing.T) {
	w := shared(t)
	p := injecting(secret, "example.com")
	w.set(t, w.guest, api.SetNetworkRequest{Network: &p})
	w.run(t, w.guest, `handed = dial("example.com", `+echoPort+`); relayed = dial("example.com", 443)`)
	w.wantText(t, w.guest, `exchange(handed, "before")`, "before")
	old := w.NetProcesses()
	if len(old) != 1 {
		t.Fatalf("processes of forkd-net: %v", old)
	}
	killed := time.Now()
	if err := syscall.Kill(old[0], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	out := w.try(t, w.guest, `relayed.recv(1).decode()`)
	if out.Error != "ECONNRESET" { // a normal end would make a partial download look complete
		t.Errorf("a flow that it relayed: %s, want a reset", out)
	}
	w.wantText(t, w.guest, `exchange(handed, "after")`, "after")
	eventually(t, "new flow", func() bool {
		out = w.try(t, w.guest, `fetch("http://example.com/")`)
		return out.Error == ""
	})
	if took := time.Since(killed); took > back {
		t.Errorf("new flows worked after %s, want %s", took, back)
	}
	if now := w.NetProcesses(); len(now) != 1 || slices.Equal(now, old) {
		t.Errorf("processes of forkd-net: %v, before %v", now, old)
	}
	w.wantRefused(t, w.guest, `addresses("secret.example.org")`, "EAI_NONAME") // the policy is active again
	// The secret is active again, and the guest trusts the new certificate.
	w.trusts(t, w.guest)
	w.wantText(t, w.guest, `fetch("https://example.com/?by=reborn", trusted)`, "the web")
	w.far.wantRequest(t, "reborn", "the web", secret)
}

// Sandboxes keep their network while no daemon runs, and the next daemon adopts it unchanged. It
// also writes the refusals of the meantime to its audit log.
func TestFlowsOutliveAKilledDaemon(t *testing.T) {
	w := shared(t, "example.com")
	began := time.Now() // earlier refusals may be unreported: a test kills forkd-net, which stores them
	w.run(t, w.guest, `answerer = Answerer("example.com", `+handPort+`)`)
	c := w.far.conn(t)
	w.run(t, w.guest, `refused = Caller("`+other+`", `+echoPort+`)`)
	defer w.run(t, w.guest, `refused.on = False`)
	wantEcho(t, c, "with the daemon")
	old := w.NetProcesses()
	w.End(syscall.SIGKILL)
	wantEcho(t, c, "without a daemon")
	killed := time.Now()
	eventually(t, "refusals without a daemon", func() bool { return w.deniedTo(t, other, killed) > 20 })
	refused := w.deniedTo(t, other, began)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	wantEcho(t, c, "with another daemon")
	eventually(t, "flow in the list", func() bool {
		flows, err := w.Client.Flows(t.Context(), w.guest)
		return err == nil && slices.ContainsFunc(flows, func(f api.NetworkFlow) bool { return f.Far == web+":"+handPort })
	})
	told := 0
	err := w.Client.Audit(t.Context(), client.AuditRequest{Sandbox: w.guest, Action: "network.denied"}, func(line []byte) error {
		if e, err := audit.Decode(line); err == nil && strings.Contains(e.Object, other) {
			told += e.Count
		}
		return nil
	})
	if err != nil || told < refused {
		t.Errorf("the audit log tells of %d of %d refusals: %v", told, refused, err)
	}
	if now := w.NetProcesses(); !slices.Equal(now, old) {
		t.Errorf("processes of forkd-net: %v, before %v", now, old)
	}
	w.wantText(t, w.guest, `fetch("http://example.com/")`, "the web")
	w.allow(t, w.guest)
	if n, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the next daemon was to cut the flow: %d bytes, %v", n, err)
	}
}
