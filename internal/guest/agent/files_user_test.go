package agent_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agent"
	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
	"github.com/forkd/forkd/internal/guest/treetar"
	"github.com/forkd/forkd/internal/testing/tartest"
)

// someUser is in /etc/passwd of every system and of the machine.
const (
	someUser = "nobody"
	someUID  = 65534
)

// userBench is an agent with an image user other than root, a directory of that user, and a file of
// root beside it.
type userBench struct {
	*bench
	own, secret string
}

func startUserAgent(t *testing.T) *userBench {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can act as another user")
	}
	b := &userBench{bench: startAgent(t, func(c *agent.Config) {
		if err := os.WriteFile(c.ImageFile, []byte(`{"user":"`+someUser+`"}`), 0o644); err != nil {
			t.Fatal(err)
		}
	})}
	dir := t.TempDir()
	b.own, b.secret = filepath.Join(dir, "own"), filepath.Join(dir, "secret")
	err := errors.Join(
		os.Chmod(filepath.Dir(dir), 0o755), // the test's own directory, accessible only to root
		os.Mkdir(b.own, 0o700), os.Chown(b.own, someUID, someUID),
		os.WriteFile(b.secret, []byte("secret"), 0o600),
		os.MkdirAll(filepath.Join(dir, "closed", "in"), 0o700),
		os.WriteFile(filepath.Join(dir, "closed", "in", "f"), nil, 0o666),
	)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	st, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return st.Sys().(*syscall.Stat_t).Uid
}

// TestFilesHaveTheUsersRights tries every operation on a file as a user without the right. It uses
// only its own directory, so a failure does no harm.
func TestFilesHaveTheUsersRights(t *testing.T) {
	b := startUserAgent(t)
	dir := filepath.Dir(b.own)
	planted := filepath.Join(b.own, "planted") // the user's own link
	if err := os.Symlink(b.secret, planted); err != nil {
		t.Fatal(err)
	}
	ctx, fs := t.Context(), b.Filesystem()
	upload := func(path string) error { return b.Upload(ctx, path, "", 0o666, strings.NewReader("evil")) }
	move := func(from, to string) error {
		return second(fs.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: from, Destination: to})))
	}
	remove := func(path string) error {
		return second(fs.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: path})))
	}
	closed := filepath.Join(dir, "closed")
	for _, tc := range []struct {
		name string
		err  error
	}{
		{"download", second(b.Download(ctx, b.secret, "", io.Discard))},
		{"download through a link", second(b.Download(ctx, planted, "", io.Discard))},
		{"download of the agent's environment", second(b.Download(ctx, "/proc/self/environ", "", io.Discard))},
		{"upload", upload(b.secret)},
		{"upload through a link", upload(planted)},
		{"upload of a new file", upload(filepath.Join(dir, "new"))},
		{"upload with folders", upload(filepath.Join(dir, "new", "deep"))},
		{"stat below a closed folder", second(fs.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: closed + "/in"})))},
		{"list of a closed folder", second(fs.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: closed})))},
		{"make a folder", second(fs.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: dir + "/made"})))},
		{"move out of a folder", move(b.secret, b.own+"/stolen")},
		{"move into a folder", move(planted, dir+"/there")},
		{"remove", remove(b.secret)},
		{"remove a tree", remove(closed)},
		{"watch", second(fs.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: closed})))},
		{"link", b.link(t, dir+"/new", "/x", "")},
	} {
		if !denied(tc.err) {
			t.Errorf("%s: got %v", tc.name, tc.err)
		}
	}
	if got, err := os.ReadFile(b.secret); err != nil || string(got) != "secret" || ownerOf(t, b.secret) != 0 {
		t.Errorf("root's file is %q of user %d, %v", got, ownerOf(t, b.secret), err)
	}
	for _, name := range []string{"new", "made", "there"} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was made", name)
		}
	}
}

func second[T any](_ T, err error) error { return err }

// denied reports whether the guest's kernel refused and the answer says so.
func denied(err error) bool {
	var fe *agentclient.FileError
	if errors.As(err, &fe) {
		return fe.Code == http.StatusForbidden && strings.Contains(fe.Message, "denied")
	}
	return connect.CodeOf(err) == connect.CodePermissionDenied
}

func (b *bench) link(t *testing.T, path, target, user string) error {
	q := url.Values{"path": {path}, "target": {target}, "username": {user}}
	code, said := b.post(t, "/files/link?"+q.Encode(), "", nil)
	if code == http.StatusNoContent {
		return nil
	}
	return &agentclient.FileError{Code: code, Message: said}
}

