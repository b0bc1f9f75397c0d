package vmmctl

import (
	"os"
	"slices"
	"testing"
)

// travel sends disks through a message's form and back, with one other descriptor before them.
func travel(t *testing.T, disks ...Disk) ([]Disk, error) {
	t.Helper()
	first := file(t, "first")
	specs, files := addDisks(disks, []*os.File{first})
	got, rest, err := takeDisks(specs, files)
	if err == nil && !slices.Equal(rest, []*os.File{first}) {
		t.Errorf("%d descriptors are left, want the one that is no disk's", len(rest))
	}
	return got, err
}

func TestDisksTravel(t *testing.T) {
	plain, own, a, b := file(t, "p"), file(t, "o"), file(t, "a"), file(t, "b")
	want := []Disk{
		{File: plain, ReadOnly: true},
		{Own: own, Size: 1 << 30, Base: []Segment{
			{File: a, FileOffset: 4096, Offset: 0, Length: 8192}, {File: b, Offset: 8192, Length: 512}, {File: a, Offset: 1 << 20, Length: 4096},
		}},
		{File: b},
	}
	got, err := travel(t, want...)
	if err != nil || len(got) != len(want) {
		t.Fatalf("got %d disks, %v", len(got), err)
	}
	for i, w := range want {
		g := got[i]
		if g.File != w.File || g.Own != w.Own || g.ReadOnly != w.ReadOnly || g.Size != w.Size || !slices.Equal(g.Base, w.Base) {
			t.Errorf("disk %d: got %+v, want %+v", i, g, w)
		}
	}
}

func TestZeroPartsOfABaseNeedNoDescriptor(t *testing.T) {
	got, err := travel(t, Disk{Own: file(t, "o"), Size: 4096, Base: []Segment{{Length: 4096}}})
	if err != nil || len(got) != 1 || len(got[0].Base) != 0 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestDiskSpecsThatDoNotFitTheirDescriptors(t *testing.T) {
	files := []*os.File{file(t, "a"), file(t, "b")}
	for name, specs := range map[string][]diskSpec{
		"too many disks":          {{}, {}, {}},
		"negative":                {{Own: true, BaseFiles: -1}},
		"endless":                 {{Own: true, BaseFiles: 1 << 62}, {Own: true, BaseFiles: 1 << 62}},
		"a base of a plain disk":  {{BaseFiles: 1}},
		"a base file not used":    {{Own: true, BaseFiles: 1}},
		"an index out of range":   {{Own: true, BaseFiles: 1, Base: []segmentSpec{{File: 0}, {File: 1}}}},
		"zero pages as base file": {{Own: true, BaseFiles: 1, Base: []segmentSpec{{File: 0}, {File: -1}}}},
	} {
		if _, rest, err := takeDisks(specs, files); err == nil || len(rest) != len(files) {
			t.Errorf("%s: got %v with %d descriptors left to close", name, err, len(rest))
		}
	}
}

func TestSaveWritesDisks(t *testing.T) {
	p := mustSpawn(t, behaveWell, nil)
	boot(t, p, "kernel")
	if err := p.Pause(t.Context()); err != nil {
		t.Fatal(err)
	}
	a, b := file(t, ""), file(t, "")
	r, err := p.Save(t.Context(), file(t, ""), file(t, ""), a, b)
	if err != nil || r.DiskBytes != 12 {
		t.Fatalf("got %+v, %v", r, err)
	}
	for i, f := range []*os.File{a, b} {
		if got, err := os.ReadFile(f.Name()); err != nil || string(got) != []string{"disk 0", "disk 1"}[i] {
			t.Errorf("disk %d: got %q, %v", i, got, err)
		}
	}
}
