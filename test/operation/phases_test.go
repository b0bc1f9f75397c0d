package operation

import (
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// theWork is a quiet time with the operations that the continuous work lacks.
func theWork(t *testing.T, w *world, _ func()) {
	w.Forkd(t, "snapshot", "create", "--from", tag, "--exec", "touch /tmp/derived", "--tag", tag+"-derived")
	w.Forkd(t, "snapshot", "rm", tag+"-derived")
	w.Forkd(t, "pool", tag, "1")
	time.Sleep(40 * time.Second) // elapses: alerts need time to fire
	w.Forkd(t, "pool", tag, "0")
}

// killVMMs kills the VMMs of sandboxes of its own.
func killVMMs(t *testing.T, w *world, firing func()) {
	kept := strings.Join(w.pids(t, "forkd-vmm"), " ")
	ids := w.fork(t, 8)
	for _, pid := range w.pids(t, "forkd-vmm") {
		if !strings.Contains(" "+kept+" ", " "+pid+" ") {
			w.root(t, "kill -9 "+pid+" || true")
		}
	}
	firing()
	for _, id := range ids {
		if out, err := w.try("ps", "--format", "{{if eq .id \""+id+"\"}}{{.status}}{{end}}"); err == nil && out == "running" {
			t.Errorf("%s is %s, want failed", id, out)
		}
		_, _ = w.try("kill", id)
	}
}

func killHelpers(t *testing.T, w *world, _ func()) {
	for _, line := range []string{"forkd-spawn serve", "/usr/bin/forkd-net --control"} {
		pids := w.pids(t, line)
		if len(pids) == 0 {
			t.Errorf("no process %q", line)
			continue
		}
		w.root(t, "kill -9 "+strings.Join(pids, " "))
		eventually(t, time.Minute, line+" runs again", func() bool { return len(w.pids(t, line)) > 0 })
		time.Sleep(5 * time.Second) // elapses: work goes on with the new process
	}
}

func killDaemon(t *testing.T, w *world, firing func()) {
	for range 3 {
		old := w.pids(t, daemonLine)
		w.root(t, "kill -9 "+strings.Join(old, " "))
		eventually(t, time.Minute, "the daemon answers again", func() bool {
			_, err := w.try("ps")
			return err == nil
		})
		w.answers(t, w.ids)
	}
	firing()
}

func hangDaemon(t *testing.T, w *world, firing func()) {
	pid := strings.Join(w.pids(t, daemonLine), " ")
	w.root(t, "kill -STOP "+pid)
	defer w.root(t, "kill -CONT "+pid)
	firing()
}

// drain forgets a drain that waits for the sandboxes.
func drain(t *testing.T, w *world, firing func()) {
	w.Forkd(t, "drain", "--detach", "--wait")
	defer w.Forkd(t, "drain", "--cancel")
	firing()
}

// fillDisk fills the store's disk while a sandbox writes.
func fillDisk(t *testing.T, w *world, firing func()) {
	id := w.fork(t, 1)[0]
	defer w.Forkd(t, "kill", id)
	const file = "/var/lib/forkd/filler"
	w.root(t, "n=$(df -k /var/lib/forkd | awk 'NR==2 {print $4}'); fallocate -l $((n - 4096))k "+file)
	removed := false
	remove := func() {
		if !removed {
			w.root(t, "rm -f "+file)
			removed = true
		}
	}
	defer remove()
	// A call to a stalled sandbox ends with the reason. Its programs go on when there is room again.
	w.Forkd(t, "exec", "-d", id, "--", "sh", "-c", "head -c 64M /dev/urandom > ~/a && sync && wc -c < ~/a > ~/written")
	firing()
	if out, err := w.try("exec", id, "--", "true"); err == nil || !strings.Contains(err.Error(), "no room on the host") {
		t.Errorf("exec in the stalled sandbox: %s, %v", out, err)
	}
	remove()
	eventually(t, 3*time.Minute, "the stalled sandbox goes on", func() bool {
		out, err := w.try("exec", id, "--", "sh", "-c", "cat ~/written")
		return err == nil && strings.TrimSpace(out) == "67108864"
	})
}

// hog lets the guest's kernel kill processes at a limit of 8 MiB: an emulated CPU takes half a minute for the guest's
// whole memory.
const hog = `cd /sys/fs/cgroup; echo +memory > cgroup.subtree_control; mkdir -p small; echo 8M > small/memory.max
for i in 1 2 3 4 5 6 7 8; do sh -c 'echo $$ > small/cgroup.procs; exec tail /dev/zero'; done`

func guestsOOM(t *testing.T, w *world, firing func()) {
	ids := w.fork(t, 3)
	stop := make(chan struct{})
	var hogs sync.WaitGroup
	for _, id := range ids {
		hogs.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = w.try("exec", "-u", "root", id, "--", "sh", "-c", hog)
				}
			}
		})
	}
	defer func() {
		close(stop)
		hogs.Wait()
		_, _ = w.try(append([]string{"kill"}, ids...)...)
	}()
	firing()
}

func guessKeys(t *testing.T, w *world, firing func()) {
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
				req, _ := http.NewRequest(http.MethodGet, w.URL+"/v1/sandboxes", nil)
				req.Header.Set("Authorization", "Bearer guess")
				if resp, err := http.DefaultClient.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		}
	}()
	firing()
	close(stop)
	<-done
}

// damage changes bytes of a snapshot's own layer on the disk, and restores them.
func damage(t *testing.T, w *world, firing func()) {
	id := w.fork(t, 1)[0]
	defer w.Forkd(t, "kill", id)
	w.Forkd(t, "eval", id, "noise = __import__('os').urandom(48 << 20)") // more than the layers of the work have
	const made = tag + "-damaged"
	w.root(t, "ls /var/lib/forkd/layers/layers > /tmp/before")
	w.Forkd(t, "branch", id, "--tag", made)
	eventually(t, time.Minute, "digests of "+made, func() bool {
		_, err := w.try("snapshot", "verify", made)
		return err == nil
	})
	w.root(t, `cd /var/lib/forkd/layers/layers && find . -type f -size +40960k | cut -c3- | grep -vxFf /tmp/before > /tmp/victim
		dd if=/dev/urandom of="$(head -1 /tmp/victim)" bs=4096 count=1 seek=300 conv=notrunc`)
	if out, err := w.try("snapshot", "verify", made); err == nil || !strings.Contains(err.Error(), "is damaged in") {
		t.Errorf("the damaged snapshot is verified: %s, %v", out, err)
	}
	firing()
	w.Forkd(t, "snapshot", "rm", made)
}

// upgrade restarts the machine with another setting, as for other programs. Its sandboxes are paused and resumed.
func upgrade(t *testing.T, w *world, _ func()) {
	config, err := os.ReadFile(w.config)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w.config, append(config, "--log-level=debug\n"...))
	cmd := exec.Command("../../bin/forkd", "machine", "start", "--name", w.Name, "--serve-config", w.config, "--restart", "--pause")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "is up after") {
		t.Fatalf("machine start --restart: %v: %s", err, out)
	}
	t.Logf("%s", out)
}
