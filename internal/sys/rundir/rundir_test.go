package rundir

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// tree creates files ("name"), directories ("name/") and links ("name -> to") below dir.
func tree(t *testing.T, dir string, entries ...string) {
	t.Helper()
	for _, e := range entries {
		name, to, link := strings.Cut(e, " -> ")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(to, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o700)
		default:
			err = os.WriteFile(path, []byte(name), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestADirectoryThatMayBeUsed(t *testing.T) {
	for _, c := range []struct {
		name string
		have []string
	}{
		{"not there yet", nil},
		{"empty", []string{"run/"}},
		{"of a daemon before there was a marker", []string{"run/lock", "run/vm/v00000001/vm.json", "run/family/sb-0a1b2c3d-0001/ended-x", "run/kernel-123"}},
		{"of a daemon before there was a marker, idle", []string{"run/lock", "run/vm/"}},
		{"whose daemon died before it had written the marker", []string{"run/" + Marker, "run/other"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			tree(t, dir, c.have...)
			if strings.Contains(c.name, "died") {
				if err := os.Truncate(filepath.Join(dir, "run", Marker), 0); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 { // it stays valid
				d, err := Open(filepath.Join(dir, "run"))
				if err != nil {
					t.Fatal(err)
				}
				d.Close()
			}
			if st, err := os.Stat(filepath.Join(dir, "run")); err != nil || st.Mode().Perm() != 0o700 {
				t.Errorf("mode %v, %v", st.Mode(), err)
			}
		})
	}
}

func TestADirectoryThatMayNot(t *testing.T) {
	for _, c := range []struct {
		name   string
		have   []string
		damage func(run string) error
		want   string
	}{
		{name: "somebody's files", have: []string{"run/thesis.tex"}, want: `holds "thesis.tex" and was not made by forkd`},
		{name: "many files", have: []string{"run/a", "run/b", "run/c", "run/d"}, want: "and 1 more"},
		{name: "a vm folder of another program", have: []string{"run/vm/disk.img", "run/lock"}, want: "was not made by forkd"},
		{name: "a vm folder alone", have: []string{"run/vm/v00000001/vm.json"}, want: "was not made by forkd"},
		{name: "a vm that is a link", have: []string{"run/lock", "home/v00000001/x", "run/vm -> ../home"}, want: "was not made by forkd"},
		{name: "a lock that is a link", have: []string{"home/x", "run/lock -> ../home/x"}, want: "was not made by forkd"},
		{name: "a link", have: []string{"home/", "run -> home"}, want: "is a link or no directory"},
		{name: "a marker that is a link", have: []string{"home/x", "run/" + Marker + " -> ../home/x"}, want: "is a link"},
		{name: "another's marker", have: []string{"run/" + Marker}, want: "is not forkd's"},
		{name: "a marker with two names", have: []string{"run/"}, want: "another name elsewhere", damage: func(run string) error {
			if err := os.WriteFile(run+"-marker", []byte("forkd run directory\nlayout 1\n"), 0o600); err != nil {
				return err
			}
			return os.Link(run+"-marker", filepath.Join(run, Marker))
		}},
		{name: "a newer layout", have: []string{"run/"}, want: "newer forkd made it (layout 7", damage: func(run string) error {
			return os.WriteFile(filepath.Join(run, Marker), []byte("forkd run directory\nlayout 7\n"), 0o600)
		}},
		{name: "others may write", have: []string{"run/"}, want: "other users can write to it (mode 0777)", damage: func(run string) error { return os.Chmod(run, 0o777) }},
		{name: "others may replace it", have: []string{"run/"}, want: "(mode 0777) and could replace it", damage: func(run string) error { return os.Chmod(filepath.Dir(run), 0o777) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			run := filepath.Join(dir, "run")
			tree(t, dir, c.have...)
			if c.damage != nil {
				if err := c.damage(run); err != nil {
					t.Fatal(err)
				}
			}
			d, err := Open(run)
			if err == nil {
				d.Close()
			}
			if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), run) {
				t.Errorf("got %v, want one that says %q", err, c.want)
			}
			if _, err := os.Lstat(filepath.Join(dir, "home", Marker)); err == nil {
				t.Error("it wrote through the link")
			}
		})
	}
}

// Only root can create files of another user.
func TestADirectoryOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give a directory away")
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name, give, path, want string
		have                   []string
	}{
		{"itself", "run", "run", "it belongs to user 12345", []string{"run/"}},
		{"the one above", "home", "home/run", "above it belongs to user 12345", []string{"home/run/"}},
		{"a link on the way", "way", "way/run", "is a link of user 12345", []string{"real/run/", "way -> real"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree(t, dir, c.have...)
			if err := os.Lchown(filepath.Join(dir, c.give), 12345, 12345); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{"run": errOf(Open(filepath.Join(dir, c.path))), "data": CheckData(filepath.Join(dir, c.path))} {
				if !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%s: got %v", what, err)
				}
			}
		})
	}
}

