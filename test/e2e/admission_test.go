package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// The memory promised to sandboxes is bounded, is freed with them, and is known to the next daemon.
func TestPromisedMemoryIsBounded(t *testing.T) {
	kvmtest.Drawn(t)
	first := shared(t)
	d := secondDaemon(t)
	if err := cloneStore(first, d); err != nil {
		t.Fatal(err)
	}
	d.start()
	d.unchanged()
	before, err := d.c.Capacity(t.Context())
	if err != nil || before.Sandboxes != 0 || before.Admits != api.AdmitsAll {
		t.Fatalf("%+v, %v", before, err)
	}
	one := 1
	res := d.forkSome(api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &one})
	now, err := d.c.Capacity(t.Context())
	if err != nil || now.Sandboxes != 1 {
		t.Fatalf("%+v, %v", now, err)
	}
	for _, r := range now.Resources {
		if r.Resource == "memory" && r.Promised != int64(res.OK()[0].MemoryMiB)<<20 {
			t.Errorf("one of %d MiB is promised %d bytes", res.OK()[0].MemoryMiB, r.Promised)
		}
		if r.Free <= 0 || r.Total < r.Free {
			t.Errorf("%+v", r)
		}
	}
	d.end(syscall.SIGTERM)
	d.Flags = []string{"--memory-overcommit", "0.001"}
	d.start()
	_, err = d.c.Fork(t.Context(), api.CreateSandboxesRequest{SnapshotTag: parentTag, N: &one})
	wantError(t, err, api.CodeNoMemory, "are promised already", "memory_promised")
	if strings.Contains(err.Error(), " 0 MiB are promised already") {
		t.Errorf("the next daemon knows of no promise: %v", err)
	}
	d.alive(res.OK()...)
}