func TestFilesOfTheUser(t *testing.T) {
	b := startUserAgent(t)
	ctx, fs := t.Context(), b.Filesystem()
	made := b.own + "/a/b/f"
	if err := b.Upload(ctx, made, "", 0o640, strings.NewReader("x")); err != nil {
		t.Fatal(err)
	}
	if err := b.link(t, b.own+"/a/link", "b/f", ""); err != nil {
		t.Error(err)
	}
	for _, path := range []string{made, b.own + "/a", b.own + "/a/b", b.own + "/a/link"} {
		if ownerOf(t, path) != someUID {
			t.Errorf("%s belongs to user %d", path, ownerOf(t, path))
		}
	}
	if err := b.Upload(ctx, b.own+"/a/link", "", 0, strings.NewReader("through")); err != nil {
		t.Error(err)
	}
	if got, _ := os.ReadFile(made); string(got) != "through" {
		t.Errorf("a link to a file is followed as cp does: got %q", got)
	}
	if st, err := os.Stat(made); err != nil || st.Mode().Perm() != 0o640 {
		t.Errorf("the mode of what was there: %v, %v", st, err)
	}
	if _, err := fs.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: b.own + "/a", Destination: b.own + "/z"})); err != nil {
		t.Error(err)
	}
	if _, err := fs.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: b.own + "/z"})); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(b.own); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	// A request as root succeeds.
	if err := b.Upload(ctx, b.secret, "root", 0, strings.NewReader("new")); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(b.secret); err != nil || st.Mode().Perm() != 0o600 || st.Size() != 3 {
		t.Errorf("got %v, %v", st, err)
	}
	if err := b.Upload(ctx, b.own+"/roots", "root", 0, strings.NewReader("")); err != nil || ownerOf(t, b.own+"/roots") != 0 {
		t.Errorf("root's upload belongs to user %d, %v", ownerOf(t, b.own+"/roots"), err)
	}
}

// TestMagicLinksLeadNowhere uses links in /proc. To the kernel each thread of the agent is the
// agent, and may follow its own links, past directories closed to the user.
func TestMagicLinksLeadNowhere(t *testing.T) {
	b := startUserAgent(t)
	closed, err := os.Open(filepath.Join(filepath.Dir(b.own), "closed", "in"))
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	magic := fmt.Sprintf("/proc/self/fd/%d", closed.Fd())
	planted := filepath.Join(b.own, "planted")
	if err := os.Symlink(magic, planted); err != nil {
		t.Fatal(err)
	}
	ctx, fs := t.Context(), b.Filesystem()
	for _, dir := range []string{magic, planted, "/proc/self/root" + b.own} {
		for what, err := range map[string]error{
			"download": second(b.Download(ctx, dir+"/f", "", io.Discard)),
			"upload":   b.Upload(ctx, dir+"/f", "", 0, strings.NewReader("evil")),
			"list":     second(fs.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir}))),
			"stat":     second(fs.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: dir + "/f"}))),
			"watch":    second(fs.CreateWatcher(ctx, connect.NewRequest(&filesystem.CreateWatcherRequest{Path: dir}))),
			"move":     second(fs.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: dir + "/f", Destination: b.own + "/g"}))),
		} {
			if err == nil {
				t.Errorf("%s over %s", what, dir)
			}
		}
	}
	if got, _ := os.ReadFile(closed.Name() + "/f"); len(got) != 0 {
		t.Errorf("the file is %q", got)
	}
}

// TestAsRoot covers the needs of E2B's routes: root's rights, and files owned by the user.
func TestAsRoot(t *testing.T) {
	b := startUserAgent(t)
	path := filepath.Dir(b.own) + "/new/f"
	code, said := b.post(t, "/files?path="+path, "application/octet-stream", []byte("x"), agentproto.HeaderAsRoot, "1")
	if code != 200 || ownerOf(t, path) != someUID || ownerOf(t, filepath.Dir(path)) != someUID {
		t.Errorf("got %d %s, owner %d", code, said, ownerOf(t, path))
	}
	req := connect.NewRequest(&filesystem.MakeDirRequest{Path: filepath.Dir(b.own) + "/dir"})
	req.Header().Set(agentproto.HeaderAsRoot, "1")
	if _, err := b.Filesystem().MakeDir(t.Context(), req); err != nil || ownerOf(t, req.Msg.GetPath()) != someUID {
		t.Errorf("got %v", err)
	}
}

