package client_test

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem/filesystemconnect"
)

// odd makes a tree with every kind of file except regular ones.
func odd(t *testing.T, dir string) {
	t.Helper()
	write(t, dir+"/file", "content", 0o640)
	write(t, dir+"/sub/deep", "deep", 0o644)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: dir + "/socket"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	err = errors.Join(
		unix.Mkfifo(dir+"/fifo", 0o600),
		os.Symlink("file", dir+"/link"), os.Symlink("sub", dir+"/linkdir"), os.Symlink("/no/such", dir+"/dangling"), os.Symlink("..", dir+"/sub/up"),
	)
	if err != nil {
		t.Fatal(err)
	}
}

// tree returns the content of a directory: names with contents, and links with their text.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		name := strings.TrimPrefix(strings.TrimPrefix(p, dir), "/")
		switch {
		case err != nil || name == "" || d.IsDir():
			return err
		case d.Type()&fs.ModeSymlink != 0:
			text, err := os.Readlink(p)
			out[name] = "-> " + text
			return err
		}
		b, err := os.ReadFile(p)
		out[name] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func wantTree(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := tree(t, dir)
	for name, content := range want {
		if got[name] != content {
			t.Errorf("%s is %q, want %q", name, got[name], content)
		}
	}
	for name := range got {
		if _, ok := want[name]; !ok {
			t.Errorf("there is %s too", name)
		}
	}
}

var copies = map[string]string{"file": "content", "sub/deep": "deep", "link": "-> file", "linkdir": "-> sub", "dangling": "-> /no/such", "sub/up": "-> .."}

// bothWays runs a test for a copy into the guest, and for a copy out of it. The guest's files are
// this host's.
func bothWays(t *testing.T, f func(t *testing.T, c func(source, target string, opt client.CopyOptions) error)) {
	c, id := realAgent(t)
	t.Run("to", func(t *testing.T) {
		f(t, func(source, target string, opt client.CopyOptions) error {
			return c.CopyTo(t.Context(), id, source, target, opt)
		})
	})
	t.Run("from", func(t *testing.T) {
		f(t, func(source, target string, opt client.CopyOptions) error {
			return c.CopyFrom(t.Context(), id, source, target, opt)
		})
	})
}

func TestLinksAreKeptAndOddThingsSkipped(t *testing.T) {
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir(), t.TempDir()
		odd(t, from)
		copied := filepath.Join(to, filepath.Base(from))
		var skipped []string
		opt := client.CopyOptions{Skipped: func(name, why string) { skipped = append(skipped, filepath.Base(name)+": "+why) }}
		for range 2 { // the second copy replaces existing files
			skipped = nil
			if err := cp(from, to, opt); err != nil {
				t.Fatal(err)
			}
			if slices.Sort(skipped); !slices.Equal(skipped, []string{"fifo: it is a FIFO", "socket: it is a socket"}) {
				t.Errorf("skipped: %q", skipped)
			}
			wantTree(t, copied, copies)
		}
		if st, err := os.Stat(copied + "/file"); err != nil || st.Mode().Perm() != 0o640 {
			t.Errorf("mode: %v, %v", st, err)
		}
		// A named link is followed.
		if err := cp(from+"/link", to+"/named", client.CopyOptions{}); err != nil {
			t.Error(err)
		}
		if err := cp(from+"/linkdir", to+"/nameddir", client.CopyOptions{}); err != nil {
			t.Error(err)
		}
		if got, _ := os.ReadFile(to + "/named"); string(got) != "content" {
			t.Errorf("got %q", got)
		}
		wantTree(t, to+"/nameddir", map[string]string{"deep": "deep", "up": "-> .."})
	})
}

func TestLinksAreFollowedIfAsked(t *testing.T) {
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir(), t.TempDir()
		odd(t, from)
		err := cp(from, to+"/copy", client.CopyOptions{FollowLinks: true})
		var partly *client.CopyError
		if !errors.As(err, &partly) || len(partly.Failed) != 3 { // the dangling link, and up twice
			t.Fatalf("got %v", err)
		}
		for _, word := range []string{"dangling", "sub/up: it is a link to its own parent directory", "linkdir/up: it is"} {
			if !strings.Contains(errors.Join(partly.Failed...).Error(), word) {
				t.Errorf("no %q in %q", word, partly.Failed)
			}
		}
		wantTree(t, to+"/copy", map[string]string{"file": "content", "link": "content", "linkdir/deep": "deep", "sub/deep": "deep"})
	})
}

