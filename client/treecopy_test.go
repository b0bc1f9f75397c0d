package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
	"github.com/forkd/forkd/internal/testing/tartest"
)

func lstat(t *testing.T, name string) (fs.FileInfo, *syscall.Stat_t) {
	t.Helper()
	st, err := os.Lstat(name)
	if err != nil {
		t.Fatal(err)
	}
	return st, st.Sys().(*syscall.Stat_t)
}

// sparse makes a file of 1 GiB with a few bytes in its middle.
func sparse(t *testing.T, name string) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte("middle"), 1<<29)
	if err := errors.Join(err, f.Truncate(1<<30), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestCopiesKeepWhatTarKeeps covers times, modes, hard links and holes.
func TestCopiesKeepWhatTarKeeps(t *testing.T) {
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir(), t.TempDir()
		then := time.Unix(1234567890, 123456789)
		odd(t, from)
		write(t, from+"/nobodys", "x", 0)
		sparse(t, from+"/sparse")
		err := errors.Join(os.Link(from+"/file", from+"/sub/again"), os.Chmod(from+"/sub", 0o710), os.Chmod(from+"/file", 0o754))
		dated := []string{"/file", "/sparse", "/sub", ""}
		for _, name := range dated {
			err = errors.Join(err, os.Chtimes(from+name, time.Time{}, then))
		}
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(to, filepath.Base(from))
		for range 2 { // the second copy replaces existing files
			if err := cp(from, to, client.CopyOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, name := range dated {
				if st, _ := lstat(t, copied+name); !st.ModTime().Equal(then) {
					t.Errorf("%q is of %v, want %v", name, st.ModTime(), then)
				}
			}
			for name, mode := range map[string]fs.FileMode{"/file": 0o754, "/sub": 0o710, "/nobodys": 0} {
				if st, _ := lstat(t, copied+name); st.Mode().Perm() != mode {
					t.Errorf("%q has the mode %o, want %o", name, st.Mode().Perm(), mode)
				}
			}
			_, one := lstat(t, copied+"/file")
			if _, two := lstat(t, copied+"/sub/again"); one.Ino != two.Ino || one.Nlink != 2 {
				t.Errorf("%d links, inodes %d and %d", one.Nlink, one.Ino, two.Ino)
			}
			st, sys := lstat(t, copied+"/sparse")
			if _, source := lstat(t, from+"/sparse"); st.Size() != 1<<30 || sys.Blocks > source.Blocks+64 {
				t.Errorf("%d bytes in %d blocks, the source has %d", st.Size(), sys.Blocks, source.Blocks)
			}
			link, _ := lstat(t, from+"/link")
			if st, _ := lstat(t, copied+"/link"); !st.ModTime().Equal(link.ModTime()) {
				t.Errorf("the link is of %v, want %v", st.ModTime(), link.ModTime())
			}
		}
		// Also a single file.
		if err := cp(from+"/file", to+"/alone", client.CopyOptions{}); err != nil {
			t.Fatal(err)
		}
		if st, _ := lstat(t, to+"/alone"); !st.ModTime().Equal(then) || st.Mode().Perm() != 0o754 || st.Size() != int64(len("content")) {
			t.Errorf("alone: %v %v %d", st.ModTime(), st.Mode(), st.Size())
		}
	})
}

// TestTreesGoAsOneStream: the number of requests does not grow with the number of files.
func TestTreesGoAsOneStream(t *testing.T) {
	c, id := realAgent(t)
	from, to := t.TempDir(), t.TempDir()
	for i := range 250 {
		write(t, fmt.Sprintf("%s/d%d/%d", from, i%10, i), "x", 0o644)
	}
	for name, cp := range map[string]func(opt client.CopyOptions) error{
		"to":   func(opt client.CopyOptions) error { return c.CopyTo(t.Context(), id, from, to+"/there", opt) },
		"from": func(opt client.CopyOptions) error { return c.CopyFrom(t.Context(), id, from, to+"/here", opt) },
	} {
		before := asked(t, c)
		var total int64
		arrived, lossy := 0, false
		err := cp(client.CopyOptions{Arrived: func() { arrived++ }, Lossy: func() { lossy = true }, Total: func(n int64) { total = n }})
		if err != nil || lossy || arrived != 261 {
			t.Errorf("%s: %v, lossy %v, %d arrived", name, err, lossy, arrived)
		}
		if total != 250 && name == "from" { // into the guest it is counted concurrently, and may be too late
			t.Errorf("%s: %d bytes in all", name, total)
		}
		if n := asked(t, c) - before; n < 2 || n > 6 {
			t.Errorf("%s: %d requests", name, n)
		}
	}
}