// TestUploadsAreWhole interrupts uploads. The old files stay.
func TestUploadsAreWhole(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	for _, name := range []string{"old", "new"} {
		path := filepath.Join(dir, name)
		if name == "old" {
			if err := os.WriteFile(path, []byte("old"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		r, w := io.Pipe()
		done := make(chan error, 1)
		go func() { done <- b.Upload(t.Context(), path, "", 0, r) }()
		if _, err := w.Write(bytes.Repeat([]byte("half"), 1<<16)); err != nil {
			t.Fatal(err)
		}
		w.CloseWithError(errors.New("the client goes"))
		if err := <-done; err == nil {
			t.Error("half an upload was accepted")
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for {
		var names []string
		all, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all {
			names = append(names, e.Name())
		}
		if len(names) == 1 && names[0] == "old" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the folder has %v", names)
		}
		time.Sleep(5 * time.Millisecond)
	}
	if got, _ := os.ReadFile(dir + "/old"); string(got) != "old" {
		t.Errorf("the old file is %.20q", got)
	}
}

// TestUploadKeepsWhatItCannotPutBack covers a file with two names, or in a directory without write
// access: it is written in place. A dangling link is not followed.
func TestUploadKeepsWhatItCannotPutBack(t *testing.T) {
	b := startUserAgent(t)
	ctx := t.Context()
	first, other := b.own+"/first", b.own+"/second"
	shared := filepath.Join(filepath.Dir(b.own), "shared") // the user's file in root's directory
	for _, path := range []string{first, shared} {
		if err := errors.Join(os.WriteFile(path, []byte("old and long"), 0o644), os.Chown(path, someUID, someUID)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Link(first, other), os.Symlink("nowhere", b.own+"/dangling")); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{first, shared} {
		if err := b.Upload(ctx, path, "", 0, strings.NewReader("new")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	for _, path := range []string{first, other, shared} {
		if got, _ := os.ReadFile(path); string(got) != "new" {
			t.Errorf("%s is %q", path, got)
		}
	}
	err := b.Upload(ctx, b.own+"/dangling", "", 0, strings.NewReader("x"))
	var fe *agentclient.FileError
	if !errors.As(err, &fe) || fe.Code != 400 || !strings.Contains(fe.Message, "broken link") {
		t.Errorf("got %v", err)
	}
}

func TestLinkTextAndKinds(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	if err := errors.Join(os.Symlink("../x\xff", dir+"/odd"), os.Symlink("odd", dir+"/l"), unix.Mkfifo(dir+"/fifo", 0o600)); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"odd": "../x\xff", "l": "odd"} {
		st, err := b.Filesystem().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: dir + "/" + name}))
		if err != nil || string(st.Msg.GetEntry().GetLinkText()) != want {
			t.Errorf("%s: got %v, %v", name, st, err)
		}
	}
	st, err := b.Filesystem().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: dir + "/fifo"}))
	if err != nil || st.Msg.GetEntry().GetPermissions()[0] != 'p' {
		t.Errorf("got %v, %v", st, err)
	}
	for _, target := range []string{"", "a\x00b", strings.Repeat("x", 5000)} {
		if err := b.link(t, dir+"/new", target, ""); err == nil {
			t.Errorf("link to %.10q was made", target)
		}
	}
	// It replaces a link, but not a directory.
	if err := b.link(t, dir+"/l", "other", ""); err != nil {
		t.Error(err)
	}
	if text, _ := os.Readlink(dir + "/l"); text != "other" {
		t.Errorf("the link says %q", text)
	}
	if err := os.Mkdir(dir+"/folder", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := b.link(t, dir+"/folder", "other", ""); err == nil {
		t.Error("a folder became a link")
	}
}

func TestListOfAHugeFolder(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	for i := range 50_001 {
		if err := unix.Mknod(fmt.Sprintf("%s/%d", dir, i), unix.S_IFREG|0o600, 0); err != nil {
			t.Fatal(err)
		}
	}
	_, err := b.Filesystem().ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: dir}))
	if connect.CodeOf(err) != connect.CodeResourceExhausted || !strings.Contains(err.Error(), "more than 50000 entries") {
		t.Errorf("got %v", err)
	}
}

