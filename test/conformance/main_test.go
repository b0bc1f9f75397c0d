package conformance

import (
	"context"
	"os"
	"syscall"
	"testing"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

// Variables that select the runtime to test.
const (
	urlVar      = "FORKD_CONFORMANCE_URL"      // http://HOST:PORT or unix:///PATH; if empty, a daemon is started
	tokenVar    = "FORKD_CONFORMANCE_TOKEN"    // may be empty
	imageVar    = "FORKD_CONFORMANCE_IMAGE"    // with Python and NumPy; default python-numpy
	snapshotVar = "FORKD_CONFORMANCE_SNAPSHOT" // of such an image: forked instead of a new snapshot
)

// hint explains how to configure a runtime that refuses the first request.
const hint = "the runtime, its token, and an image or a snapshot with Python and NumPy are named by " +
	urlVar + ", " + tokenVar + ", " + imageVar + " and " + snapshotVar + " (docs/inside/testing.md)"

// runtime returns a client of the runtime to test.
func runtime(t *testing.T, prepare ...func(*harness.Daemon) error) *client.Client {
	t.Helper()
	if url := os.Getenv(urlVar); url != "" {
		c, err := client.New(client.Options{URL: url, Token: os.Getenv(tokenVar)})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	kvmtest.Require(t)
	dir, err := harness.TempDir("cf")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d, err := harness.New(t, dir)
	if err != nil {
		t.Fatal(err)
	}
	d.NoOracle = true // canaries check here; test/oracle compares pages, and a soak does so here, too
	if err := harness.PythonImage(t, d.Images()); err != nil {
		t.Fatal(err)
	}
	for _, f := range prepare {
		if err := f(d); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := d.Finish(); err != nil {
			t.Error(err)
		}
		for _, pid := range d.NetProcesses() { // it would outlive the daemon by a minute
			_ = syscall.Kill(pid, syscall.SIGTERM)
		}
		if t.Failed() {
			t.Logf("the daemon's log:\n%s", d.Log())
		}
	})
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
	return d.Client
}

func image() string {
	if name := os.Getenv(imageVar); name != "" {
		return name
	}
	return "python-numpy"
}

// parent makes the snapshot that the first sandboxes are forked from, with the canaries in it. It
// creates the snapshot, or branches a child of a given one.
func (s *suite) parent() {
	s.t.Helper()
	s.tag = s.newTag()
	if from := os.Getenv(snapshotVar); from != "" {
		if _, err := s.c.Snapshot(s.t.Context(), from); err != nil {
			s.t.Fatalf("find the parent %s: %v; %s", from, err, hint)
		}
		id := s.fork(from, 1)[0]
		s.eval(id, startCode())
		s.branch(id, api.BranchRequest{Tag: s.tag, Mode: api.BranchFull})
		return
	}
	req := api.CreateSnapshotRequest{Tag: s.tag, Image: image(), Warm: startCode()}
	if _, err := s.c.CreateSnapshot(s.t.Context(), req, nil); err != nil {
		s.t.Fatalf("create the parent from image %s: %v; %s", req.Image, err, hint)
	}
	s.snapshots = append(s.snapshots, s.tag)
}

// clean removes all objects that the suite made, the newest first.
func (s *suite) clean() {
	ctx := context.Background()
	for _, id := range s.sandboxes {
		if err := s.c.Kill(ctx, id); err != nil && !client.IsNotFound(err) {
			s.t.Error(err)
		}
	}
	for i := len(s.snapshots) - 1; i >= 0; i-- {
		if err := s.c.DeleteSnapshot(ctx, s.snapshots[i], client.DeleteOptions{}); err != nil {
			s.t.Error(err)
		}
	}
}
