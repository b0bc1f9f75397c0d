package guestinit

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
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
