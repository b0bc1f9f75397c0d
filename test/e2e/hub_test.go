package e2e

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// TestASnapshotGoesThroughARegistry pushes a branch, removes it, pulls it, and finds its processes in a fork.
func TestASnapshotGoesThroughARegistry(t *testing.T) {
	d := shared(t)
	small := d.small()
	d.unchanged()
	s := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer s.Close()
	ref := strings.TrimPrefix(s.URL, "http://") + "/team/agent:v1"
	sb := d.forkOf(small, 1)[0].ID
	d.sh(sb, "sleep 4711 >/dev/null 2>&1 &")
	d.forget("hub-sent")
	if _, err := d.c.Branch(t.Context(), sb, api.BranchRequest{Tag: "hub-sent"}); err != nil {
		t.Fatal(err)
	}
	d.kill(sb)
	must := func(args ...string) string {
		t.Helper()
		code, out, errs := d.cli(args...)
		if code != 0 {
			t.Fatalf("forkd %q: exit code %d, %s", args, code, errs)
		}
		return out
	}
	must("push", "hub-sent", ref)
	if out := must("hub", "ls", strings.TrimSuffix(ref, ":v1")); !strings.Contains(out, "hub-sent") {
		t.Errorf("the list is %s", out)
	}
	if err := d.c.DeleteSnapshot(t.Context(), "hub-sent", client.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	d.forget("hub-sent")
	must("pull", ref)
	n := 1
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: "hub-sent", N: &n})
	if len(res.Failed()) > 0 {
		t.Fatal(res.Failed()[0].Error)
	}
	if got := d.sh(res.Sandboxes[0].ID, "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"); !strings.Contains(got, "sleep 4711") {
		t.Errorf("its processes are %s", got)
	}
	if code, _, errs := d.cli("pull", ref); code == 0 || !strings.Contains(errs, "exists") {
		t.Errorf("a tag that is taken: exit code %d, %s", code, errs)
	}
}
