package inventory

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/agentv1"
)

// tree returns a root with a few files, and dpkg's status file.
func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{"a/x": "", "a/b/c": "", "a.b": "a.b", "a-b": "", "z": "", statusFile[1:]: someStatus} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestFilesComeInTheOrderOfTheContract(t *testing.T) {
	var got []string
	cut, err := files(tree(t), func(f *agentv1.InventoryFile) error {
		got = append(got, string(f.Path))
		if string(f.Path) == "/a.b" && (f.Size != 3 || f.Mode != 0o100640 || f.MtimeNs == 0 || f.CtimeNs == 0) {
			t.Errorf("%+v", f)
		}
		if string(f.Path) == "/link" && string(f.Target) != "/nowhere" {
			t.Errorf("%+v", f)
		}
		return nil
	})
	want := []string{"/a", "/a/b", "/a/b/c", "/a/x", "/a-b", "/a.b", "/link", "/var", "/var/lib", "/var/lib/dpkg", "/var/lib/dpkg/status", "/z"}
	slices.Sort(want[1:4])
	if err != nil || cut != 0 || len(got) != len(want) {
		t.Errorf("%q, %d unreadable, %v", got, cut, err)
	}
	sorted := slices.IsSortedFunc(got, func(a, b string) int {
		return strings.Compare(strings.ReplaceAll(a, "/", "\x00"), strings.ReplaceAll(b, "/", "\x00"))
	})
	if !sorted {
		t.Errorf("not in order: %q", got)
	}
}

