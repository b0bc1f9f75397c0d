package live

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/guestmem"
	"github.com/forkd/forkd/internal/vm/vmm"
	"github.com/forkd/forkd/internal/vm/workingset"
)

// restoreWatched restores with recording of touched pages.
func (s saved) restoreWatched(t *testing.T, like *guestVM) *guestVM {
	t.Helper()
	g := newShell(t, like.shape)
	c := s.blueprint(t, g.Machine, 4)
	c.Watch = true
	if _, err := g.Restore(c); err != nil {
		t.Fatal(err)
	}
	return g
}

// goesOn waits until a restored counter has advanced.
func (g *guestVM) goesOn(by int) {
	g.t.Helper()
	for deadline := time.Now().Add(bootLimit); ; time.Sleep(5 * time.Millisecond) {
		if n, _ := g.counts(); len(n) > by {
			return
		}
		if time.Now().After(deadline) {
			g.t.Fatalf("the guest did not count to %d within %v", by, bootLimit)
		}
	}
}

func TestPopulatedGuestsGoOn(t *testing.T) {
	for _, cpus := range []int{1, 2} {
		t.Run(fmt.Sprint(cpus, " vCPUs"), func(t *testing.T) {
			parent := bootRole(t, "count", shape(256, cpus))
			parent.waitFor("count 5 ")
			s := parent.save()
			recorded := s.restoreWatched(t, parent)
			recorded.goesOn(5)
			if err := recorded.Pause(); err != nil {
				t.Fatal(err)
			}
			b, found, err := recorded.WorkingSet()
			if err != nil || found.ReadPages < 10 || found.WrittenPages < 10 {
				t.Fatalf("the recorded touched %+v, %v", found, err)
			}
			t.Logf("touched: %+v", found)
			for range 3 {
				child, err := s.restore(t, parent)
				if err != nil {
					t.Fatal(err)
				}
				got, err := child.Populate(bytes.NewReader(b))
				if err != nil || got.ReadPages != found.ReadPages || got.WrittenPages != found.WrittenPages {
					t.Fatalf("populated %+v, want %+v, %v", got, found, err)
				}
				child.goesOn(5)
				if _, err := child.Populate(bytes.NewReader(b)); err != nil { // useless and harmless
					t.Fatal(err)
				}
				child.goesOn(10)
				if n, _ := child.counts(); n[len(n)-1]-n[0] != len(n)-1 {
					t.Errorf("it counted %v", n)
				}
			}
		})
	}
}