func TestAMissingTargetDirectory(t *testing.T) {
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir(), t.TempDir()
		write(t, from+"/file", "x", 0o644)
		for _, row := range [][2]string{{from + "/file", to + "/no/file"}, {from + "/file", to + "/no/"}, {from, to + "/no/tree"}} {
			err := cp(row[0], row[1], client.CopyOptions{})
			var e *client.Error
			if !errors.As(err, &e) || e.Code != api.CodeNotFound || !strings.Contains(e.Message, "no directory "+to+"/no") || e.Details["directory"] != to+"/no" {
				t.Errorf("%s: got %v", row[1], err)
			}
		}
		if err := cp(from, to+"/new/", client.CopyOptions{}); err != nil { // like cp -r
			t.Error(err)
		}
		wantTree(t, to, map[string]string{"new/file": "x"})
	})
}

// TestPartsThatCannotBeCopied: the other parts are copied, and the missing ones are reported.
func TestPartsThatCannotBeCopied(t *testing.T) {
	bothWays(t, func(t *testing.T, cp func(string, string, client.CopyOptions) error) {
		from, to := t.TempDir()+"/tree", t.TempDir()
		for _, name := range []string{"a", "b", "c/d", "z"} {
			write(t, from+"/"+name, name, 0o644)
		}
		// A directory is in a file's way, and a file in a directory's.
		if err := errors.Join(os.MkdirAll(to+"/tree/b/full", 0o755), os.WriteFile(to+"/tree/c", nil, 0o644)); err != nil {
			t.Fatal(err)
		}
		err := cp(from, to, client.CopyOptions{})
		var partly *client.CopyError
		if !errors.As(err, &partly) || len(partly.Failed) != 2 || partly.Copied != 3 {
			t.Fatalf("got %v", err)
		}
		for i, name := range []string{"/tree/b", "/tree/c"} {
			if !strings.Contains(partly.Failed[i].Error(), to+name) || !strings.Contains(partly.Failed[i].Error(), "director") {
				t.Errorf("%s: %v", name, partly.Failed[i])
			}
		}
		wantTree(t, to, map[string]string{"tree/a": "a", "tree/c": "", "tree/z": "z"})
	})
}

// failing is a reader that breaks off in the middle.
type failing struct{ left int }

func (f *failing) Read(p []byte) (int, error) {
	if f.left <= 0 {
		return 0, errors.New("the source broke")
	}
	n := min(len(p), f.left)
	f.left -= n
	return n, nil
}

func TestAnInterruptedCopyLeavesWhatWasThere(t *testing.T) {
	c, id := realAgent(t)
	from, to := t.TempDir(), t.TempDir()
	write(t, from+"/big", strings.Repeat("x", 8<<20), 0o644)
	write(t, to+"/big", "old", 0o644)
	if err := c.Upload(t.Context(), id, to+"/big", "", &failing{1 << 20}); err == nil {
		t.Error("half a file was uploaded")
	}
	for what, cp := range map[string]func(ctx context.Context, opt client.CopyOptions) error{
		"to": func(ctx context.Context, opt client.CopyOptions) error {
			return c.CopyTo(ctx, id, from+"/big", to, opt)
		},
		"from": func(ctx context.Context, opt client.CopyOptions) error {
			return c.CopyFrom(ctx, id, from+"/big", to, opt)
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := cp(ctx, client.CopyOptions{Progress: func(int) { cancel() }})
		if err == nil {
			t.Errorf("%s: an interrupted copy succeeded", what)
		}
		cancel()
	}
	// The guest's part is removed when the agent notices the disconnected caller.
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		names, err := os.ReadDir(to)
		if err != nil {
			t.Fatal(err)
		}
		if len(names) == 1 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("left: %v", names)
		}
	}
	wantTree(t, to, map[string]string{"big": "old"})
}

// evilGuest gives answers of a hostile agent.
type evilGuest struct {
	filesystemconnect.UnimplementedFilesystemHandler
	names []string // the entries of every directory
	link  string
}

func (g *evilGuest) Stat(context.Context, *connect.Request[filesystem.StatRequest]) (*connect.Response[filesystem.StatResponse], error) {
	return connect.NewResponse(&filesystem.StatResponse{Entry: &filesystem.EntryInfo{Path: "/t", Type: filesystem.FileType_FILE_TYPE_DIRECTORY}}), nil
}