// The trees are made by hand as an overlay: the third shows the first two. A name in the upper one
// but not in the third was removed.
func TestWhatWasWrittenIsTold(t *testing.T) {
	lower, upper, root := plant(t, "bin/a", "bin/b", "etc/gone", "etc/kept", "lib/x/y", "replaced/in"),
		plant(t, "bin/a", "etc/gone", "lib/x", "new/deep/file", "replaced"),
		plant(t, "bin/a", "bin/b", "etc/kept", "new/deep/file", "replaced", "lib/z")
	layers, err := OpenLayers(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	defer layers.lower.Close()
	defer layers.upper.Close()
	var got []string
	unreadable, err := layers.changes(root, func(f *agentv1.InventoryFile) error {
		line := string(f.Path)
		if f.Gone {
			line += " gone"
		}
		if f.Below != nil {
			line += " below"
		}
		got = append(got, line)
		return nil
	})
	want := []string{
		"/bin below", "/bin/a below", "/etc below", "/etc/gone gone below", "/lib below", "/lib/x gone below", "/lib/x/y gone below",
		"/new", "/new/deep", "/new/deep/file", "/replaced below", "/replaced/in gone below",
	}
	if err != nil || unreadable != 0 || !slices.Equal(got, want) {
		t.Errorf("%d unreadable, %v\ngot  %q\nwant %q", unreadable, err, got, want)
	}
	if _, err := OpenLayers(lower, upper+"/none"); err == nil || (Layers{}).Known() || !layers.Known() {
		t.Errorf("layers that are not there: %v", err)
	}
}

// plant makes a tree with empty files.
func plant(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestOtherMountsAreLeftOut(t *testing.T) {
	enough := errors.New("enough")
	_, err := files("/", func(f *agentv1.InventoryFile) error {
		switch {
		case bytes.HasPrefix(f.Path, []byte("/proc/")):
			t.Fatalf("%s is on another mount", f.Path)
		case bytes.Compare(f.Path, []byte("/q")) > 0:
			return enough
		}
		return nil
	})
	if err != nil && !errors.Is(err, enough) {
		t.Error(err)
	}
}

func TestThisProcessIsTold(t *testing.T) {
	all, cut := processes("/proc")
	i := slices.IndexFunc(all, func(p *agentv1.InventoryProcess) bool { return int(p.Pid) == os.Getpid() })
	if i < 0 || cut != 0 {
		t.Fatalf("not among %d, %d cut", len(all), cut)
	}
	p := all[i]
	if p.RssKib == 0 || p.PssKib == 0 || p.AnonKib == 0 || p.StartTicks == 0 || int(p.Ppid) != os.Getppid() || !bytes.Contains(p.Args, []byte("test")) {
		t.Errorf("%+v", p)
	}
}

const someStat = "7 (a) b (c) S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 4711 99 1"

func TestANameWithBrackets(t *testing.T) {
	var p agentv1.InventoryProcess
	if !parseStat([]byte(someStat), &p) || p.StartTicks != 4711 || string(p.State) != "S" {
		t.Errorf("%+v", &p)
	}
	for _, bad := range []string{"", ")", "7 (a) S 1", strings.Repeat(")", 100)} {
		if parseStat([]byte(bad), &p) {
			t.Errorf("%q was read", bad)
		}
	}
}

const someStatus = `Package: libc6
Status: install ok installed
Architecture: amd64
Description: long
 Package: not-this
 .
Version: 2.36-9

Package: gone
Status: deinstall ok config-files
Version: 1

Package: last
Status: install ok installed
Version: 3`

func TestInstalledPackages(t *testing.T) {
	long := "X: " + strings.Repeat("y", 3*maxLine) + "\n"
	got, cut, err := parseStatusFile(strings.NewReader(long + someStatus))
	if err != nil || cut != 0 || len(got) != 2 {
		t.Fatalf("%v, %d cut, %v", got, cut, err)
	}
	if got[0].Name != "libc6" || got[0].Version != "2.36-9" || got[0].Architecture != "amd64" || got[1].Name != "last" || got[1].Architecture != "" {
		t.Errorf("%v", got)
	}
}

func TestAllIsTold(t *testing.T) {
	var files, procs, pkgs, ends int
	err := Service{Root: tree(t), Proc: "/proc"}.tell(false, func(p *agentv1.InventoryPart) error {
		if ends > 0 {
			t.Error("something comes after the end")
		}
		files, procs, pkgs = files+len(p.Files), procs+len(p.Processes), pkgs+len(p.Packages)
		if p.End != nil {
			ends++
		}
		return nil
	})
	if err != nil || files != 12 || procs == 0 || pkgs != 2 || ends != 1 {
		t.Errorf("%d files, %d processes, %d packages, %d ends, %v", files, procs, pkgs, ends, err)
	}
	gone := errors.New("gone")
	if err := (Service{Root: tree(t), Proc: "/proc"}).tell(false, func(*agentv1.InventoryPart) error { return gone }); !errors.Is(err, gone) {
		t.Errorf("nobody listens, yet %v", err)
	}
}

// The files are the guest's. Whatever they contain, the result stays small.
func TestProcessesOnly(t *testing.T) {
	var processes, ends int
	err := Service{Root: tree(t), Proc: "/proc"}.tellProcesses(func(p *agentv1.InventoryPart) error {
		if len(p.Files)+len(p.Packages) > 0 {
			t.Errorf("also got %v %v", p.Files, p.Packages)
		}
		processes += len(p.Processes)
		if p.End != nil {
			ends++
		}
		return nil
	})
	if err != nil || processes == 0 || ends != 1 {
		t.Errorf("%d processes, %d ends, %v", processes, ends, err)
	}
}

func FuzzGuestFiles(f *testing.F) {
	f.Add([]byte(someStatus))
	f.Add([]byte(someStat))
	f.Add([]byte("Package:\n\n\nStatus: installed"))
	f.Add([]byte("Name:\tx\nVmRSS:\t 12 kB\nRssAnon: 99999999999999999999999\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, _, err := parseStatusFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range all {
			if p.Name == "" || len(p.Name) > 3*maxWord || len(p.Version) > 3*maxWord {
				t.Fatalf("%q %q", p.Name, p.Version)
			}
		}
		var p agentv1.InventoryProcess
		parseStat(b, &p)
		if len(p.State) > 1 {
			t.Errorf("a state of %d bytes", len(p.State))
		}
		if parseStatus(b, &p); len(p.Name) > maxArgs {
			t.Fatalf("a name of %d bytes", len(p.Name))
		}
	})
}