// privateDirty returns the number of private dirty pages of the machine's guest memory.
func (g *guestVM) privateDirty() (n int64) {
	g.t.Helper()
	err := g.mem.Accessed(func(_, length int64, written bool) error {
		if written {
			n += length / guestmem.PageSize
		}
		return nil
	})
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func TestAShellIsPopulatedAheadOfItsChild(t *testing.T) {
	parent := bootRole(t, "count", shape(256, 1))
	parent.waitFor("count 5 ")
	s := parent.save()
	recorded := s.restoreWatched(t, parent)
	recorded.goesOn(5)
	if err := recorded.Pause(); err != nil {
		t.Fatal(err)
	}
	b, found, err := recorded.WorkingSet()
	if err != nil || found.ReadPages < 10 || found.WrittenPages < 10 {
		t.Fatalf("the recorded touched %+v, %v", found, err)
	}
	gate := shutGate(t)
	g := newShell(t, parent.shape)
	if _, err := PopulateShell(g.Machine, bytes.NewReader(b)); !errors.Is(err, vmm.ErrState) {
		t.Errorf("a shell without memory: got %v", err)
	}
	c := s.blueprint(t, g.Machine, 4)
	c.Gate, c.Prepare = gate.File(), true
	if _, err := g.Restore(c); err != nil {
		t.Fatal(err)
	}
	before := g.privateDirty()
	ahead, err := PopulateShell(g.Machine, bytes.NewReader(b))
	if err != nil || ahead.ReadPages == 0 || ahead.WrittenPages != 0 {
		t.Fatalf("mapped ahead %+v of %+v, %v", ahead, found, err)
	}
	if n := g.privateDirty() - before; n != 0 {
		t.Errorf("that made %d pages the shell's own", n)
	}
	rest, err := g.Populate(bytes.NewReader(b))
	if err != nil || rest.ReadPages != found.ReadPages-ahead.ReadPages || rest.WrittenPages != found.WrittenPages {
		t.Errorf("after %+v it mapped %+v of %+v, %v", ahead, rest, found, err)
	}
	if again, err := g.Populate(bytes.NewReader(b)); err != nil || again.Runs != 0 {
		t.Errorf("once more it mapped %+v, %v", again, err)
	}
	if err := gate.Open(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Resume(); err != nil {
		t.Fatal(err)
	}
	g.goesOn(5)
	if n, _ := g.counts(); n[len(n)-1]-n[0] != len(n)-1 {
		t.Errorf("it counted %v", n)
	}
	if _, err := PopulateShell(g.Machine, bytes.NewReader(b)); !errors.Is(err, vmm.ErrState) {
		t.Errorf("a running one: got %v", err)
	}
}

func TestPopulateRefusesWhatItCannotUse(t *testing.T) {
	g := bootRole(t, "count", shape(128, 1))
	g.waitFor("count 1 ")
	const memory = 128 << 20
	good := workingSetFile(t, memory, workingset.Run{Run: extent.Run{Offset: 1 << 20, Length: 8192}, Written: true}, workingset.Run{Run: extent.Run{Offset: memory - 4096, Length: 4096}})
	flipped := bytes.Clone(good)
	flipped[30] ^= 1
	for name, b := range map[string][]byte{
		"nothing": nil, "a flipped bit": flipped, "cut short": good[:len(good)-2],
		"of a larger guest": workingSetFile(t, 2*memory, workingset.Run{Run: extent.Run{Offset: memory, Length: 4096}}),
		"outside memory":    workingSetFile(t, memory, workingset.Run{Run: extent.Run{Offset: memory, Length: 4096}}),
	} {
		if r, err := g.Populate(bytes.NewReader(b)); !errors.Is(err, workingset.ErrDamaged) || r.Runs != 0 {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
	if _, _, err := g.WorkingSet(); !errors.Is(err, vmm.ErrState) {
		t.Errorf("working set of a running machine: %v", err)
	}
	large := workingSetFile(t, memory, workingset.Run{Run: extent.Run{Offset: 0, Length: 4096}}, workingset.Run{Run: extent.Run{Offset: 1 << 20, Length: memory - 1<<20}, Written: true})
	if r, err := g.Populate(bytes.NewReader(large)); err != nil || r.WrittenPages != 0 || r.ReadPages != 1 {
		t.Errorf("more than half of the memory: got %+v, %v", r, err)
	}
	if r, err := g.Populate(bytes.NewReader(good)); err != nil || r.Runs != 2 {
		t.Errorf("a good set: got %+v, %v", r, err)
	}
	if err := g.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Populate(bytes.NewReader(good)); !errors.Is(err, vmm.ErrState) {
		t.Errorf("paused: got %v", err)
	}
	if _, err := g.Resume(); err != nil {
		t.Fatal(err)
	}
	g.goesOn(3)
	g.Close()
	if _, err := g.Populate(bytes.NewReader(good)); !errors.Is(err, vmm.ErrState) {
		t.Errorf("ended: got %v", err)
	}
}

func TestPopulateOfAGuestThatEnds(t *testing.T) {
	g := bootRole(t, "hello", shape(128, 1))
	good := workingSetFile(t, 128<<20, workingset.Run{Run: extent.Run{Offset: 1 << 20, Length: 1 << 20}})
	for {
		_, err := g.Populate(bytes.NewReader(good))
		if errors.Is(err, vmm.ErrState) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // the guest needs time
	}
	if e := g.waitEnd(); e.Kind != vmm.ExitPowerOff {
		t.Errorf("ended with %+v, want poweroff", e)
	}
}

func workingSetFile(t *testing.T, memory int64, runs ...workingset.Run) []byte {
	t.Helper()
	var w workingset.Writer
	for _, r := range runs {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return w.Bytes(memory)
}
