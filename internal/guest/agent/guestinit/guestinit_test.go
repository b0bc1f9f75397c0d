package guestinit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestParseCmdline(t *testing.T) {
	for _, tc := range []struct {
		name, line string
		want       Options
	}{
		{"nothing means to stay in the initramfs", "console=ttyS0 quiet\n", Options{}},
		{"a root device", "console=ttyS0 forkd.root=/dev/vda panic=-1", Options{Root: "/dev/vda"}},
		{"the image's own init", "forkd.root=/dev/vda forkd.init=/sbin/init", Options{Root: "/dev/vda", Init: "/sbin/init"}},
		{"the last of a kind wins", "forkd.root=/dev/vda forkd.root=/dev/vdb", Options{Root: "/dev/vdb"}},
		{"a disk for what is written", "forkd.root=/dev/vda forkd.upper=/dev/vdb", Options{Root: "/dev/vda", Upper: "/dev/vdb"}},
		{"quotes keep spaces", `forkd.root="/dev/my disk" x`, Options{Root: "/dev/my disk"}},
		{"a key must match whole", "xforkd.root=/a forkd.rootx=/b", Options{}},
		{"what follows -- is for init", "forkd.root=/a -- forkd.root=/b", Options{Root: "/a"}},
		{"another address", "forkd.listen=tcp:0.0.0.0:80", Options{Listen: "tcp:0.0.0.0:80"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := ParseCmdline(tc.line); got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func FuzzParseCmdline(f *testing.F) {
	f.Add("console=ttyS0 forkd.root=/dev/vda")
	f.Add(`a="b c" -- "`)
	f.Fuzz(func(t *testing.T, line string) {
		o := ParseCmdline(line)
		if len(o.Root)+len(o.Upper)+len(o.Init)+len(o.Listen) > 4*len(line)+9 {
			t.Errorf("%q made more than there was: %+v", line, o)
		}
	})
}

func TestParseOrder(t *testing.T) {
	got, err := parseOrder("# modules\nvirtio.ko\n\n  vsock.ko \n")
	if err != nil || !slices.Equal(got, []string{"virtio.ko", "vsock.ko"}) {
		t.Errorf("got %q, %v", got, err)
	}
	for _, bad := range []string{"../x.ko", "/x.ko", "a/b", "..", "."} {
		if _, err := parseOrder(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, err := parseOrder(strings.Repeat("x.ko\n", maxModules+1)); err == nil {
		t.Error("an endless order was taken")
	}
}

func FuzzParseOrder(f *testing.F) {
	f.Add("a.ko\nb.ko\n")
	f.Fuzz(func(t *testing.T, text string) {
		names, err := parseOrder(text)
		if err != nil {
			return
		}
		for _, n := range names {
			if filepath.Dir(filepath.Join("/d", n)) != "/d" {
				t.Errorf("%q leaves its folder", n)
			}
		}
	})
}

func TestLoadModulesWithoutOrder(t *testing.T) {
	if err := loadModules(t.TempDir(), t.Logf); err != nil {
		t.Errorf("no order file is no error: %v", err)
	}
}

func TestLoadModulesGoesOnAfterABadOne(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"order": "bad.ko\nmissing.ko\n", "bad.ko": "no module"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var said []string
	if err := loadModules(dir, func(f string, a ...any) { said = append(said, f) }); err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 {
		t.Errorf("%d complaints, want 2", len(said))
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the files are still there")
	}
}

func TestParseDevname(t *testing.T) {
	got := parseDevname("# Device nodes to trigger on-demand module loading.\nfuse fuse c10:229\ntun net/tun c10:200\n" +
		"x ../../etc/passwd c1:3\ny /abs c1:3\nz short\nloop loop0 b7:0\nw w d1:2\nv v c1\n")
	want := []staticNode{{"fuse", unix.S_IFCHR, unix.Mkdev(10, 229)}, {"net/tun", unix.S_IFCHR, unix.Mkdev(10, 200)},
		{"loop0", unix.S_IFBLK, unix.Mkdev(7, 0)}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := len(parseDevname(strings.Repeat("a a c1:1\n", 2*maxNodes))); n != maxNodes {
		t.Errorf("%d nodes", n)
	}
}

func FuzzParseDevname(f *testing.F) {
	f.Add("tun net/tun c10:200\nloop loop0 b7:0")
	f.Fuzz(func(t *testing.T, text string) {
		for _, n := range parseDevname(text) {
			if !filepath.IsLocal(n.name) || n.mode != unix.S_IFCHR && n.mode != unix.S_IFBLK {
				t.Errorf("%q makes %+v", text, n)
			}
		}
	})
}

// Checks that links of the root lead nowhere else, and that a directory that fails does not keep the
// others from being mounted.
func TestDiskDirsStayBelowTheRoot(t *testing.T) {
	root, disk, outside := t.TempDir(), t.TempDir(), t.TempDir()
	if err := os.Symlink(outside, filepath.Join(root, "out")); err != nil {
		t.Fatal(err)
	}
	err := mountDiskDirs(root, disk, []string{"/out/dir", "relative", "/"})
	for _, name := range []string{"/out/dir", "relative", "/:", "not an absolute path"} {
		if err == nil || !strings.Contains(err.Error(), strings.TrimSuffix(name, ":")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if left, _ := os.ReadDir(outside); len(left) > 0 {
		t.Errorf("there is %v outside of the root", left)
	}
	if err := mountDiskDirs(root, disk, make([]string, maxDiskDirs+1)); err == nil {
		t.Error("no limit")
	}
}