// asked returns the number of requests to the daemon, including its own.
func asked(t *testing.T, c *client.Client) int {
	t.Helper()
	text, err := c.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	sum := 0
	for line := range strings.Lines(text) {
		var n int
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "} "); ok && strings.HasPrefix(name, "forkd_http_request_seconds_count{") {
			_, _ = fmt.Sscan(value, &n)
			sum += n
		}
	}
	return sum
}

// TestAnInterruptedTreeIsTold: the reported number of files is complete, and there are no partial
// files.
func TestAnInterruptedTreeIsTold(t *testing.T) {
	c, id := realAgent(t)
	from := t.TempDir()
	for i := range 40 {
		write(t, fmt.Sprintf("%s/f%02d", from, i), strings.Repeat("x", 1<<20), 0o644)
	}
	for name, cp := range map[string]func(ctx context.Context, to string, opt client.CopyOptions) error{
		"to": func(ctx context.Context, to string, opt client.CopyOptions) error {
			return c.CopyTo(ctx, id, from, to, opt)
		},
		"from": func(ctx context.Context, to string, opt client.CopyOptions) error {
			return c.CopyFrom(ctx, id, from, to, opt)
		},
	} {
		t.Run(name, func(t *testing.T) {
			to := t.TempDir() + "/copy"
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sent := 0
			err := cp(ctx, to, client.CopyOptions{Progress: func(n int) {
				if sent += n; sent > 20<<20 {
					cancel()
				}
			}})
			var stopped *client.StoppedError
			if !errors.As(err, &stopped) || !errors.Is(err, context.Canceled) || stopped.Unknown || stopped.Copied < 2 {
				t.Fatalf("got %v", err)
			}
			names, err := os.ReadDir(to)
			if err != nil || len(names)+1 != stopped.Copied { // with the directory
				t.Errorf("%d files are there, %d were told, %v", len(names), stopped.Copied, err)
			}
			for _, e := range names {
				if st, err := e.Info(); err != nil || st.Size() != 1<<20 || !strings.HasPrefix(e.Name(), "f") {
					t.Errorf("%s is there in part: %v", e.Name(), err)
				}
			}
		})
	}
}

// TestARefusedTreeIsNotSentWhole: the answer comes before the end of the stream.
func TestARefusedTreeIsNotSentWhole(t *testing.T) {
	c, id := realAgent(t)
	from, to := t.TempDir(), t.TempDir()
	for i := range 64 {
		write(t, fmt.Sprintf("%s/f%02d", from, i), strings.Repeat("x", 1<<20), 0o644)
	}
	write(t, to+"/file", "in the way", 0o644)
	sent := 0
	err := c.CopyTo(t.Context(), id, from, to+"/file", client.CopyOptions{Progress: func(n int) { sent += n }})
	if err == nil || !strings.Contains(err.Error(), "is not a directory") || sent > 48<<20 {
		t.Errorf("got %v after %d bytes", err, sent)
	}
}

func TestWhatTheSourceDeniesIsTold(t *testing.T) {
	if os.Getuid() == 0 { // root may read everything
		asOrdinaryUser(t)
		return
	}
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir(), t.TempDir()
		write(t, from+"/a", "a", 0o644)
		write(t, from+"/closed", "b", 0)
		err := cp(from, to+"/copy", client.CopyOptions{})
		var partly *client.CopyError
		if !errors.As(err, &partly) || len(partly.Failed) != 1 || !strings.Contains(err.Error(), "/closed: permission denied") {
			t.Errorf("got %v", err)
		}
		wantTree(t, to, map[string]string{"copy/a": "a"})
	})
}

// asOrdinaryUser runs the test once more, in a process of a user without privileges.
func asOrdinaryUser(t *testing.T) {
	t.Helper()
	const user = 65534
	dir, err := os.MkdirTemp("", "ordinary-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	self, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = errors.Join(os.Chown(dir, user, user), os.WriteFile(dir+"/tests", self, 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), dir+"/tests", "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Errorf("as an ordinary user: %v\n%s", err, out)
	}
}

// treeGuest is an agent for trees with any content.
type treeGuest struct {
	filesystemconnect.UnimplementedFilesystemHandler
	kind filesystem.FileType
}

func (g treeGuest) Stat(context.Context, *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	resp := connect.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Path: "/t", Type: g.kind}})
	resp.Header().Set(agentproto.HeaderTrees, "1")
	return resp, nil
}

// copyOfStream copies from a guest that sends stream, and returns the error.
func copyOfStream(t *testing.T, kind filesystem.FileType, stream []byte, target string) error {
	t.Helper()
	inner, mux := http.NewServeMux(), http.NewServeMux()
	inner.Handle(filesystemconnect.NewFilesystemHandler(treeGuest{kind: kind}))
	inner.HandleFunc("GET /files/tree", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(stream) })
	mux.Handle("/v1/sandboxes/sb/agent/", http.StripPrefix("/v1/sandboxes/sb/agent", inner))
	srv := httptest.NewServer(mux)
	defer srv.Close()
	c, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.CopyFrom(t.Context(), "sb", "/t", target, client.CopyOptions{})
}

