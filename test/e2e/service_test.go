package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/images/image"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// serviceImage makes the small image with a recipe's service, for one test.
func (d *daemon) serviceImage(name, start string, ready image.Ready) {
	d.t.Helper()
	if err := harness.PutSmallImage(d.t, d.images(), name, harness.SmallImage{Start: start, Ready: &ready}); err != nil {
		d.t.Fatal(err)
	}
	dir := filepath.Join(d.images(), name)
	d.t.Cleanup(func() { os.RemoveAll(dir) })
}

// A snapshot includes a recipe's running service once it is ready, so each child has the service
// from the start.
func TestAServiceIsInTheSnapshot(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.serviceImage("serves", "echo $$ begins; mkdir /tmp/www; echo from the service >/tmp/www/page; sleep 1; "+
		"exec httpd -f -p 127.0.0.1:8080 -h /tmp/www", image.Ready{Port: 8080})
	if _, err := d.c.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: "serves", Image: "serves"}, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.c.DeleteSnapshot(context.Background(), "serves", client.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	n := 2
	for _, sb := range d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "serves", N: &n}).OK() {
		if got := d.page(sb.ID, 8080, "/page"); got != "from the service\n" {
			t.Errorf("child %d serves %q", sb.Index, got)
		}
		// The child's process was started before the snapshot.
		pid, ok := strings.CutSuffix(d.sh(sb.ID, "cat /tmp/forkd-start.log"), " begins")
		if got := d.sh(sb.ID, "tr '\\0' ' ' </proc/"+pid+"/cmdline"); !ok || !strings.HasPrefix(got, "httpd -f") {
			t.Errorf("child %d: process %s is %q", sb.Index, pid, got)
		}
	}
}

// A service that fails, or is not ready in time, leaves no snapshot. The error includes its last
// output.
func TestAServiceThatIsNotReady(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	d.serviceImage("fails", "echo no such database >&2; exit 7", image.Ready{Port: 8080})
	wantError(t, d.create(api.CreateSnapshotRequest{Image: "fails"}), api.CodeInvalid, "warm_up_failed",
		"the service has failed while it was waited for port 8080 to be listened on", "no such database")
	d.serviceImage("late", "echo begins; exec sleep 600", image.Ready{Log: &image.ReadyLog{Text: "is up"}, TimeoutSecs: 1})
	wantError(t, d.create(api.CreateSnapshotRequest{Image: "late"}), api.CodeInvalid, "warm_up_failed",
		`waited 1s for "is up" in /tmp/forkd-start.log in vain`, "begins")
}

// page returns the response of a server in a sandbox.
func (d *daemon) page(id string, port uint16, path string) string {
	d.t.Helper()
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return d.c.DialPort(ctx, id, port)
	}}
	r, err := http.NewRequestWithContext(d.t.Context(), http.MethodGet, "http://sandbox"+path, nil)
	if err != nil {
		d.t.Fatal(err)
	}
	resp, err := tr.RoundTrip(r)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		d.t.Error(err)
	}
	return string(b)
}
