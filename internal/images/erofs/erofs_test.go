package erofs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	goerofs "github.com/erofs/go-erofs"
)

func write(t *testing.T, root *Inode, content map[*Inode][]byte) string {
	t.Helper()
	im, err := Plan(root, [16]byte{1, 2, 3})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "image")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Truncate(im.Size()), im.WriteMetadata(f)); err != nil {
		t.Fatal(err)
	}
	for n, data := range content {
		if err := im.WriteFile(f, n, bytes.NewReader(data)); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func dir(children map[string]*Inode) *Inode {
	return &Inode{Mode: TypeDir | 0o755, Children: children, Mtime: 7}
}

// Sizes around blocks and the limit of inline content, with and without attributes.
func TestFilesAreReadByAnotherImplementation(t *testing.T) {
	content := map[*Inode][]byte{}
	root := dir(map[string]*Inode{})
	for _, size := range []int{0, 1, 2047, 2048, 2049, 4095, 4096, 4097, 6000, 8192, 262144, 262145, 300000} {
		for _, attr := range []int{0, 1, 1500, 3000, 9000} {
			n := &Inode{Mode: TypeFile | 0o640, Size: int64(size), UID: 70000, GID: 5, Mtime: 1e9, MtimeNsec: 5}
			if attr > 0 {
				n.Xattrs = map[string]string{"user.a": strings.Repeat("v", attr), "security.capability": "\x01\x00\x00\x02"}
			}
			data := bytes.Repeat([]byte{byte(size), byte(attr), 3, 7, 9}, size/5+1)[:size]
			content[n] = data
			root.Children[fmt.Sprintf("f%d-%d", size, attr)] = n
		}
	}
	path := write(t, root, content)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	for name, n := range root.Children {
		got, err := fs.ReadFile(img, name)
		if err != nil || !bytes.Equal(got, content[n]) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		info, err := fs.Stat(img, name)
		if err != nil {
			t.Fatal(err)
		}
		st := info.Sys().(*goerofs.Stat)
		if st.UID != 70000 || st.GID != 5 || len(st.Xattrs) != len(n.Xattrs) {
			t.Errorf("%s: owner %d:%d, %d attributes", name, st.UID, st.GID, len(st.Xattrs))
		}
		for k, v := range n.Xattrs {
			if st.Xattrs[k] != v {
				t.Errorf("%s: %s is %.20q", name, k, st.Xattrs[k])
			}
		}
	}
	fsck(t, path)
}

func TestTypesLinksAndLargeDirectories(t *testing.T) {
	shared := &Inode{Mode: TypeFile | 0o4755, Size: 3}
	many := dir(map[string]*Inode{})
	for i := range 3000 {
		many.Children[fmt.Sprintf("%s%04d", strings.Repeat("n", i%200), i)] = dir(nil)
	}
	root := dir(map[string]*Inode{
		"a": shared, "b": dir(map[string]*Inode{"c": shared}), "many": many,
		"null": {Mode: TypeChar | 0o666, Major: 1, Minor: 3}, "big": {Mode: TypeBlock, Major: 259, Minor: 70000},
		"fifo": {Mode: TypeFifo}, "sock": {Mode: TypeSocket},
		"link": {Mode: TypeSymlink | 0o777, Target: "../../etc/passwd"},
		"long": {Mode: TypeSymlink | 0o777, Target: strings.Repeat("x", 4095)},
	})
	path := write(t, root, map[*Inode][]byte{shared: []byte("abc")})
	fsck(t, path)
	out := filepath.Join(t.TempDir(), "out")
	if msg, err := exec.Command("fsck.erofs", "--extract="+out, path).CombinedOutput(); err != nil {
		t.Logf("extract: %v %s", err, msg) // without root it cannot make devices
	}
	f, _ := os.Open(path)
	defer f.Close()
	img, err := goerofs.Open(f)
	if err != nil {
		t.Fatal(err)
	}
	list, err := fs.ReadDir(img, "many")
	if err != nil || len(list) != 3000 {
		t.Fatalf("%d names, %v", len(list), err)
	}
	for name, want := range map[string]uint32{"null": 0x103, "big": 259<<8 | 70000&0xff | 70000&^0xff<<12} {
		info, err := fs.Stat(img, name)
		if err != nil || info.Sys().(*goerofs.Stat).Rdev != want {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	info, err := fs.Stat(img, "b/c")
	if err != nil || info.Sys().(*goerofs.Stat).Nlink != 2 {
		t.Errorf("b/c: %v %v", info, err)
	}
}

func TestTheSameTreeGivesTheSameBytes(t *testing.T) {
	tree := func() *Inode {
		return dir(map[string]*Inode{"x": dir(nil), "y": {Mode: TypeFifo, Xattrs: map[string]string{"user.b": "1", "user.a": "2"}}})
	}
	one, _ := os.ReadFile(write(t, tree(), nil))
	two, _ := os.ReadFile(write(t, tree(), nil))
	if !bytes.Equal(one, two) {
		t.Error("the images differ")
	}
}

func TestImpossibleTrees(t *testing.T) {
	loop := dir(nil)
	for name, root := range map[string]*Inode{
		"a file as root":    {Mode: TypeFile},
		"a slash":           dir(map[string]*Inode{"a/b": dir(nil)}),
		"dots":              dir(map[string]*Inode{"..": dir(nil)}),
		"a long name":       dir(map[string]*Inode{strings.Repeat("n", 256): dir(nil)}),
		"no type":           dir(map[string]*Inode{"a": {}}),
		"an empty link":     dir(map[string]*Inode{"a": {Mode: TypeSymlink}}),
		"a linked folder":   dir(map[string]*Inode{"a": loop, "b": loop}),
		"an odd attribute":  dir(map[string]*Inode{"a": {Mode: TypeFifo, Xattrs: map[string]string{"system.x": ""}}}),
		"a large attribute": dir(map[string]*Inode{"a": {Mode: TypeFifo, Xattrs: map[string]string{"user.x": strings.Repeat("x", 1<<16)}}}),
		"an endless file":   dir(map[string]*Inode{"a": {Mode: TypeFile, Size: 1<<63 - 1}}),
	} {
		if _, err := Plan(root, [16]byte{}); !errors.Is(err, ErrTree) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestShortContentIsAnError(t *testing.T) {
	n := &Inode{Mode: TypeFile, Size: 10}
	im, err := Plan(dir(map[string]*Inode{"a": n}), [16]byte{})
	if err != nil {
		t.Fatal(err)
	}
	f, _ := os.Create(filepath.Join(t.TempDir(), "image"))
	defer f.Close()
	if err := im.WriteFile(f, n, strings.NewReader("short")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Error(err)
	}
}

func fsck(t *testing.T, path string) {
	t.Helper()
	if _, err := exec.LookPath("fsck.erofs"); err != nil {
		t.Log("no fsck.erofs")
		return
	}
	if out, err := exec.Command("fsck.erofs", "--extract", path).CombinedOutput(); err != nil {
		t.Errorf("fsck.erofs: %v\n%s", err, out)
	}
}
