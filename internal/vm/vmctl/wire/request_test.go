package wire

import (
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// message returns a request as the other end gets it, without the copies of its descriptors.
func message(t *testing.T, r *Request) (m Message, files []*os.File, done func()) {
	t.Helper()
	m, table, err := r.Message()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range r.Files {
		files = append(files, f.File)
	}
	if table != nil {
		files = append(files, table)
	}
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	m = Message{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m, files, func() { table.Close() }
}

// travels checks that a request arrives unchanged.
func travels[T any](t *testing.T, want T, send func(T) *Request, read func(Message, []*os.File) (T, error)) {
	t.Helper()
	m, files, done := message(t, send(want))
	defer done()
	if got, err := read(m, files); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestRequestsArriveAsTheyWereSent(t *testing.T) {
	f := func() *os.File { return file(t, "") }
	a, b := f(), f()
	disks := []vmm.Disk{
		{File: f(), ReadOnly: true},
		{Overlay: f(), Size: 1 << 30, Reserve: 4711, Limit: 4712, Base: []extent.Extent{
			{File: a, FileOffset: 4096, Offset: 0, Length: 8192}, {File: b, Offset: 8192, Length: 512}, {File: a, Offset: 1 << 20, Length: 4096},
		}},
		{File: f()},
		{Overlay: f(), Size: 8192, ReadOnly: true, Base: []extent.Extent{{File: a, Length: 8192}}}, // same layer, another descriptor
	}
	genID := [16]byte{7: 9}
	travels(t, vmm.BootConfig{Kernel: f(), Initrd: f(), Cmdline: "quiet", Disks: disks, CID: 3, GenID: genID, Net: f()}, Boot, ReadBoot)
	travels(t, vmm.BootConfig{Kernel: f()}, Boot, ReadBoot)
	travels(t, vmm.RestoreConfig{
		Memory: []extent.Extent{{File: a, Length: 4096}, {Offset: 4096, Length: 4096}, {File: b, Offset: 8192, Length: 4096}, {File: a, FileOffset: 4096, Length: 4096}},
		State:  f(), Disks: disks, CID: 9, GenID: genID, Prepare: true, Gate: f(), Watch: true, Net: f(), KeepMembers: true,
	}, Restore, ReadRestore)
	travels(t, vmm.RestoreConfig{Memory: []extent.Extent{{Length: 4096}}, State: f()}, Restore, ReadRestore)
	travels(t, vmm.CaptureConfig{Memory: f(), State: f(), Index: f(), Disks: []*os.File{f(), f()}, Digest: f(), Force: true, Live: true, Max: time.Second, Cut: f()}, Capture, ReadCapture)
	travels(t, vmm.CaptureConfig{Memory: f(), State: f(), Index: f()}, Capture, ReadCapture)
	travels(t, vmm.SaveConfig{Memory: f(), State: f(), Disks: []*os.File{f()}, Digest: f()}, Save, ReadSave)
	travels(t, [][]extent.Extent{{{File: a, Length: 512}, {File: a, Offset: 512, Length: 512}}, {{File: b, Length: 512}}}, Rebase, ReadRebase)
	travels(t, f(), WriteWorkingSet, ReadWorkingSet)
	travels(t, f(), Populate, ReadWorkingSet)
	travels(t, f(), PopulateShell, ReadWorkingSet)
	travels(t, f(), Net, ReadNet)
}

func TestZeroPartsOfABaseNeedNoDescriptor(t *testing.T) {
	c := vmm.BootConfig{Kernel: file(t, "k"), Disks: []vmm.Disk{{Overlay: file(t, "o"), Size: 4096, Base: []extent.Extent{{Length: 4096}}}}}
	m, files, done := message(t, Boot(c))
	defer done()
	got, err := ReadBoot(m, files)
	if err != nil || len(got.Disks) != 1 || len(got.Disks[0].Base) != 0 || len(files) != 2 {
		t.Errorf("got %+v, %v", got, err)
	}
}

// A request that does not match its descriptors is refused, and they are closed. Each must be named
// exactly once.
func TestRequestsThatDoNotFitTheirDescriptors(t *testing.T) {
	extents := func(refs ...fileRef) (table []byte) {
		for _, r := range refs {
			table = appendExtent(table, extent.Extent{Length: 512}, r)
		}
		return table
	}
	for name, c := range map[string]struct {
		disks []diskBody
		table []byte
	}{
		"too many disks":             {disks: []diskBody{{File: 2}, {File: 3}, {File: 4}}},
		"a disk without a file":      {disks: []diskBody{{File: 2}, {}}},
		"a file not used":            {disks: []diskBody{{File: 2}}},
		"a file of two disks":        {disks: []diskBody{{File: 2}, {File: 2}, {File: 3}}},
		"a negative list":            {disks: []diskBody{{File: 2}, {Overlay: 3, Base: -1}}},
		"an endless list":            {disks: []diskBody{{File: 2}, {Overlay: 3, Base: 1 << 62}}},
		"a base of a plain disk":     {disks: []diskBody{{File: 2, Base: 1}, {File: 3}}, table: extents(3)},
		"more extents than named":    {disks: []diskBody{{Overlay: 2, Base: 1}}, table: extents(3, 3)},
		"an index out of range":      {disks: []diskBody{{Overlay: 2, Base: 2}}, table: extents(3, 4)},
		"a huge index":               {disks: []diskBody{{Overlay: 2, Base: 2}}, table: extents(3, 1<<32-1)},
		"zeros in a base":            {disks: []diskBody{{Overlay: 2, Base: 2}}, table: extents(3, 0)},
		"a base in the overlay file": {disks: []diskBody{{Overlay: 2, Base: 2}}, table: extents(3, 2)},
		"a base in another's file":   {disks: []diskBody{{Overlay: 2, Base: 1}, {Overlay: 4, Base: 1}}, table: extents(3, 3)},
	} {
		files := []*os.File{file(t, "kernel"), file(t, "a"), file(t, "b")}
		body, err := json.Marshal(bootBody{Kernel: 1, GenID: make([]byte, 16), Disks: c.disks})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ReadBoot(Message{Body: body, Table: c.table}, slices.Clone(files)); err == nil {
			t.Errorf("%s: it is taken", name)
		}
		for _, f := range files {
			if _, err := f.Stat(); err == nil {
				t.Errorf("%s: a descriptor stays open", name)
			}
		}
	}
}
