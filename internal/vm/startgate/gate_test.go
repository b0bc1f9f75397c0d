package startgate

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func open(t *testing.T) (*Gate, *Entrance) {
	t.Helper()
	g, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	e, err := Load(g.File())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	e.lookUp = 50 * time.Millisecond
	return g, e
}

func never() bool { return false }

func TestAllPassAtOnceWhenItOpens(t *testing.T) {
	g, e := open(t)
	var passed atomic.Int32
	done := make(chan bool)
	for range 20 {
		go func() { ok := e.Wait(never); passed.Add(1); done <- ok }()
	}
	time.Sleep(3 * e.lookUp) // elapses: longer than a waiter sleeps at a stretch
	if n := passed.Load(); n != 0 {
		t.Fatalf("%d passed a shut gate", n)
	}
	if err := g.Open(); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if !<-done {
			t.Error("a waiter gave up")
		}
	}
	if !e.Wait(never) {
		t.Error("an open gate did not let a late one pass")
	}
}

func TestAWaiterGivesUp(t *testing.T) {
	_, e := open(t)
	var tired atomic.Bool
	done := make(chan bool)
	go func() { done <- e.Wait(tired.Load) }()
	tired.Store(true)
	select {
	case ok := <-done:
		if ok {
			t.Error("it passed a shut gate")
		}
	case <-time.After(5 * time.Second):
		t.Error("it still waits")
	}
}

// A VMM has the descriptor and a mapping. Neither allows writing.
func TestOnlyTheMakerWrites(t *testing.T) {
	g, _ := open(t)
	fd := int(g.File().Fd())
	if _, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != unix.EPERM {
		t.Errorf("map for writing: %v", err)
	}
	if _, err := unix.Pwrite(fd, []byte{1}, 0); err != unix.EPERM {
		t.Errorf("write: %v", err)
	}
	if err := unix.Ftruncate(fd, 0); err != unix.EPERM {
		t.Errorf("cut off, which would be SIGBUS for those who wait: %v", err)
	}
}

func TestWhatIsNoGate(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "write-only"))
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, err := Load(f); err == nil {
		t.Error("a closed file was taken")
	}
}
