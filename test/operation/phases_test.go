package operation

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	wrote := make(chan error, 1)
	go func() {
		_, err := w.try("exec", id, "--", "sh", "-c", "head -c 64M /dev/urandom > ~/a && sync && wc -c < ~/a")
		wrote <- err
	}()
	firing()
	remove()
	select {
	case err := <-wrote:
		if err != nil {
			t.Errorf("the stalled sandbox did not go on: %v", err)
		}
	case <-time.After(3 * time.Minute):
		t.Error("the stalled sandbox did not go on within 3 minutes")
	}
}

func guestsOOM(t *testing.T, w *world, firing func()) {
	ids := w.fork(t, 3)
	defer func() { _, _ = w.try(append([]string{"kill"}, ids...)...) }()
	done := make(chan struct{})
	stop := make(chan struct{})
	for _, id := range ids {
		go func() {
			defer func() { done <- struct{}{} }()
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = w.try("exec", id, "--", "python3", "-c", "b = bytearray(600 << 20); b[::4096] = b'x' * len(b[::4096])")
				}
			}
		}()
	}
	firing()
	close(stop)
	for range ids {
		<-done
	}
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
	w.Forkd(t, "eval", id, "noise = __import__('os').urandom(4 << 20)")
	const made = tag + "-damaged"
	w.root(t, "ls /var/lib/forkd/layers > /tmp/before")
	w.Forkd(t, "branch", id, "--tag", made)
	w.root(t, `cd /var/lib/forkd/layers; ls > /tmp/after; n=$(grep -vxFf /tmp/before /tmp/after | head -1); find "$n" -type f -size +1024k | head -1 > /tmp/victim
		v=$(cat /tmp/victim); chattr -i "$v" 2>/dev/null; dd if=/dev/urandom of="$v" bs=4096 count=1 seek=300 conv=notrunc`)
	if out, err := w.try("snapshot", "verify", made); err == nil {
		t.Errorf("the damaged snapshot is verified: %s", out)
	}
	firing()
	w.Forkd(t, "snapshot", "rm", made)
}

// upgrade restarts the machine with the same programs, copied to other files.
func upgrade(t *testing.T, w *world, _ func()) {
	before, err := filepath.Abs("../../bin/forkd")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(before); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(before, "machine", "start", "--name", w.Name, "--restart", "--yes").CombinedOutput()
	if err != nil {
		t.Fatalf("machine start --restart: %v: %s", err, out)
	}
	t.Logf("%s", out)
}
