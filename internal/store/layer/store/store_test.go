package store

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/leaf/storeerr"
	"github.com/forkd/forkd/internal/store/layer"
)

func TestACommittedLayerIsFoundAgain(t *testing.T) {
	s := open(t, t.TempDir())
	base := mustWrite(t, s, layer.ID{}, 1, false)
	diff := mustWrite(t, s, base.View, 2, true)
	again := open(t, s.folder.dir)
	c, err := again.Chain(base.ID, diff.ID)
	must(t, err)
	defer c.Close()
	p := make([]byte, 256*block)
	if _, err := c.ReadAt(p, 0); err != nil || p[0] != 0 || p[10*block] != 2 || p[100*block] != 0 {
		t.Errorf("read %d %d %d, %v", p[0], p[10*block], p[100*block], err)
	}
	all, err := again.List()
	must(t, err)
	for _, e := range all {
		if e.Hashed != (e.ID == diff.ID) || e.Err != nil || e.Info.DataBytes != 90*block {
			t.Errorf("listed as %+v", e)
		}
	}
	if want := sorted(base.ID, diff.ID); !slices.Equal(listed(t, again), want) {
		t.Errorf("listed %v, want %v", listed(t, again), want)
	}
	if _, err := base.File().WriteAt([]byte{1}, 0); err == nil {
		t.Error("a committed layer can be written through its handle")
	}
}

func TestADiscardedDraftLeavesNothing(t *testing.T) {
	s := open(t, t.TempDir())
	d, err := draft(s, layer.ID{}, 1)
	must(t, err)
	d.Discard()
	d.Discard()
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
	if _, err := d.Commit(); err == nil {
		t.Error("it was committed")
	}
	if _, err := s.Create(layer.Spec{Kind: layer.Disk, Size: 5}, DraftOptions{}); err == nil || len(files(t, s)) != 0 {
		t.Errorf("a spec that is none: %v, %v", err, files(t, s))
	}
}

func TestALayerReplacesNone(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, false)
	twin := spec(layer.ID{})
	twin.ID = h.ID
	d, err := s.Create(twin, DraftOptions{})
	must(t, err)
	if _, err := d.Commit(); !errors.Is(err, os.ErrExist) {
		t.Errorf("a second layer of an ID: %v", err)
	}
	if got := files(t, s); len(got) != 1 {
		t.Errorf("there are %v, want the first layer", got)
	}
}

func TestWhatIsNotThereOrNotRight(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, true)
	none := layer.NewID()
	_, chainErr := s.Chain(h.ID, none)
	_, getErr := s.Get(none)
	_, verifyErr := s.Verify(t.Context(), nil, none)
	for name, err := range map[string]error{
		"get": getErr, "chain": chainErr, "verify": verifyErr, "release": s.Unpin("nobody"),
		"hash": s.Hash(t.Context(), none, nil), "pin": s.Pin("a", h.ID, none),
	} {
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := s.Chain(h.ID, h.ID); !errors.Is(err, layer.ErrChain) {
		t.Errorf("no chain: %v", err)
	}
	must(t, os.Rename(s.folder.layerPath(h.ID), s.folder.layerPath(none)))
	if _, err := open(t, s.folder.dir).Get(none); !errors.Is(err, layer.ErrDamaged) {
		t.Errorf("under another name: %v", err)
	}
	must(t, os.Symlink(s.folder.layerPath(none), s.folder.layerPath(h.ID)))
	if _, err := open(t, s.folder.dir).Get(h.ID); err == nil {
		t.Error("a link was opened")
	}
}

func TestAStoreThatWasMovedOrCopiedWorks(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "here"))
	base := mustWrite(t, s, layer.ID{}, 1, true)
	diff := mustWrite(t, s, base.View, 2, true)
	must(t, s.Pin("snap", base.ID, diff.ID))
	there := filepath.Join(t.TempDir(), "there")
	must(t, os.CopyFS(there, os.DirFS(s.folder.dir)))
	moved := filepath.Join(t.TempDir(), "moved")
	must(t, os.Rename(s.folder.dir, moved))
	for _, dir := range []string{there, moved} {
		s := open(t, dir)
		if r, err := s.GC(false); err != nil || len(r.Layers) != 0 {
			t.Errorf("GC: %+v, %v", r, err)
		}
		v, err := s.Verify(t.Context(), nil)
		if err != nil || v.Layers != 2 || len(v.Damaged) != 0 || len(v.Unhashed) != 0 || v.Bytes != base.FileBytes()+diff.FileBytes() {
			t.Errorf("verify: %+v, %v", v, err)
		}
	}
}

