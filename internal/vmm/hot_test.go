package vmm

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/guestmem"
	"github.com/forkd/forkd/internal/hotset"
	"github.com/forkd/forkd/internal/vmmctl"
)

// restoreWatched is a rehearsal: its touches are told.
func (s saved) restoreWatched(t *testing.T, like *guestVM) *guestVM {
	t.Helper()
	g := newShell(t, like.shape)
	memory := func(m *guestmem.Map) error {
		if err := s.mapInto(m); err != nil {
			return err
		}
		return m.Watch()
	}
	if err := g.Restore(Image{State: bytes.NewReader(s.state), Memory: memory, Backends: Backends{CID: 4}}, func(string) {}); err != nil {
		t.Fatal(err)
	}
	return g
}

// goesOn waits until a restored counter has counted on.
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
			rehearsal := s.restoreWatched(t, parent)
			rehearsal.goesOn(5)
			if err := rehearsal.Pause(); err != nil {
				t.Fatal(err)
			}
			b, found, err := rehearsal.HotSet()
			if err != nil || found.ReadPages < 10 || found.WrittenPages < 10 {
				t.Fatalf("the rehearsal touched %+v, %v", found, err)
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
				if _, err := child.Populate(bytes.NewReader(b)); err != nil { // of no use, and no harm
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

func TestPopulateRefusesWhatItCannotUse(t *testing.T) {
	g := bootRole(t, "count", shape(128, 1))
	g.waitFor("count 1 ")
	const memory = 128 << 20
	good := hotFile(t, memory, hotset.Run{Offset: 1 << 20, Length: 8192, Written: true}, hotset.Run{Offset: memory - 4096, Length: 4096})
	flipped := bytes.Clone(good)
	flipped[30] ^= 1
	for name, b := range map[string][]byte{
		"nothing": nil, "a flipped bit": flipped, "cut short": good[:len(good)-2],
		"of a larger guest": hotFile(t, 2*memory, hotset.Run{Offset: memory, Length: 4096}),
		"outside memory":    hotFile(t, memory, hotset.Run{Offset: memory, Length: 4096}),
	} {
		if r, err := g.Populate(bytes.NewReader(b)); !errors.Is(err, hotset.ErrDamaged) || r.Runs != 0 {
			t.Errorf("%s: got %+v, %v", name, r, err)
		}
	}
	if _, _, err := g.HotSet(); !errors.Is(err, vmmctl.ErrState) {
		t.Errorf("hot set of a running machine: %v", err)
	}
	large := hotFile(t, memory, hotset.Run{Offset: 0, Length: 4096}, hotset.Run{Offset: 1 << 20, Length: memory - 1<<20, Written: true})
	if r, err := g.Populate(bytes.NewReader(large)); err != nil || r.WrittenPages != 0 || r.ReadPages != 1 {
		t.Errorf("more than half of the memory: got %+v, %v", r, err)
	}
	if r, err := g.Populate(bytes.NewReader(good)); err != nil || r.Runs != 2 {
		t.Errorf("a good set: got %+v, %v", r, err)
	}
	if err := g.Pause(); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Populate(bytes.NewReader(good)); !errors.Is(err, vmmctl.ErrState) {
		t.Errorf("paused: got %v", err)
	}
	if _, err := g.Resume(); err != nil {
		t.Fatal(err)
	}
	g.goesOn(3)
	g.Close()
	if _, err := g.Populate(bytes.NewReader(good)); !errors.Is(err, vmmctl.ErrState) {
		t.Errorf("ended: got %v", err)
	}
}

func TestPopulateOfAGuestThatEnds(t *testing.T) {
	g := bootRole(t, "hello", shape(128, 1))
	good := hotFile(t, 128<<20, hotset.Run{Offset: 1 << 20, Length: 1 << 20})
	for {
		_, err := g.Populate(bytes.NewReader(good))
		if errors.Is(err, vmmctl.ErrState) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond) // the guest has to get on
	}
	if e := g.waitEnd(); e.Kind != vmmctl.ExitPowerOff {
		t.Errorf("ended with %+v, want poweroff", e)
	}
}

func hotFile(t *testing.T, memory int64, runs ...hotset.Run) []byte {
	t.Helper()
	var w hotset.Writer
	for _, r := range runs {
		if err := w.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	return w.Bytes(memory)
}