// TestManySlowUploads has each upload occupy a thread while it waits. The excess ones wait, and all
// complete.
func TestManySlowUploads(t *testing.T) {
	b := startUserAgent(t)
	const n = 300
	done := make(chan error, n)
	writers := make([]*io.PipeWriter, n)
	for i := range n {
		r, w := io.Pipe()
		writers[i] = w
		go func() { done <- b.Upload(t.Context(), fmt.Sprintf("%s/%d", b.own, i), "", 0, r) }()
	}
	for _, w := range writers {
		go func() {
			_, _ = w.Write([]byte("x"))
			_ = w.Close()
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	if all, err := os.ReadDir(b.own); err != nil || len(all) != n {
		t.Errorf("%d files, %v", len(all), err)
	}
}

// TestListOfWhatShowsOnlyNames expects an error: without it, a copy would silently lack files.
func TestListOfWhatShowsOnlyNames(t *testing.T) {
	b := startUserAgent(t)
	names := filepath.Dir(b.own) + "/names"
	if err := errors.Join(os.Mkdir(names, 0o700), os.WriteFile(names+"/f", nil, 0o600), os.Chmod(names, 0o744)); err != nil {
		t.Fatal(err)
	}
	_, err := b.Filesystem().ListDir(t.Context(), connect.NewRequest(&filesystem.ListDirRequest{Path: names}))
	wantCode(t, err, connect.CodePermissionDenied)
}

// sendTree sends a tree as a user and returns the agent's report.
func (b *userBench) sendTree(t *testing.T, path string, stream io.Reader) (treetar.Report, int) {
	t.Helper()
	q := url.Values{"path": {path}}
	resp, err := b.HTTP().Post("http://agent/files/tree?"+q.Encode(), "application/x-tar", stream)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var report treetar.Report
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil && resp.StatusCode == http.StatusOK {
		t.Error(err)
	}
	return report, resp.StatusCode
}

// TestTreesHaveTheUsersRights checks that uploaded files belong to the user, forbidden ones are
// refused, and unreadable ones are reported.
func TestTreesHaveTheUsersRights(t *testing.T) {
	b := startUserAgent(t)
	above := filepath.Dir(b.own)
	dir := func(name string) []byte { return tartest.Entry('5', name, nil, nil) }
	file := func(name, text string) []byte { return tartest.Entry('0', name, []byte(text), nil) }
	const note = "18 FORKD.note=end\n"
	end := slices.Concat(tartest.Entry('x', "pax", []byte(note), nil), file(".", ""))
	stream := slices.Concat(dir("./"), dir("sub/"), file("sub/f", "theirs"), file("secret", "overwritten"), end)
	if err := errors.Join(os.Mkdir(b.own+"/t", 0o755), os.Symlink(b.secret, b.own+"/t/secret"), os.Chown(b.own+"/t", someUID, someUID)); err != nil {
		t.Fatal(err)
	}
	report, status := b.sendTree(t, b.own+"/t", bytes.NewReader(stream))
	if status != 200 || report.Copied != 3 || len(report.Failed) != 1 || !strings.Contains(report.Failed[0].Message, "permission denied") {
		t.Errorf("got %d, %+v", status, report)
	}
	for _, name := range []string{"/t/sub", "/t/sub/f"} {
		if uid := ownerOf(t, b.own+name); uid != someUID {
			t.Errorf("%s is %d's", name, uid)
		}
	}
	if _, status := b.sendTree(t, above+"/new", bytes.NewReader(stream)); status != 403 {
		t.Errorf("a tree in root's folder: %d", status)
	}
	if _, err := os.Stat(above + "/new"); err == nil {
		t.Error("it was made")
	}
	if got, _ := os.ReadFile(b.secret); string(got) != "secret" {
		t.Errorf("the secret is %q", got)
	}
	// A hard link through a symbolic link, to a file readable for the user: the link is not
	// followed.
	stream = slices.Concat(dir("./"), tartest.Entry('2', "l", nil, func(h []byte) { copy(h[157:], above) }),
		tartest.Entry('1', "h", nil, func(h []byte) { copy(h[157:], "l/secret") }), end)
	if report, _ := b.sendTree(t, b.own+"/t", bytes.NewReader(stream)); report.Copied != 2 || len(report.Failed) != 1 {
		t.Errorf("got %+v", report)
	}
	// The report of an interrupted upload lists the completed part.
	if report, _ := b.sendTree(t, b.own+"/u", bytes.NewReader(slices.Concat(dir("./"), file("a", "a"), file("b", "half")[:514]))); report.Copied != 2 || !report.Broken {
		t.Errorf("got %+v", report)
	}
	if names, _ := filepath.Glob(b.own + "/u/*"); len(names) != 1 {
		t.Errorf("there are %q", names)
	}
	if _, status := b.sendTree(t, b.own+"/v", strings.NewReader(strings.Repeat("no tar ", 1000))); status != 400 {
		t.Errorf("no stream at all: %d", status)
	}
	resp, err := b.HTTP().Get("http://agent/files/tree?path=" + url.QueryEscape(above))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Contains(got, []byte("permission denied")) {
		t.Errorf("got %d bytes, %v", len(got), err)
	}
	if resp, err := b.HTTP().Get("http://agent/files/tree?path=" + url.QueryEscape(b.secret)); err != nil || resp.StatusCode != 403 {
		t.Errorf("the secret alone: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
}
