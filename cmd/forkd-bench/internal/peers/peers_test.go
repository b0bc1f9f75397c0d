package peers

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure/measuretest"
)

// fakePeer makes guests with or without answers, as configured.
type fakePeer struct {
	absent, broken, mute bool
	open                 atomic.Int64 // guests, and the state made by Prepare
}

func (p *fakePeer) Name() string { return "fake" }

func (p *fakePeer) Available() error {
	if p.absent {
		return missing("it is not here")
	}
	return nil
}

func (p *fakePeer) Prepare(context.Context) error { p.open.Add(1); return nil }
func (p *fakePeer) Close() error                  { p.open.Add(-1); return nil }

func (p *fakePeer) Start(context.Context, int) (Guest, error) {
	if p.broken {
		return nil, errors.New("no guest today")
	}
	p.open.Add(1)
	return fakeGuest{p}, nil
}

type fakeGuest struct{ p *fakePeer }

func (g fakeGuest) Ask(context.Context) error {
	if g.p.mute {
		return errAnswer
	}
	return nil
}

func (g fakeGuest) Processes() []int { return []int{os.Getpid()} }
func (g fakeGuest) Close() error     { return g.p.Close() }

func TestARaceHasARowForEach(t *testing.T) {
	all := []*fakePeer{{}, {absent: true}, {broken: true}, {mute: true}}
	var peers []Peer
	for _, p := range all {
		peers = append(peers, p)
	}
	rows, err := Race(t.Context(), peers, 5, func(string) {})
	if err != nil || len(rows) != len(all) {
		t.Fatalf("%+v, %v", rows, err)
	}
	if r := rows[0]; r.OK != 5 || r.Reason != "" || r.PSSKiB <= 0 || r.AnsweredMS < r.AnsweredP50MS {
		t.Errorf("%+v", r)
	}
	for i, want := range []string{"", "it is not here", "no guest today", errAnswer.Error()} {
		if !strings.Contains(rows[i].Reason, want) || want != "" && rows[i].OK != 0 {
			t.Errorf("row %d: %+v", i, rows[i])
		}
		if left := all[i].open.Load(); left != 0 {
			t.Errorf("row %d: %d are left", i, left)
		}
	}
}

func TestARaceEndsWithItsCaller(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Race(ctx, []Peer{&fakePeer{}}, 1, func(string) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestPlot(t *testing.T) {
	f := Plot([]Row{
		{Peer: "forkd fork, 8 shells", N: 8, OK: 8, StartedMS: 100, AnsweredMS: 200, PSSKiB: 2048, MemAvailableDeltaKiB: 3072},
		{Peer: "runc run", N: 8, Reason: "there is no runc\nat all"},
	})
	if len(f.Panels) != 2 || !slices.Equal(f.Panels[0].Ticks, []string{"forkd fork, 8 shells"}) || f.Panels[1].Series[1].Values[0] != 3 {
		t.Fatalf("%+v", f)
	}
	var b bytes.Buffer
	if err := f.SVG(&b); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"forkd fork, 8 shells", "started", "answered", "PSS", "runc run did not run: there is no runc"} {
		if !strings.Contains(b.String(), ">"+word+"<") {
			t.Errorf("the drawing lacks %q", word)
		}
	}
	if err := Plot(nil).SVG(&b); err != nil {
		t.Error(err)
	}
}

// The archive of a tree has no links out of the tree, and packing opens only regular files.
func TestPackTree(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "usr/bin"), 0o755), os.WriteFile(filepath.Join(root, "usr/bin/python3"), []byte("py"), 0o755),
		os.Symlink("usr/bin", filepath.Join(root, "bin"))); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := PackTree(&b, root); err != nil {
		t.Fatal(err)
	}
	// busybox would take any bytes in the place of ustar's name prefix for a prefix.
	if prefix := b.Bytes()[345:500]; strings.Trim(string(prefix), "\x00") != "" {
		t.Errorf("the first header has %q where a prefix would be", prefix)
	}
	var names []string
	for r := tar.NewReader(&b); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, strings.TrimSpace(h.Name+" "+h.Linkname))
	}
	if want := []string{"bin usr/bin", "usr/", "usr/bin/", "usr/bin/python3"}; !slices.Equal(trimmed(names), trimmed(want)) {
		t.Errorf("got %q", names)
	}
}

func trimmed(all []string) (out []string) {
	for _, s := range all {
		out = append(out, strings.TrimSuffix(s, "/"))
	}
	return out
}

func TestAProgramOfTheTreeSeesItsOwnPaths(t *testing.T) {
	root := t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(root, "usr/sbin"), 0o755), os.WriteFile(filepath.Join(root, "usr/sbin/no-such-runtime"), nil, 0o755)); err != nil {
		t.Fatal(err)
	}
	h := &Host{Root: root}
	p, err := h.find("no-such-runtime")
	if err != nil || !p.tree || p.path != "/usr/sbin/no-such-runtime" {
		t.Fatalf("%+v, %v", p, err)
	}
	if got := p.view(filepath.Join(root, "work", "a")); got != "/work/a" {
		t.Errorf("it sees %q", got)
	}
	if cmd := p.command(t.Context(), "x"); cmd.SysProcAttr.Chroot != root {
		t.Errorf("its root is %q", cmd.SysProcAttr.Chroot)
	}
	var absent *NotHereError
	if _, err := h.find("nowhere-at-all"); !errors.As(err, &absent) {
		t.Errorf("got %v", err)
	}
}

func TestHoweverForkdsRaceEndsNothingIsLeft(t *testing.T) {
	measuretest.InterruptEach(t, func(ctx context.Context, d *measuretest.Daemon) error {
		_, err := Forkd(ctx, ForkdConfig{Client: d.Client, Floors: measuretest.Floors(), Tag: "py", N: 2, Pool: 2})
		return err
	})
}
