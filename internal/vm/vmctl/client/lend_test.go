package client

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/store/extent"
	"github.com/forkd/forkd/internal/vm/startgate"
	"github.com/forkd/forkd/internal/vm/vmctl/vmctltest"
	"github.com/forkd/forkd/internal/vm/vmctl/wire"
	"github.com/forkd/forkd/internal/vm/vmm"
)

// lentTable lists a VMM's access to each received descriptor (docs/inside/vmm.md).
var lentTable = map[string]string{
	"boot kernel":            "read",
	"boot initrd":            "read",
	"boot read-only disk":    "read",
	"boot base":              "read",
	"boot own":               "write", // the VM's own
	"restore state":          "read",
	"restore memory":         "read",
	"restore read-only disk": "read",
	"restore base":           "read",
	"restore own":            "write", // the VM's own
	"restore gate":           "sealed",
	"boot net":               "sealed", // a socket, the VM's own end
	"restore net":            "sealed", // a socket, the VM's own end
	"net file":               "sealed", // a socket, the VM's own end
	"open net":               "sealed",
	"rebase base":            "read",
	"capture memory":         "write", // copied
	"capture state":          "write", // copied
	"capture index":          "write", // copied
	"capture own":            "write", // the VM's own from then on
	"save memory":            "write", // of a VM that is ended before they are used
	"save state":             "write",
	"save disk":              "write",
	"write-working set":      "write", // likewise
	"populate set":           "read", "populate-shell set": "read",
}

// lender is a daemon with locked files, and a VMM that tries out its access to them.
type lender struct {
	t     *testing.T
	files []*os.File // of the daemon, each locked

	mu  sync.Mutex
	can map[string]string // by descriptor
}

// file returns a file that the daemon itself could write.
func (l *lender) file(name, content string) *os.File {
	l.t.Helper()
	path := filepath.Join(l.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		l.t.Fatal(err)
	}
	f := vmctltest.Open(l.t, path)
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		l.t.Fatal(err)
	}
	l.files = append(l.files, f)
	return f
}

// look is the VMM: it tries to write, to unlock, and to change the daemon's flags and position.
func (l *lender) look(what string, f *os.File) {
	fd := int(f.Fd())
	can := "read"
	if _, err := unix.Pwrite(fd, []byte("x"), 0); err == nil {
		can = "write"
	}
	if _, err := unix.Mmap(fd, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err == nil {
		can = "write"
	}
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err == nil && can == "read" && flags&unix.O_ACCMODE != unix.O_RDONLY {
		can = "sealed"
	}
	unix.Flock(fd, unix.LOCK_UN)
	unix.Seek(fd, 4711, unix.SEEK_SET)
	unix.FcntlInt(uintptr(fd), unix.F_SETFL, unix.O_APPEND|unix.O_NONBLOCK)
	l.mu.Lock()
	defer l.mu.Unlock()
	if before, known := l.can[what]; known && before != can {
		l.t.Errorf("%s: one can be used to %s, another to %s", what, before, can)
	}
	l.can[what] = can
}

func (l *lender) disks() []vmm.Disk {
	f := l.file("base", "base")
	return []vmm.Disk{
		{File: l.file("root", "root"), ReadOnly: true},
		{Overlay: l.file("own", ""), Size: 8192, Base: []extent.Extent{{File: f, Length: 4096}}},
	}
}

// A VMM gets no file description that the daemon or another VMM has. It can write only to its own
// files and to files that are copied afterwards.
func TestWhatAVMMCanDoWithItsDescriptors(t *testing.T) {
	ctx := t.Context()
	s, p := serveProcess(t, nil)
	l := &lender{t: t, can: map[string]string{}}
	s.vm.Look(l.look)
	gate, err := startgate.New()
	if err != nil {
		t.Fatal(err)
	}
	defer gate.Close()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("boot", p.Boot(ctx, vmm.BootConfig{Kernel: l.file("kernel", "kernel"), Initrd: l.file("initrd", "initrd"), CID: 3, Disks: l.disks(), Net: wireEnd(t)}))
	_, err = p.Restore(ctx, vmm.RestoreConfig{
		State: l.file("state", "state"), CID: 3, Disks: l.disks(), Net: wireEnd(t), Gate: gate.File(), Memory: []extent.Extent{{File: l.file("layer", "layer"), Length: 4096}},
	})
	check("restore", err)
	check("net", p.SetNet(ctx, wireEnd(t)))
	check("net-open", p.OpenNet(ctx, wireEnd(t)))
	set := l.file("set", "set")
	_, err = p.Populate(ctx, set)
	check("populate", err)
	_, err = PopulateShell(ctx, p, set)
	check("populate shell", err)
	_, err = p.WriteWorkingSet(ctx, set)
	check("write working set", err)
	_, err = p.Save(ctx, vmm.SaveConfig{Memory: l.file("memory", ""), State: l.file("state", ""), Disks: []*os.File{l.file("disk", "")}})
	check("save", err)
	_, err = p.Capture(ctx, vmm.CaptureConfig{Memory: l.file("memory", ""), State: l.file("state", ""), Index: l.file("index", ""), Disks: []*os.File{l.file("next", "")}})
	check("capture", err)
	if err := p.Rebase(ctx, [][]extent.Extent{{{File: l.file("newbase", "base"), Length: 4096}}}); err == nil {
		t.Error("the fake's rebase says what arrived, as an error")
	}
	l.checkTable()
	l.checkOwn()
}

func (l *lender) checkTable() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(l.can)) {
		if want := lentTable[what]; l.can[what] != want {
			l.t.Errorf("%s: a VMM can %s it, want %q", what, l.can[what], want)
		}
	}
	for what := range lentTable {
		if l.can[what] == "" {
			l.t.Errorf("%s did not come", what)
		}
	}
}

// checkOwn checks the daemon's side: its locks hold, its positions and flags are unchanged.
func (l *lender) checkOwn() {
	l.t.Helper()
	for _, f := range l.files {
		name := filepath.Base(f.Name())
		if name == "own" { // handed over, and closed by the daemon
			continue
		}
		other := vmctltest.Open(l.t, f.Name())
		if err := unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			l.t.Errorf("%s: the daemon's lock is gone (%v)", name, err)
		}
		if at, err := f.Seek(0, 1); err != nil || at != 0 {
			l.t.Errorf("%s: the daemon's position is %d, %v", name, at, err)
		}
		if flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFL, 0); err != nil || flags&(unix.O_APPEND|unix.O_NONBLOCK) != 0 {
			l.t.Errorf("%s: the daemon's flags are %#x, %v", name, flags, err)
		}
	}
}

// BenchmarkLend measures reopening ten files.
func BenchmarkLend(b *testing.B) {
	var files []wire.File
	for range 10 {
		f, err := os.CreateTemp(b.TempDir(), "layer")
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		files = append(files, wire.File{File: f})
	}
	for b.Loop() {
		lent, err := lend(files)
		if err != nil {
			b.Fatal(err)
		}
		lent.close()
	}
}
