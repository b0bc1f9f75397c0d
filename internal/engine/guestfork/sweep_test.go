package guestfork

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"testing"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// snapshots holds transient snapshots, each with the tag of its parent; busy ones are in use.
type snapshots struct {
	parents map[string]string
	busy    map[string]bool
}

func (s snapshots) Transient() (total int, unneeded []string, err error) {
	for _, tag := range slices.Sorted(maps.Keys(s.parents)) {
		if !slices.Contains(slices.Collect(maps.Values(s.parents)), tag) {
			unneeded = append(unneeded, tag)
		}
	}
	return len(s.parents), unneeded, nil
}

func (s snapshots) Delete(tag string, _ sandbox.DeleteOptions) error {
	if s.busy[tag] {
		return sandbox.Errorf(sandbox.ErrConflict, "", "%s is in use", tag)
	}
	delete(s.parents, tag)
	return nil
}

func sweeper(s snapshots, closing *bool) *Families {
	begin := func(ctx context.Context) (context.Context, func(), error) {
		if *closing {
			return nil, nil, sandbox.ErrClosing
		}
		return ctx, func() {}, nil
	}
	f := New(Config{Snapshots: s, Begin: begin, Log: slog.New(slog.DiscardHandler)})
	f.any.Store(true)
	return f
}

func TestSweep(t *testing.T) {
	for _, c := range []struct {
		name    string
		s       snapshots
		held    string
		closing bool
		left    []string
		again   bool
	}{
		{name: "a chain goes from its leaf on", s: snapshots{parents: map[string]string{"a": "", "b": "a", "c": "b"}}},
		{name: "a fork that is under way keeps its own", s: snapshots{parents: map[string]string{"a": "", "b": "a", "c": ""}},
			held: "b", left: []string{"a", "b"}},
		{name: "one in use for a moment is looked at again", s: snapshots{map[string]string{"a": "", "b": ""}, map[string]bool{"b": true}},
			left: []string{"b"}, again: true},
		{name: "a daemon that closes leaves all to the next", s: snapshots{parents: map[string]string{"a": "", "b": "a"}},
			closing: true, left: []string{"a", "b"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := sweeper(c.s, &c.closing)
			if c.held != "" {
				f.held[c.held] = true
			}
			again := f.Sweep(t.Context())
			if left := slices.Sorted(maps.Keys(c.s.parents)); !slices.Equal(left, c.left) || again != c.again {
				t.Errorf("left are %q, again %t; want %q, %t", left, again, c.left, c.again)
			}
		})
	}
}

// Without transient snapshots, the end of a sandbox does not wake the sweep.
func TestSweepLaterIsForThoseThatThereAre(t *testing.T) {
	closing := false
	f := sweeper(snapshots{}, &closing)
	f.SweepLater()
	f.SweepLater() // it does not wait for the sweep
	if len(f.sweep) != 1 {
		t.Errorf("the sweep was woken %d times, want once", len(f.sweep))
	}
	<-f.sweep
	f.Sweep(t.Context()) // finds no snapshots
	if f.SweepLater(); len(f.sweep) != 0 {
		t.Error("the sweep was woken for nothing")
	}
}
