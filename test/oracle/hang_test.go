package oracle

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/test/harness"
)

// The evidence of a soak on a hanging guest names the position in the guest's kernel, its clocks
// and its lineage. This guest does not hang: it is idle, and its layers are intact.
func TestEvidenceOfAGuest(t *testing.T) {
	d := daemon(t)
	t.Cleanup(func() { clean(t, d) })
	sbs := d.Fork(t, parentTag, 2)
	text, err := d.Evidence(t.Context(), sbs[0].ID, sbs[1].ID)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(text)
	for _, want := range []string{
		"CPL 0", "+0x", "kvm-clock: version", "== snapshot hang-" + sbs[0].ID, "== snapshot " + parentTag, `"mode": "full"`,
		"stack ", "== layers of " + parentTag, "msg=branched",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the evidence has no %q", want)
		}
	}
	if hung, err := d.Hung(t.Context()); err != nil || len(hung) != 0 {
		t.Errorf("sandboxes that hang: %v, %v", hung, err)
	}
}

// noHangs checks for hanging guests until the test ends, and fails the test with the evidence on
// the first.
func noHangs(t *testing.T, d *harness.Daemon) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(5 * time.Second): // elapses: a hang lasts
			}
			hung, err := d.Hung(ctx)
			if err != nil || len(hung) == 0 { // the daemon may be down
				continue
			}
			text, err := d.Evidence(ctx, hung[0].ID, answering(ctx, d, hung[0].ID))
			if err != nil && strings.Count(text, "==") < 3 { // the guest or the daemon was killed
				continue
			}
			t.Errorf("%s hangs: %s (%v)\n%s", hung[0].ID, hung[0].Warning, err, text)
			return
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
}

// answering returns another sandbox than the hanging one, or an empty string. All sandboxes here
// come from the parent's boot.
func answering(ctx context.Context, d *harness.Daemon, but string) string {
	list, _ := d.Client.ListSandboxes(ctx)
	for _, sb := range list {
		if sb.ID != but && sb.Warning == "" && sb.PID != nil {
			return sb.ID
		}
	}
	return ""
}
