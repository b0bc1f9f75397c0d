package live

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmm"
)

func shutGate(t *testing.T) *startgate.Gate {
	t.Helper()
	g, err := startgate.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// A waiter must be roused even if an interrupt comes just before its vCPU's thread waits at the
// gate, and is missed.
func TestAWaiterAtTheGateIsRoused(t *testing.T) {
	entrance, err := startgate.Load(shutGate(t).File())
	if err != nil {
		t.Fatal(err)
	}
	defer entrance.Close()
	v, waits, passed := &vcpu{}, make(chan struct{}), make(chan bool, 1)
	go func() {
		runtime.LockOSThread()
		v.tid = unix.Gettid()
		close(waits)
		passed <- entrance.Wait(v.stop.Load)
	}()
	<-waits
	for state := ""; state != "S"; state = threadState(t, v.tid) {
		runtime.Gosched()
	}
	v.stop.Store(true)
	calm := (&gatedStart{entrance: entrance}).rouse([]*vcpu{v})
	defer calm()
	select {
	case ok := <-passed:
		if ok {
			t.Error("it passed a shut gate")
		}
	case <-time.After(5 * time.Second):
		t.Fatal("it still waits")
	}
}

func TestMachinesBehindAGateBeginTogetherOrNotAtAll(t *testing.T) {
	parent := bootRole(t, "count", shape(256, 2))
	parent.waitFor("count 1 ")
	s, gate := parent.save(), shutGate(t)
	var armed []*guestVM
	for i := range 3 {
		g := newShell(t, parent.shape)
		c := s.blueprint(t, g.Machine, 4)
		c.Gate = gate.File()
		want := vmm.StateArmed
		if i == 2 {
			c.Prepare, want = true, vmm.StatePrepared
		}
		if _, err := g.Restore(c); err != nil {
			t.Fatal(err)
		}
		if st := g.Status().State; st != want {
			t.Fatalf("it is %s behind a shut gate", st)
		}
		armed = append(armed, g)
	}
	start := time.Now()
	if err := armed[0].Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("closing one behind a shut gate took %s", took)
	}
	time.Sleep(time.Second) // elapses: none may run behind a shut gate
	for _, g := range armed[1:] {
		if n, _ := g.counts(); len(n) > 0 {
			t.Fatal("one ran behind a shut gate")
		}
	}
	opened := startgate.Now()
	if err := gate.Open(); err != nil {
		t.Fatal(err)
	}
	for _, g := range armed[1:] {
		at, err := g.Resume()
		if err != nil || at < opened {
			t.Errorf("it ran %d ns after the gate opened, %v", at-opened, err)
		}
		g.goesOn(3)
	}
}

// threadState returns the kernel's state letter of a thread of this process (proc_pid_stat(5)): S
// sleeps.
func threadState(t *testing.T, tid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))[0]
}