func entry(kind byte, name, text string) []byte {
	return tartest.Entry(kind, name, nil, func(h []byte) {
		copy(h[100:], "0007777")
		copy(h[157:], text)
	})
}

func evil(name string) []byte { return tartest.Entry('0', name, []byte("evil"), nil) }

// TestAnEvilStreamWritesNowhereElse uses a real disk, with links of the stream and of the target.
func TestAnEvilStreamWritesNowhereElse(t *testing.T) {
	root := entry('5', "./", "")
	for name, stream := range map[string][][]byte{
		"a path that goes up":              {root, evil("../victim")},
		"an absolute path":                 {root, evil("VICTIM")},
		"a link, and a file over it":       {root, entry('2', "l", "../victim"), evil("l")},
		"a link, and a file in it":         {root, entry('2', "l", "../victimdir"), evil("l/x")},
		"a link, and a directory over it":  {root, entry('2', "l", "../victimdir"), entry('5', "l/", ""), evil("l/x")},
		"a link up, and a directory":       {root, entry('2', "l", ".."), entry('5', "l/", ""), evil("l/victim")},
		"a directory, a link, a file":      {root, entry('5', "d/", ""), entry('2', "d", "../victimdir"), evil("d/x")},
		"a hard link to outside":           {root, entry('1', "h", "../victim"), evil("h")},
		"a hard link by a link":            {root, entry('2', "l", ".."), entry('1', "h", "l/victim"), evil("h")},
		"a hard link to a link":            {root, entry('2', "l", "../victim"), entry('1', "h", "l"), evil("h")},
		"a link of the target's":           {root, evil("there")},
		"a directory link of the target's": {root, entry('5', "theredir/", ""), evil("theredir/x")},
		"a device and a FIFO":              {root, entry('3', "dev", ""), entry('6', "fifo", "")},
		"a hard link by the target's link": {root, entry('1', "h", "theredir/x"), evil("h")},
		"a link as the tree itself":        {entry('2', "./", "../victimdir"), evil("x")},
		"a broken stream":                  {root, tartest.Entry('0', "f", []byte("evil"), nil)[:514]},
	} {
		t.Run(name, func(t *testing.T) {
			outside := t.TempDir()
			write(t, outside+"/victim", "untouched", 0o644)
			write(t, outside+"/victimdir/x", "untouched", 0o644)
			err := errors.Join(os.Mkdir(outside+"/target", 0o755), os.Symlink("../victim", outside+"/target/there"),
				os.Symlink("../victimdir", outside+"/target/theredir"), os.Symlink("..", outside+"/target/t"))
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range stream {
				if bytes.HasPrefix(e, []byte("VICTIM")) {
					stream[i] = evil(outside + "/victim")
				}
			}
			for _, target := range []string{outside + "/target/new", outside + "/target"} { // t, in the second, is a link
				if err := copyOfStream(t, filesystem.FileType_FILE_TYPE_DIRECTORY, bytes.Join(stream, nil), target); err == nil {
					t.Error("the copy succeeded")
				}
			}
			if err := os.Remove(outside + "/target/t"); err != nil {
				t.Fatal(err)
			}
			err = os.Rename(outside+"/target", outside+"/t")
			if err != nil {
				t.Fatal(err)
			}
			_ = copyOfStream(t, filesystem.FileType_FILE_TYPE_DIRECTORY, bytes.Join(stream, nil), outside)
			for at, content := range tree(t, outside) {
				if strings.HasPrefix(filepath.Base(at), ".forkd-part-") {
					t.Errorf("%s is left", at)
				}
				if !strings.HasPrefix(at, "t/") && content != "untouched" {
					t.Errorf("%s is %q", at, content)
				}
			}
			if got := tree(t, outside); got["victim"] != "untouched" || got["victimdir/x"] != "untouched" {
				t.Errorf("got %v", got)
			}
			if _, sys := lstat(t, outside+"/victim"); sys.Nlink != 1 {
				t.Errorf("the victim has %d names", sys.Nlink)
			}
			err = filepath.WalkDir(outside, func(at string, e fs.DirEntry, err error) error {
				st, statErr := e.Info()
				if statErr == nil && (st.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 || st.Mode()&(fs.ModeDevice|fs.ModeNamedPipe) != 0) {
					t.Errorf("%s is %v", at, st.Mode())
				}
				return errors.Join(err, statErr)
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// TestAGuestsWordsAreCleaned covers names and texts of a stream in errors.
func TestAGuestsWordsAreCleaned(t *testing.T) {
	err := copyOfStream(t, filesystem.FileType_FILE_TYPE_DIRECTORY,
		slices.Concat(entry('5', "./", ""), entry('3', "dev\x1b[2J", "")), t.TempDir())
	if err == nil || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
}
