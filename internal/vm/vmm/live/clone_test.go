package live

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/vmm"
)

func init() {
	guestCommands["load"] = cmdLoad
	guestCommands["report"] = cmdReport
}

// load is the guest's work: a repeated checksum on every CPU.
var load [8]struct{ rounds, wrong atomic.Int64 }

// cmdLoad keeps every CPU busy from now on.
func cmdLoad([]string) (string, error) {
	n := runtime.NumCPU()
	for cpu := range n {
		data := randomBytes(64<<10, uint64(cpu))
		want := sha256.Sum256(data)
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(cpu)
			if unix.SchedSetaffinity(0, &set) != nil {
				load[cpu].wrong.Add(1)
			}
			unix.Setpriority(unix.PRIO_PROCESS, 0, 19) // of this thread: commands have precedence
			for {
				if sha256.Sum256(data) != want {
					load[cpu].wrong.Add(1)
				}
				load[cpu].rounds.Add(1)
			}
		}()
	}
	return fmt.Sprint(n), nil
}

// report is a guest's state in one line. A busy guest takes its time per command.
type report struct {
	CID                       uint32
	Monotonic, Boottime, Wall int64 // clocks in milliseconds
	Reseeded                  int   // number of forks noticed by the kernel
	Random                    string
	Rounds                    [2]int64 // of the work of the first two CPUs
	Wrong                     int64    // wrong checksums
}

func cmdReport([]string) (string, error) {
	var r report
	var err error
	if r.CID, err = vsock.ContextID(); err != nil {
		return "", err
	}
	for id, to := range map[int32]*int64{unix.CLOCK_MONOTONIC: &r.Monotonic, unix.CLOCK_BOOTTIME: &r.Boottime, unix.CLOCK_REALTIME: &r.Wall} {
		var ts unix.Timespec
		if err := unix.ClockGettime(id, &ts); err != nil {
			return "", err
		}
		*to = ts.Nano() / 1e6
	}
	n, err := cmdDmesg([]string{"crng reseeded due to virtual machine fork"})
	if err != nil {
		return "", err
	}
	r.Reseeded, _ = strconv.Atoi(n)
	var random [16]byte
	rand.Read(random[:])
	r.Random = hex.EncodeToString(random[:])
	for i := range r.Rounds {
		r.Rounds[i] = load[i].rounds.Load()
		r.Wrong += load[i].wrong.Load()
	}
	b, err := json.Marshal(r)
	return string(b), err
}

// report waits until the guest reports a wanted state.
func (v *serveVM) report(t *testing.T, want func(report) bool) (r report) {
	t.Helper()
	v.eventually(t, func(answer string) bool {
		if err := json.Unmarshal([]byte(answer), &r); err != nil {
			t.Fatal(err)
		}
		return want(r)
	}, "report")
	return r
}

const generations = 5

