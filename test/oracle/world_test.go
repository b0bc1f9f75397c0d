package oracle

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/testing/kvmtest"
	"github.com/forkd/forkd/test/harness"
)

const (
	imageName = "box"
	parentTag = "parent"
)

var patience = harness.Patience()

// shared is the daemon of all tests here. Its parent is a busybox image with a disk.
var shared struct {
	once sync.Once
	err  error
	dir  string
	d    *harness.Daemon
}

func TestMain(m *testing.M) {
	code := m.Run()
	if d := shared.d; d != nil {
		err := d.Finish()
		fmt.Println(d.Account())
		if err != nil {
			fmt.Fprintln(os.Stderr, "oracle: after all tests:", err)
			code = max(code, 1)
		}
		os.RemoveAll(shared.dir)
	}
	os.Exit(code)
}

func daemon(t *testing.T) *harness.Daemon {
	t.Helper()
	kvmtest.Require(t)
	shared.once.Do(func() { shared.err = start(t) })
	if shared.err != nil {
		t.Fatalf("start the shared daemon: %v", shared.err)
	}
	return shared.d
}

func start(t *testing.T) (err error) {
	if shared.dir, err = harness.TempDir("or"); err != nil {
		return err
	}
	if shared.d, err = harness.New(t, shared.dir); err != nil {
		return err
	}
	sb := harness.SmallImage{Upper: kvmtest.Fixture(t, "py.upper.disk")}
	if err := harness.PutSmallImage(t, shared.d.Images(), imageName, sb); err != nil {
		return err
	}
	shared.d.Flags = []string{"--identity-timeout", "3m"} // guests share few CPUs with all other work here
	if err := shared.d.Start(); err != nil {
		return err
	}
	_, err = shared.d.Client.CreateSnapshot(t.Context(), api.CreateSnapshotRequest{Tag: parentTag, Image: imageName}, nil)
	return err
}

// sound checks that no guest kernel has reported an error on its console, and that no sandbox has
// ended except the ones in told.
func sound(t *testing.T, d *harness.Daemon, told map[string]bool) {
	t.Helper()
	for _, said := range d.Trouble() {
		t.Errorf("a guest's console: %s", said)
	}
	list, err := d.Client.ListSandboxes(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if sb.Status != api.SandboxRunning && sb.Status != api.SandboxPaused && !told[sb.ID] {
			console, _ := d.Client.Console(context.Background(), sb.ID)
			t.Errorf("%s is %s: %s; its console ends with %q", sb.ID, sb.Status, sb.Reason, console[max(0, len(console)-4<<10):])
		}
	}
}

// clean kills all sandboxes and deletes all snapshots except the parent.
func clean(t *testing.T, d *harness.Daemon) {
	t.Helper()
	ctx := context.Background()
	list, err := d.Client.ListSandboxes(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, sb := range list {
		if err := d.Kill(sb.ID); err != nil && !client.IsNotFound(err) {
			t.Error(err)
		}
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		left := 0
		tags, err := d.Client.ListSnapshots(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range tags {
			if s.Tag != parentTag {
				left++
				err = d.Client.DeleteSnapshot(ctx, s.Tag, client.DeleteOptions{}) // parents go in a later round
			}
		}
		if left == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d snapshots are left: %v", left, err)
		}
	}
}