func errOf(d *Dir, err error) error {
	if err == nil {
		d.Close()
	}
	return err
}

// A data directory keeps its content, may be a link of this user, and may be readable by others.
func TestADataDirectory(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, "disk/thesis.tex", "data -> disk")
	if err := os.Chmod(filepath.Join(dir, "disk"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := CheckData(filepath.Join(dir, "data")); err != nil {
		t.Error(err)
	}
	if err := CheckData(filepath.Join(dir, "new", "one")); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(filepath.Join(dir, "disk"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := CheckData(filepath.Join(dir, "data")); !errors.Is(err, ErrRefused) {
		t.Errorf("got %v", err)
	}
}

func TestOnlyKnownNamesAreRemoved(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, "home/thesis.tex", "home/log", "run/")
	d, err := Open(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tree(t, dir, "run/ours/log", "run/mixed/log", "run/mixed/thesis.tex", "run/nested/log/", "run/link -> ../home", "run/inner/log -> ../../home/log")
	l, err := net.Listen("unix", filepath.Join(dir, "run", "ours", "sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	known := func(name string) bool { return name == "log" || name == "sock" }
	for _, c := range []struct {
		name string
		left []string
		fail bool
	}{
		{"ours", nil, false}, {"gone", nil, false}, {"inner", nil, false}, {"mixed", []string{"thesis.tex"}, false}, {"nested", nil, true}, {"link", nil, true},
	} {
		left, err := d.Remove(c.name, known)
		if (err != nil) != c.fail || !slices.Equal(left, c.left) {
			t.Errorf("%s: left %q, %v", c.name, left, err)
		}
	}
	if got := names(t, filepath.Join(dir, "run")); got != "forkd-run link mixed nested" {
		t.Errorf("left are %q", got)
	}
	if got := names(t, filepath.Join(dir, "run", "mixed")) + names(t, filepath.Join(dir, "home")); got != "thesis.texlog thesis.tex" {
		t.Errorf("left are %q", got)
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return strings.Join(all, " ")
}

func TestAFolderIsCheckedBeforeItIsBelieved(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	tree(t, dir, "home/log", "run/good/log", "run/good/other -> /", "run/linked/log -> ../../home/log", "run/twice/", "run/folder/log/", "run/link -> good", "run/file")
	if err := os.Link(filepath.Join(dir, "home", "log"), filepath.Join(dir, "run", "twice", "log")); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(dir, "run", "good", "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, good := range map[string]bool{"good": true, "linked": false, "twice": false, "folder": false, "link": false, "file": false, "none": false} {
		if err := d.Check(name, func(n string) bool { return n == "log" }); (err == nil) != good {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, name := range []string{"link", "file"} {
		if sub, err := d.Sub(name); err == nil {
			sub.Close()
			t.Errorf("%s was opened as a folder", name)
		}
	}
}

func TestTheLock(t *testing.T) {
	dir := t.TempDir()
	d, err := Open(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	first, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if second, err := d.Lock(); !errors.Is(err, os.ErrExist) {
		t.Errorf("got %v, %v", second, err)
	}
	first.Close()
	again, err := d.Lock()
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if err := os.Remove(filepath.Join(dir, "run", "lock")); err != nil {
		t.Fatal(err)
	}
	tree(t, dir, "home/x", "run/lock -> ../home/x")
	if f, err := d.Lock(); err == nil {
		f.Close()
		t.Error("it followed a link")
	}
}

func FuzzMarker(f *testing.F) {
	f.Add("forkd run directory\nlayout 1\n")
	f.Add(fmt.Sprintf("forkd run directory\nlayout %d\n", uint64(1)<<63))
	f.Fuzz(func(t *testing.T, text string) {
		run := filepath.Join(t.TempDir(), "run")
		tree(t, run, Marker)
		if err := os.WriteFile(filepath.Join(run, Marker), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := Open(run)
		if err == nil {
			d.Close()
		} else if !errors.Is(err, ErrRefused) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
