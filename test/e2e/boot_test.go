package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// create tries to make a snapshot "bad" and returns the error. It fails the test if there is none.
func (d *daemon) create(req api.CreateSnapshotRequest) error {
	d.t.Helper()
	req.Tag = "bad"
	_, err := d.c.CreateSnapshot(d.t.Context(), req, nil)
	if err == nil {
		d.t.Fatal("the snapshot was made")
	}
	return err
}

func TestAKernelThatIsNone(t *testing.T) {
	d := shared(t)
	d.unchanged()
	text := file(t, "vmlinux", []byte(strings.Repeat("this is no kernel\n", 1000)))
	d.sub("of an image", func(t *testing.T) {
		d.badImage("no-kernel", imageFiles{kernel: text})
		wantError(t, d.create(api.CreateSnapshotRequest{Image: "no-kernel"}), api.CodeBootFailed, "create snapshot bad", "kernel_unusable")
	})
	d.sub("given by path", func(t *testing.T) {
		below := filepath.Join(d.Dir, "no-kernel") // below the folder of --guest-files
		if err := link(text, below); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(below)
		err := d.create(api.CreateSnapshotRequest{Kernel: below, Rootfs: kvmtest.Fixture(t, "root.erofs")})
		wantError(t, err, api.CodeBootFailed, "create snapshot bad", "kernel_unusable")
	})
}

func TestARootImageCutShort(t *testing.T) {
	kvmtest.Drawn(t)
	d := shared(t)
	d.unchanged()
	b, err := os.ReadFile(kvmtest.Fixture(t, "root.erofs"))
	if err != nil {
		t.Fatal(err)
	}
	d.sub("since it was built", func(t *testing.T) {
		d.badImage("cut", imageFiles{root: file(t, "root.erofs", b)})
		if err := os.Truncate(d.images()+"/cut/root.erofs", int64(len(b)/2)); err != nil {
			t.Fatal(err)
		}
		wantError(t, d.create(api.CreateSnapshotRequest{Image: "cut"}), api.CodeConflict, "image cut", "root.erofs", "image_damaged")
	})
	d.sub("from the beginning", func(t *testing.T) {
		d.badImage("short", imageFiles{root: file(t, "root.erofs", b[:8192])})
		wantError(t, d.create(api.CreateSnapshotRequest{Image: "short"}), api.CodeBootFailed,
			"create snapshot bad", "the console's last lines:", "forkd-agent: boot failed")
	})
}

func TestAGuestThatPanicsAtBoot(t *testing.T) {
	d := shared(t)
	d.unchanged()
	// Debian's kernel without its initrd has no driver for its disk.
	err := d.create(api.CreateSnapshotRequest{Kernel: kvmtest.Fixture(t, "vmlinux"), Rootfs: kvmtest.Fixture(t, "root.erofs")})
	wantError(t, err, api.CodeBootFailed, "create snapshot bad", "kernel panicked: VFS: Unable to mount root fs",
		"the console's last lines:", "panic+0x")
}

// The guest has enough time to boot and print a message on a busy machine. It waits in parallel
// with the other tests with their own daemon.
func TestAGuestThatNeverGetsReady(t *testing.T) {
	t.Parallel()
	kvmtest.Drawn(t)
	d := secondDaemon(t)
	d.badImage("silent", imageFiles{initrd: ownInitrd(t)})
	d.start()
	d.unchanged()
	const limit = 30
	began := time.Now()
	err := d.create(api.CreateSnapshotRequest{Image: "silent", BootWaitSecs: limit})
	wantError(t, err, api.CodeBootFailed, "create snapshot bad", "no ready signal after 30s",
		"the console's last lines:", "e2e: waiting for something that never happens")
	if took := time.Since(began); took < limit*time.Second {
		t.Errorf("the guest had %s only", took)
	}
}