func (g *evilGuest) ListDir(_ context.Context, r *connect.Request[filesystem.ListDirRequest]) (*connect.Response[filesystem.ListDirResponse], error) {
	out := &filesystem.ListDirResponse{}
	for i, name := range g.names {
		e := &filesystem.EntryInfo{Path: name, Type: filesystem.FileType_FILE_TYPE_FILE, Mode: 0o644}
		switch {
		case strings.HasPrefix(name, "dir:"):
			e.Path, e.Type = name[4:], filesystem.FileType_FILE_TYPE_DIRECTORY
			if strings.Count(r.Msg.GetPath(), "/") > 1 {
				continue
			}
		case g.link != "" && i == 0:
			e.SymlinkTarget, e.LinkText = &g.link, []byte(g.link)
		}
		out.Entries = append(out.Entries, e)
	}
	return connect.NewResponse(out), nil
}

// TestAnEvilGuestWritesNowhereElse copies names outside the target, and a link followed by a file
// or a directory of the same name.
func TestAnEvilGuestWritesNowhereElse(t *testing.T) {
	for _, row := range []struct {
		name  string
		names []string
		link  string
	}{
		{"the directory above", []string{".."}, ""},
		{"a name that goes up", []string{"../../victim"}, ""},
		{"an absolute name", []string{"/etc/victim"}, ""},
		{"no name", []string{""}, ""},
		{"a zero byte", []string{"a\x00b"}, ""},
		{"a file over a link", []string{"x", "x"}, "../victim"},
		{"a file over an absolute link", []string{"x", "x"}, "VICTIM"},
		{"a directory over a link out", []string{"x", "dir:x"}, "../victimdir"},
		{"a directory over a link in the parent", []string{"x", "dir:x"}, "../../victimdir"},
		{"a directory over itself", []string{"x", "dir:x"}, "."},
	} {
		t.Run(row.name, func(t *testing.T) {
			outside := t.TempDir()
			victim := outside + "/victim"
			write(t, victim, "untouched", 0o644)
			write(t, outside+"/victimdir/x", "untouched", 0o644)
			if row.link == "VICTIM" {
				row.link = victim
			}
			mux := http.NewServeMux()
			mux.Handle("/v1/sandboxes/sb/agent/", http.StripPrefix("/v1/sandboxes/sb/agent", func() http.Handler {
				inner := http.NewServeMux()
				inner.Handle(filesystemconnect.NewFilesystemHandler(&evilGuest{names: row.names, link: row.link}))
				inner.HandleFunc("GET /files", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "evil") })
				return inner
			}()))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			srv := &http.Server{Handler: mux}
			done := make(chan error, 1)
			go func() { done <- srv.Serve(l) }()
			t.Cleanup(func() { srv.Close(); <-done })
			c, err := client.New(client.Options{URL: "http://" + l.Addr().String()})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			_ = c.CopyFrom(t.Context(), "sb", "/t", outside+"/target", client.CopyOptions{})
			for name, content := range tree(t, outside) {
				inside := strings.HasPrefix(name, "target/")
				if !inside && content != "untouched" {
					t.Errorf("%s is %q", name, content)
				}
			}
			if got := tree(t, outside); len(got) < 2 || got["victim"] == "" {
				t.Errorf("got %v", got)
			}
		})
	}
}

func TestUnknownGuestUserIsNoTokenProblem(t *testing.T) {
	c, id := realAgent(t)
	dir := t.TempDir()
	write(t, dir+"/f", "x", 0o644)
	opt := client.CopyOptions{User: "nobody-of-that-name"}
	_, down := c.Download(t.Context(), id, dir+"/f", opt.User)
	for what, err := range map[string]error{
		"to": c.CopyTo(t.Context(), id, dir+"/f", dir+"/g", opt), "from": c.CopyFrom(t.Context(), id, dir+"/f", dir+"/g", opt),
		"download": down, "upload": c.Upload(t.Context(), id, dir+"/g", opt.User, strings.NewReader("")),
	} {
		if client.CodeOf(err) != api.CodeInvalid || !strings.Contains(err.Error(), "nobody-of-that-name") {
			t.Errorf("%s: %s, %v", what, client.CodeOf(err), err)
		}
	}
}