// testClones saves a guest with busy CPUs and sockets, and restores it repeatedly.
func testClones(t *testing.T, parent *serveVM, open func() []vmm.Disk) {
	parent.ask(t, "load")
	held := parent.connectAndStay(t)
	defer held.Close()
	stop := traffic(parent)
	before := parent.report(t, func(r report) bool { return min(r.Rounds[0], r.Rounds[1]) > 3 })
	asked := time.Now()
	s := parent.save()
	uptimeMax := before.Monotonic + time.Since(asked).Milliseconds()
	t.Run("a paused machine's memory stands still", func(t *testing.T) { checkSameMemory(t, parent, s) })
	time.Sleep(time.Second) // elapses: it must not pass in the clones

	seen := map[string]int{}
	for i := range generations {
		t.Run(fmt.Sprint("clone ", i+1), func(t *testing.T) {
			cid := uint32(100 + i)
			restored := time.Now()
			v := s.restoreServe(t, parent, cid, [16]byte{byte(i + 1)}, open()...)
			v.checkHeldReset(t)
			// The generator is reseeded a moment after the guest runs again, as is the address read.
			first := v.report(t, func(r report) bool { return r.CID == cid && r.Reseeded > 0 })
			passed := time.Since(restored).Milliseconds()
			if m := first.Monotonic; m < before.Monotonic || m > uptimeMax+passed {
				t.Errorf("uptime was %d to %d ms at the save and is %d ms, %d ms after the restore", before.Monotonic, uptimeMax, m, passed)
			}
			// Its wall clock continues from the save: stepping it is the agent's job.
			if skew := (first.Wall - first.Monotonic) - (before.Wall - before.Monotonic); skew < -100 || skew > 100 {
				t.Errorf("the wall clock has moved %d ms against the uptime", skew)
			}
			if skew := (first.Boottime - first.Monotonic) - (before.Boottime - before.Monotonic); skew < -100 || skew > 100 {
				t.Errorf("the boot time has moved %d ms against the uptime", skew)
			}
			if first.Rounds[0] < before.Rounds[0] || first.Rounds[1] < before.Rounds[1] {
				t.Errorf("its work stands at %d rounds, before the save it was at %d", first.Rounds, before.Rounds)
			}
			echo(t, v, 500_000)
			second := v.report(t, func(r report) bool { return r.Rounds[0] > first.Rounds[0]+2 && r.Rounds[1] > first.Rounds[1]+2 })
			if second.Wrong != 0 {
				t.Errorf("%d checksums are wrong", second.Wrong)
			}
			if j, twice := seen[second.Random]; twice {
				t.Errorf("it draws the same random bytes as clone %d", j)
			}
			seen[second.Random] = i + 1
			v.ask(t, "disk-read /dev/vda 4096")
			v.Close()
		})
	}
	t.Run("the source goes on", func(t *testing.T) {
		if _, err := parent.Resume(); err != nil {
			t.Fatal(err)
		}
		stop() // the frozen connection is served to its end
		echo(t, parent, 1000)
		parent.report(t, func(r report) bool { return r.CID == 3 && r.Reseeded == 0 })
		// So is the connection that it kept open all the time, until its client ends it.
		if err := held.SetReadDeadline(time.Now().Add(200 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := held.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the held connection: %v, want nothing to read", err)
		}
		held.Close()
		parent.waitFor("stay: ended: ")
	})
}

// traffic keeps connections to the guest busy until it is stopped or they break.
func traffic(v *serveVM) (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		b := randomBytes(100_000, 0)
		for {
			select {
			case <-done:
				return
			default:
			}
			c, err := v.tryDial(portEcho)
			if err != nil {
				return // paused for longer than a client's timeout
			}
			go func() {
				c.Write(b)
				c.CloseWrite()
			}()
			buf := make([]byte, len(b))
			for err == nil {
				_, err = c.Read(buf)
			}
			c.Close()
		}
	}()
	return func() {
		close(done)
		<-ended
	}
}

// checkSameMemory saves a second time and compares.
func checkSameMemory(t *testing.T, v *serveVM, first saved) {
	f, err := os.Create(filepath.Join(t.TempDir(), "again"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := v.SaveMemory(f); err != nil {
		t.Fatal(err)
	}
	if !sameContent(t, f, first.memory) {
		t.Error("the memory of a paused machine has changed")
	}
	if _, err := v.SaveState(); err != nil {
		t.Errorf("save the state a second time: %v", err)
	}
}

func sameContent(t *testing.T, a, b *os.File) bool {
	t.Helper()
	const chunk = 1 << 20
	x, y := make([]byte, chunk), make([]byte, chunk)
	for at := int64(0); ; at += chunk {
		n, err := a.ReadAt(x, at)
		m, err2 := b.ReadAt(y, at)
		if n != m || !bytes.Equal(x[:n], y[:m]) {
			return false
		}
		if err != nil || err2 != nil {
			return errors.Is(err, err2)
		}
	}
}
