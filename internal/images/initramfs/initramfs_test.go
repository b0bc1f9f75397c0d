package initramfs

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// record is one entry that was read back.
type record struct {
	name                              string
	inode, mode, nlink, mtime, ma, mi int
	data                              string
}

// read is an independent reader of the format, to check Write.
func read(t *testing.T, b []byte) []record {
	t.Helper()
	var all []record
	for at := 0; ; {
		var f [13]int
		if at+110 > len(b) || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at byte %d of %d", at, len(b))
		}
		for i := range f {
			if _, err := fmt.Sscanf(string(b[at+6+8*i:at+14+8*i]), "%X", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		name := at + 110
		data := (name + f[11] + 3) &^ 3
		r := record{string(b[name : name+f[11]-1]), f[0], f[1], f[4], f[5], f[9], f[10], string(b[data : data+f[6]])}
		if r.name == "TRAILER!!!" {
			return all
		}
		all = append(all, r)
		at = (data + f[6] + 3) &^ 3
	}
}

func guest(t *testing.T) []Entry {
	t.Helper()
	e, err := Guest([]byte("#!init"), []Module{{"b.ko", []byte("bb")}, {"a-c.ko", []byte("a")}})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func write(t *testing.T, e []Entry) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, e); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestGuestLayout(t *testing.T) {
	byName := map[string]record{}
	seen := map[int]bool{}
	for _, r := range read(t, write(t, guest(t))) {
		if parent, _, ok := cutLast(r.name); ok && byName[parent].mode&typeMask != TypeDir {
			t.Errorf("%s comes before its directory", r.name)
		}
		if seen[r.inode] || r.mtime != 0 {
			t.Errorf("%s has inode %d, mtime %d: want one of its own, and 0", r.name, r.inode, r.mtime)
		}
		seen[r.inode] = true
		byName[r.name] = r
	}
	if r := byName["init"]; r.mode != TypeFile|0o755 || r.data != "#!init" {
		t.Errorf("init is %+v", r)
	}
	if r := byName["lib/modules/forkd/order"]; r.data != "b.ko\na-c.ko\n" {
		t.Errorf("order is %q", r.data)
	}
	if r := byName["lib/modules/forkd/a-c.ko"]; r.data != "a" {
		t.Errorf("module is %q", r.data)
	}
	if r := byName["dev/console"]; r.mode != TypeChar|0o600 || r.ma != 5 || r.mi != 1 {
		t.Errorf("console is %+v", r)
	}
}

func cutLast(p string) (dir, base string, ok bool) {
	i := strings.LastIndex(p, "/")
	if i < 0 {
		return "", p, false
	}
	return p[:i], p[i+1:], true
}

func TestSameEntriesGiveTheSameBytes(t *testing.T) {
	a, b := guest(t), guest(t)
	for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
		b[i], b[j] = b[j], b[i]
	}
	if !bytes.Equal(write(t, a), write(t, b)) {
		t.Error("the order of the entries changes the archive")
	}
}

func TestWriteRefusesBadEntries(t *testing.T) {
	for name, entries := range map[string][]Entry{
		"an absolute path":      {File("/init", 0o755, nil)},
		"a path to above":       {File("../init", 0o755, nil)},
		"an unclean path":       {File("a//b", 0o755, nil)},
		"the root":              {Dir(".", 0o755)},
		"no path":               {Dir("", 0o755)},
		"the trailer's name":    {File("TRAILER!!!", 0o644, nil)},
		"a path twice":          {File("a", 0o644, nil), Dir("a", 0o755)},
		"a file below a file":   {File("a", 0o644, nil), File("a/b", 0o644, nil)},
		"a directory with data": {{Path: "a", Mode: TypeDir, Data: []byte("x")}},
		"no file type":          {{Path: "a", Mode: 0o644}},
	} {
		if err := Write(&bytes.Buffer{}, entries); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
	if _, err := Guest(nil, []Module{{File: "../x.ko"}}); err == nil {
		t.Error("a module with a path for a name is accepted")
	}
}

func TestCpioReadsIt(t *testing.T) {
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed")
	}
	file := t.TempDir() + "/a.cpio"
	if err := os.WriteFile(file, write(t, guest(t)), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(cpio, "-tF", file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "lib/modules/forkd/a-c.ko\n") {
		t.Errorf("cpio says: %v, %s", err, out)
	}
}
