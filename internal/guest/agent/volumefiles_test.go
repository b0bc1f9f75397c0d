package agent_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/volumewire"
)

// mine are the attributes of files that the tester may make.
func mine() volumewire.Attrs {
	uid, gid := uint32(os.Getuid()), uint32(os.Getgid())
	return volumewire.Attrs{UID: &uid, GID: &gid}
}

// status returns the status of a refusal, or 0.
func refusal(err error) int {
	var refused *agentclient.FileError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return 0
}

func readVolume(t *testing.T, v agentclient.VolumeFiles, path string) string {
	t.Helper()
	r, size, err := v.Read(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil || int64(len(b)) != size {
		t.Fatalf("read %s: %d bytes of %d, %v", path, len(b), size, err)
	}
	return string(b)
}

func TestFilesOfAVolume(t *testing.T) {
	root := t.TempDir()
	v, ctx := startAgent(t).VolumeFiles(root), t.Context()
	for path, content := range map[string]string{"/a.txt": "one", "d/e/f": strings.Repeat("x", 3<<20)} {
		e, err := v.Write(ctx, path, mine(), strings.HasPrefix(path, "d"), strings.NewReader(content))
		if err != nil || e.Kind != volumewire.File || e.Size != int64(len(content)) || e.Mode != 0o644 || e.UID != uint32(os.Getuid()) {
			t.Fatalf("%s: %+v, %v", path, e, err)
		}
		if got := readVolume(t, v, path); got != content {
			t.Errorf("%s has %d bytes, want %d", path, len(got), len(content))
		}
	}
	mode := uint32(0o1750)
	if e, err := v.Change(ctx, "/a.txt", volumewire.Attrs{Mode: &mode}); err != nil || e.Mode != mode || e.Path != "/a.txt" {
		t.Errorf("change: %+v, %v", e, err)
	}
	if e, err := v.Write(ctx, "/a.txt", volumewire.Attrs{}, false, strings.NewReader("two")); err != nil || e.Mode != mode {
		t.Errorf("a file that exists keeps its mode: %+v, %v", e, err)
	}
	if e, err := v.MakeDir(ctx, "/new", mine(), false); err != nil || e.Kind != volumewire.Directory || e.Mode != 0o755 {
		t.Errorf("make a directory: %+v, %v", e, err)
	}
	if err := os.Symlink("a.txt", filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	if e, err := v.Stat(ctx, "/link"); err != nil || e.Kind != volumewire.Symlink || e.Target != "a.txt" {
		t.Errorf("a link: %+v, %v", e, err)
	}
	if got := readVolume(t, v, "/link"); got != "two" {
		t.Errorf("a link within the volume reads as %q", got)
	}
	for depth, want := range map[int]string{1: "/a.txt /d /link /new", 2: "/a.txt /d /d/e /link /new", 9: "/a.txt /d /d/e /d/e/f /link /new"} {
		all, err := v.List(ctx, "/", depth)
		if err != nil {
			t.Fatal(err)
		}
		var paths []string
		for _, e := range all {
			paths = append(paths, e.Path)
		}
		if got := strings.Join(paths, " "); got != want {
			t.Errorf("depth %d: %s, want %s", depth, got, want)
		}
	}
	for _, path := range []string{"/d", "link"} {
		if err := v.Remove(ctx, path); err != nil {
			t.Error(err)
		}
	}
	if all, err := v.List(ctx, "", 9); err != nil || len(all) != 2 {
		t.Errorf("left are %+v, %v", all, err)
	}
}

func TestFilesOfAVolumeThatAreRefused(t *testing.T) {
	root := t.TempDir()
	b, ctx := startAgent(t), t.Context()
	v := b.VolumeFiles(root)
	for _, name := range []string{"file", "dir/file"} {
		if _, err := v.Write(ctx, name, mine(), true, strings.NewReader("x")); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(root, "pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{"out": "/etc", "up": "../..", "loop": "loop"} {
		if err := os.Symlink(to, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	second := func(_ any, err error) error { return err }
	read := func(path string) error {
		r, _, err := v.Read(ctx, path)
		if err == nil {
			r.Close()
		}
		return err
	}
	for what, c := range map[string]struct {
		err  error
		want int
	}{
		"a missing file":              {read("no"), 404},
		"below a file":                {read("file/x"), 404},
		"a directory":                 {read("dir"), 400},
		"a pipe":                      {read("pipe"), 400},
		"out of the volume":           {read("out/passwd"), 400},
		"up":                          {read("up/etc/passwd"), 400},
		"dots":                        {read("../../../../etc/passwd"), 404}, // the volume's own /etc
		"a loop":                      {read("loop"), 400},
		"write out":                   {second(v.Write(ctx, "out/x", mine(), true, strings.NewReader("x"))), 400},
		"write without a parent":      {second(v.Write(ctx, "no/x", mine(), false, strings.NewReader("x"))), 404},
		"write over a directory":      {second(v.Write(ctx, "dir", mine(), true, strings.NewReader("x"))), 400},
		"change out":                  {second(v.Change(ctx, "up/x", mine())), 400},
		"make what exists":            {second(v.MakeDir(ctx, "dir", mine(), false)), 409},
		"a directory over a file":     {second(v.MakeDir(ctx, "file", mine(), true)), 409},
		"a directory without parents": {second(v.MakeDir(ctx, "no/x", mine(), false)), 404},
		"list a file":                 {second(v.List(ctx, "file", 1)), 400},
		"list nothing":                {second(v.List(ctx, "no", 1)), 404},
		"list out":                    {second(v.List(ctx, "out", 1)), 400},
		"depth 0":                     {second(v.List(ctx, "", 0)), 400},
		"remove nothing":              {v.Remove(ctx, "no"), 404},
		"remove the root":             {v.Remove(ctx, "/"), 400},
		"remove out":                  {v.Remove(ctx, "out/passwd"), 400},
		"a long path":                 {read(strings.Repeat("x", 5000)), 400},
		"a long name":                 {read(strings.Repeat("x", 300)), 400},
		"a zero byte":                 {read("a\x00b"), 400},
		"no mount":                    {second(b.VolumeFiles(root+"/no").Stat(ctx, "/")), 404},
		"the guest's root":            {second(b.VolumeFiles("/").Stat(ctx, "/etc/passwd")), 400},
		"a mount that is not clean":   {second(b.VolumeFiles(root+"/../..").Stat(ctx, "/")), 400},
	} {
		if got := refusal(c.err); got != c.want {
			t.Errorf("%s: status %d, %v; want %d", what, got, c.err, c.want)
		}
	}
	if e, err := v.MakeDir(ctx, "dir", mine(), true); err != nil || e.Kind != volumewire.Directory {
		t.Errorf("with parents a directory may exist: %+v, %v", e, err)
	}
}

// A client that leaves during an upload leaves the old file, and no part of the new one.
func TestAnUploadToAVolumeThatBreaksOff(t *testing.T) {
	root := t.TempDir()
	v, ctx := startAgent(t).VolumeFiles(root), t.Context()
	if _, err := v.Write(ctx, "f", mine(), false, strings.NewReader("old")); err != nil {
		t.Fatal(err)
	}
	gone := errors.New("gone")
	body := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(gone))
	if _, err := v.Write(ctx, "f", mine(), false, body); !errors.Is(err, gone) {
		t.Errorf("the write: %v", err)
	}
	if got := readVolume(t, v, "f"); got != "old" {
		t.Errorf("the file has %d bytes", len(got))
	}
	if all, err := os.ReadDir(root); err != nil || len(all) != 1 {
		t.Errorf("left are %v, %v", all, err)
	}
}

// A directory with more files than an answer may have is refused, instead of a part of it.
func TestAListOfAVolumeThatIsTooLong(t *testing.T) {
	root := t.TempDir()
	for _, dir := range []string{"a", "b"} {
		if err := os.Mkdir(filepath.Join(root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for i := range volumewire.MaxEntries - 1 {
		name := filepath.Join(root, string("ab"[i%2]), strings.Repeat("x", i/200+1)+string(rune('a'+i%200)))
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	v := startAgent(t).VolumeFiles(root)
	if all, err := v.List(t.Context(), "", 1); err != nil || len(all) != 2 {
		t.Errorf("depth 1: %d, %v", len(all), err)
	}
	if _, err := v.List(t.Context(), "", 2); refusal(err) != 400 || !strings.Contains(err.Error(), "smaller depth") {
		t.Errorf("depth 2: %v", err)
	}
}