func TestVerifyTellsDamagedFromUnhashed(t *testing.T) {
	s := open(t, t.TempDir())
	good, plain := mustWrite(t, s, layer.ID{}, 1, true), mustWrite(t, s, layer.ID{}, 2, false)
	content, header, sums := mustWrite(t, s, layer.ID{}, 3, true), mustWrite(t, s, layer.ID{}, 4, true), mustWrite(t, s, layer.ID{}, 5, true)
	flip := func(path string, at int64) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte{99}, at)
		must(t, err)
	}
	flip(s.folder.layerPath(content.ID), 5*block)
	flip(s.folder.layerPath(header.ID), 200)
	flip(s.folder.digestsPath(sums.ID), 80)
	var last, total int64
	v, err := open(t, s.folder.dir).Verify(t.Context(), func(d, n int64) { last, total = d, n })
	must(t, err)
	if v.Layers != 5 || !slices.Equal(v.Unhashed, []layer.ID{plain.ID}) || last != total || v.Bytes != good.FileBytes()+content.FileBytes() {
		t.Errorf("found %+v, progress %d of %d", v, last, total)
	}
	for id, want := range map[layer.ID]string{content.ID: "changed since", header.ID: "checksum of its header", sums.ID: "digests have changed"} {
		i := slices.IndexFunc(v.Damaged, func(d Damage) bool { return d.Layer == id })
		if i < 0 || !strings.Contains(v.Damaged[i].Detail, want) || len(v.Damaged) != 3 {
			t.Errorf("damage %+v, want one with %q", v.Damaged, want)
		}
	}
	all, err := open(t, s.folder.dir).List()
	must(t, err)
	for _, e := range all {
		if (e.Err != nil) != (e.ID == header.ID) {
			t.Errorf("listed %+v", e)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Verify(ctx, nil, good.ID); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
}

func TestHashMakesTheDigestsOnce(t *testing.T) {
	s := open(t, t.TempDir())
	h := mustWrite(t, s, layer.ID{}, 1, false)
	pauses := 0
	pause := func(context.Context) error { pauses++; return nil }
	must(t, s.Hash(t.Context(), h.ID, pause))
	must(t, s.Hash(t.Context(), h.ID, pause))
	if pauses != 2 || !s.Hashed(h.ID) { // 90 blocks are two chunks
		t.Errorf("%d pauses, hashed %v", pauses, s.Hashed(h.ID))
	}
	if v, err := s.Verify(t.Context(), nil, h.ID); err != nil || len(v.Damaged)+len(v.Unhashed) != 0 || v.Bytes != h.FileBytes() {
		t.Errorf("verify: %+v, %v", v, err)
	}
}

func TestTheReserveIsKept(t *testing.T) {
	s, err := Open(t.TempDir(), Options{Reserve: 1 << 20})
	must(t, err)
	free := int64(0)
	s.folder.free = func(string) (int64, error) { return free, nil }
	free = 1<<20 + 90*block - 1
	if _, err := draft(s, layer.ID{}, 1); !errors.Is(err, storeerr.ErrNoSpace) || !strings.Contains(err.Error(), "including the reserve") {
		t.Errorf("before: %v", err)
	}
	free = 1 << 30
	d, err := s.Create(spec(layer.ID{}), DraftOptions{})
	must(t, err)
	must(t, d.Data(0, bytes.Repeat([]byte{1}, 80*block)))
	free = 1 << 20
	if err := d.Data(80*block, bytes.Repeat([]byte{1}, 80*block)); !errors.Is(err, storeerr.ErrNoSpace) {
		t.Errorf("while writing: %v", err)
	}
	if _, err := d.Commit(); !errors.Is(err, storeerr.ErrNoSpace) {
		t.Errorf("commit: %v", err)
	}
	if err := s.Pin("a"); !errors.Is(err, storeerr.ErrNoSpace) {
		t.Errorf("pin: %v", err)
	}
	if got := files(t, s); len(got) != 0 {
		t.Errorf("left over: %v", got)
	}
	if n, err := freeBytes(s.folder.dir); err != nil || n <= 0 {
		t.Errorf("this disk has %d bytes free: %v", n, err)
	}
}

func TestACompactedChainShowsTheSame(t *testing.T) {
	s := open(t, t.TempDir())
	base := mustWrite(t, s, layer.ID{}, 1, false)
	mid := mustWrite(t, s, base.View, 2, false)
	top := mustWrite(t, s, mid.View, 3, true)
	h, err := s.Compact(t.Context(), []*layer.Layer{base.Layer, mid.Layer, top.Layer}, 0, 2, 0, nil)
	must(t, err)
	defer h.Close()
	if s.Hashed(h.ID) {
		t.Error("it was hashed on the way")
	}
	c, err := s.Chain(h.ID, top.ID)
	must(t, err)
	defer c.Close()
	b := make([]byte, 1)
	if _, err := c.ReadAt(b, 20*block); err != nil || b[0] != 3 {
		t.Errorf("read %d, %v", b[0], err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := files(t, s)
	if _, err := s.Compact(ctx, []*layer.Layer{base.Layer, mid.Layer}, 0, 2, 0, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context: %v", err)
	}
	if after := files(t, s); !slices.Equal(before, after) {
		t.Errorf("left over: %v, before %v", after, before)
	}
}
