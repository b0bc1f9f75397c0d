package network

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// rcloneMount is the command of docs/use/buckets.md. Files are uploaded when they are closed, and seen soon by others.
const rcloneMount = "rclone mount --daemon --vfs-cache-mode writes --vfs-write-back 0s --dir-cache-time 1s" +
	" --log-file /tmp/rclone.log" +
	" --s3-provider Other --s3-no-check-bucket --s3-region eu-central-1 --s3-endpoint https://" + bucketHost +
	" :s3:work/mount /mnt"

// TestGuestsMountABucket mounts a bucket with Debian's rclone in a guest that has no keys. The mount works in the
// guest, in its branch, and in a later fork of the branch's snapshot. It takes about a minute.
func TestGuestsMountABucket(t *testing.T) {
	kvmtest.Drawn(t)
	w := shared(t)
	for name, value := range map[string]string{"RCLONE_ID": bucketID, "RCLONE_KEY": bucketKey} {
		if _, err := w.Client.Secrets().Set(t.Context(), name, api.SetSecretRequest{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	policy := api.NetworkPolicy{Allow: []string{bucketHost + ":443"}, Sign: []api.SignRule{{Host: bucketHost, Region: "eu-central-1",
		Secrets: api.SignSecrets{AccessKeyID: "RCLONE_ID", SecretAccessKey: "RCLONE_KEY"},
		Buckets: []api.BucketRule{{Name: "work", Prefix: "mount/"}}}}}
	store := w.far.bucket
	store.put("/work/mount/theirs", "of another host")
	id := w.fork(t, parentTag, policy).ID
	for name, to := range map[string]string{"rclone": "/usr/local/bin/rclone", "fusermount3": "/usr/local/bin/fusermount3"} {
		f, err := os.Open(kvmtest.Fixture(t, name))
		if err != nil {
			t.Fatal(err)
		}
		w.put(t, id, to, f)
		f.Close()
	}
	w.root(t, id, `set -e
		chmod 755 /usr/local/bin/rclone /usr/local/bin/fusermount3
		ln -s fusermount3 /usr/local/bin/fusermount`)
	w.root(t, id, "export HOME=/root; "+rcloneMount+
		" >/tmp/rclone.out 2>&1 </dev/null || { cat /tmp/rclone.out /tmp/rclone.log; exit 1; }")
	w.root(t, id, "grep ' /mnt fuse.rclone' /proc/mounts")

	w.reads(t, id, "theirs", "of another host")
	w.writes(t, id, "file", "of the guest")
	child := w.branch(t, id, api.BranchRequest{Tag: "rclone", N: 1})[0].ID
	w.reads(t, child, "file", "of the guest")
	w.writes(t, child, "child", "of the branch")
	w.writes(t, id, "file", "written after the branch")
	w.reads(t, child, "file", "written after the branch")
	w.reads(t, id, "child", "of the branch")

	later := w.fork(t, "rclone", policy).ID
	w.reads(t, later, "child", "of the branch")
	w.writes(t, later, "later", "of a later fork")
	none := w.fork(t, "rclone", api.NetworkPolicy{}).ID // without the right to the bucket
	if r := w.rootExec(t, none, "timeout 20 cat /mnt/later"); r.ExitCode == 0 {
		t.Errorf("a fork without the policy reads %q", r.Stdout)
	}
	for where, sb := range map[string]string{"the guest": id, "the branch": child} {
		r := w.rootExec(t, sb, "cat /root/.config/rclone/* /tmp/rclone.log; tr '\\0' '\\n' < /proc/$(pidof rclone | cut -d' ' -f1)/environ")
		if strings.Contains(r.Stdout, bucketKey) {
			t.Errorf("%s has the key", where)
		}
	}
}

// rootExec runs a script as root, which may fail.
func (w *world) rootExec(t *testing.T, id, script string) api.ExecResponse {
	t.Helper()
	r, err := w.Client.Exec(t.Context(), id, api.ExecRequest{Args: []string{"sh", "-c", script}, User: "root",
		TimeoutSecs: patience.Seconds()})
	if err != nil {
		t.Fatalf("%s: %q: %v", id, script, err)
	}
	return r
}

// reads waits until a sandbox reads a text from a file of the mount: lists of directories are cached for a second.
func (w *world) reads(t *testing.T, id, file, want string) {
	t.Helper()
	r := w.rootExec(t, id, fmt.Sprintf(`for i in $(seq 60); do
		[ "$(cat /mnt/%[1]s 2>/tmp/cat.err)" = "%[2]s" ] && exit 0; sleep 0.5
	done; cat /mnt/%[1]s; cat /tmp/cat.err /tmp/rclone.log; exit 1`, file, want))
	if r.ExitCode != 0 {
		t.Fatalf("%s reads %s as %s%s, want %q; network log:\n%s", id, file, r.Stdout, r.Stderr, want, w.refusals(t, id))
	}
}

// writes writes a file of the mount, and waits until the storage has it.
func (w *world) writes(t *testing.T, id, file, text string) {
	t.Helper()
	script := fmt.Sprintf("echo '%s' > /mnt/%s || { cat /tmp/rclone.log; exit 1; }", text, file)
	if r := w.rootExec(t, id, script); r.ExitCode != 0 {
		t.Fatalf("%s writes %s: %s%s; network log:\n%s", id, file, r.Stderr, r.Stdout, w.refusals(t, id))
	}
	for end := time.Now().Add(patience); w.far.bucket.get("/work/mount/"+file) != text+"\n"; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			r := w.rootExec(t, id, "cat /tmp/rclone.log")
			t.Fatalf("the storage has %q of %s; rclone: %s; network log:\n%s", w.far.bucket.get("/work/mount/"+file), file,
				r.Stdout, w.refusals(t, id))
		}
	}
}
