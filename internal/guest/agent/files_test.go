package agent_test

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/guest/agentproto/filesystem"
)

func TestUploadAndDownload(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "new", "deep", "f.bin")
	content := bytes.Repeat([]byte("forkd\x00"), 1<<18)
	if err := b.Upload(t.Context(), path, "", 0o700, bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("got %v, %v", st, err)
	}
	var got bytes.Buffer
	if n, err := b.Download(t.Context(), path, "", &got); err != nil || n != int64(len(content)) || !bytes.Equal(got.Bytes(), content) {
		t.Errorf("got %d bytes, %v", n, err)
	}
	if err := b.Upload(t.Context(), path, "", 0, strings.NewReader("short")); err != nil {
		t.Fatal(err)
	}
	if now, _ := os.ReadFile(path); string(now) != "short" {
		t.Errorf("the old contents shine through: %d bytes", len(now))
	}
	got.Reset()
	if _, err := b.Download(t.Context(), "/proc/self/status", "", &got); err != nil || !strings.Contains(got.String(), "Name:") {
		t.Errorf("a file without a size: %q, %v", got.String(), err)
	}
}

// A client sees the reason of a refusal only if the agent reads the whole upload.
func TestARefusedUploadIsReadToItsEnd(t *testing.T) {
	b := startAgent(t)
	const size = 8 << 20 // more than a connection buffers
	sent := bytes.NewReader(make([]byte, size))
	err := b.Upload(t.Context(), filepath.Join(t.TempDir(), "f"), "no-such-user", 0, sent)
	if err == nil || !strings.Contains(err.Error(), "no-such-user") {
		t.Errorf("got %v", err)
	}
	if sent.Len() != 0 {
		t.Errorf("%d of %d bytes were not taken", sent.Len(), size)
	}
}

func TestUploadOverARunningProgram(t *testing.T) {
	b := startAgent(t)
	prog := filepath.Join(t.TempDir(), "prog")
	src, err := os.ReadFile("/bin/sleep")
	if err != nil {
		t.Skip("no /bin/sleep to copy")
	}
	if err := b.Upload(t.Context(), prog, "", 0o755, bytes.NewReader(src)); err != nil {
		t.Fatal(err)
	}
	b.start(t, processOf(prog, "100"))
	if err := b.Upload(t.Context(), prog, "", 0o755, strings.NewReader("new")); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestTransferOfWhatIsNoFile(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name, path, user string
		code             int
		upload           bool
	}{
		{"missing file", filepath.Join(dir, "none"), "", 404, false},
		{"folder", dir, "", 400, false},
		{"pipe", fifo, "", 400, false},
		{"unknown user", plain, "no-such-user", 401, false},
		{"bad path", "~other/x", "", 400, false},
		{"write to a folder", dir, "", 400, true},
		{"write to a pipe", fifo, "", 400, true},
		{"write below a file", filepath.Join(plain, "x"), "", 400, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var err error
			if tc.upload {
				err = b.Upload(t.Context(), tc.path, tc.user, 0, strings.NewReader("x"))
			} else {
				_, err = b.Download(t.Context(), tc.path, tc.user, io.Discard)
			}
			var fe *agentclient.FileError
			if !errors.As(err, &fe) || fe.Code != tc.code {
				t.Errorf("got %v, want status %d", err, tc.code)
			}
		})
	}
}

func (b *bench) post(t *testing.T, url, kind string, body []byte, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://agent"+url, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", kind)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.HTTP().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(said)
}

func form(t *testing.T, names ...string) (string, []byte) {
	t.Helper()
	var buf bytes.Buffer
	w := multipart.NewWriter(&buf)
	for _, n := range names {
		p, err := w.CreateFormFile("file", n)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = p.Write([]byte("of " + n))
	}
	_ = w.Close()
	return w.FormDataContentType(), buf.Bytes()
}

func TestMultipartUpload(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	kind, body := form(t, filepath.Join(dir, "a.txt"), filepath.Join(dir, "d", "b.txt"))
	if code, said := b.post(t, "/files", kind, body); code != 200 || !strings.Contains(said, `"name":"b.txt","type":"file"`) {
		t.Errorf("got %d %s", code, said)
	}
	if got, _ := os.ReadFile(filepath.Join(dir, "d", "b.txt")); !strings.HasPrefix(string(got), "of ") {
		t.Errorf("got %q", got)
	}
	kind, body = form(t, filepath.Join(dir, "a.txt"), filepath.Join(dir, "a.txt"))
	if code, _ := b.post(t, "/files", kind, body); code != 400 {
		t.Errorf("the same path twice: %d", code)
	}
	if code, _ := b.post(t, "/files", "multipart/form-data; boundary=x", []byte("--x--\r\n")); code != 400 {
		t.Errorf("no part at all: %d", code)
	}
	if code, _ := b.post(t, "/files", "text/plain", nil); code != 400 {
		t.Errorf("another content type: %d", code)
	}
}

func TestGzipUpload(t *testing.T) {
	b := startAgent(t)
	path := filepath.Join(t.TempDir(), "z")
	var buf bytes.Buffer
	z := gzip.NewWriter(&buf)
	_, _ = z.Write([]byte("unpacked"))
	_ = z.Close()
	const octets = "application/octet-stream"
	if code, said := b.post(t, "/files?path="+path, octets, buf.Bytes(), "Content-Encoding", "gzip"); code != 200 {
		t.Errorf("got %d %s", code, said)
	}
	if got, _ := os.ReadFile(path); string(got) != "unpacked" {
		t.Errorf("got %q", got)
	}
	for name, code := range map[string]int{"gzip": 400, "br": 400} {
		if got, _ := b.post(t, "/files?path="+path, octets, []byte("junk"), "Content-Encoding", name); got != code {
			t.Errorf("%s of junk: %d", name, got)
		}
	}
	if got, _ := b.post(t, "/files", octets, nil); got != 400 {
		t.Errorf("no path: %d", got)
	}
}

func TestSignedURLs(t *testing.T) {
	b := startAgent(t)
	b.become(t, func(r *identityReq) { r.AccessToken = "secret-token" })
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := b.Download(t.Context(), path, "", io.Discard)
	var fe *agentclient.FileError
	if !errors.As(err, &fe) || fe.Code != 401 || fe.Message != "missing signature query parameter" {
		t.Errorf("got %v", err)
	}
	withToken := agentclient.New(b.dial, agentclient.WithToken("secret-token"))
	defer withToken.Close()
	if _, err := withToken.Download(t.Context(), path, "", io.Discard); err != nil {
		t.Error(err)
	}
	// Services for clients require the token; forkd's own and /health do not.
	_, err = b.Filesystem().Stat(t.Context(), connect.NewRequest(&filesystem.StatRequest{Path: path}))
	wantCode(t, err, connect.CodeUnauthenticated)
	if _, err := b.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := b.Health(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestFilesystem(t *testing.T) {
	b := startAgent(t)
	dir := t.TempDir()
	fs := b.Filesystem()
	ctx := t.Context()
	mk, err := fs.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: dir + "/a/b"}))
	if err != nil || mk.Msg.GetEntry().GetType() != filesystem.FileType_FILE_TYPE_DIRECTORY || mk.Msg.GetEntry().GetMode() != 0o755 {
		t.Fatalf("got %v, %v", mk, err)
	}
	_, err = fs.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: dir + "/a"}))
	wantCode(t, err, connect.CodeAlreadyExists)
	if err := os.WriteFile(dir+"/a/f", []byte("abc"), 0o640); err != nil {
		t.Fatal(err)
	}
	_, err = fs.MakeDir(ctx, connect.NewRequest(&filesystem.MakeDirRequest{Path: dir + "/a/f"}))
	wantCode(t, err, connect.CodeInvalidArgument)
	_ = os.Symlink("f", dir+"/a/link")
	_ = os.Symlink("nowhere", dir+"/a/dangling")

	for _, tc := range []struct {
		name   string
		kind   filesystem.FileType
		mode   uint32
		perm   string
		target string
	}{
		{"f", filesystem.FileType_FILE_TYPE_FILE, 0o640, "-rw-r-----", ""},
		{"b", filesystem.FileType_FILE_TYPE_DIRECTORY, 0o755, "drwxr-xr-x", ""},
		{"link", filesystem.FileType_FILE_TYPE_FILE, 0o640, "Lrwxrwxrwx", dir + "/a/f"},
		{"dangling", filesystem.FileType_FILE_TYPE_UNSPECIFIED, 0o777, "Lrwxrwxrwx", dir + "/a/dangling"},
	} {
		st, err := fs.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: dir + "/a/" + tc.name}))
		if err != nil {
			t.Error(err)
			continue
		}
		e := st.Msg.GetEntry()
		if e.GetName() != tc.name || e.GetType() != tc.kind || e.GetMode() != tc.mode || e.GetPermissions() != tc.perm || e.GetSymlinkTarget() != tc.target || (e.SymlinkTarget != nil) != (tc.target != "") || e.GetIsSymlink() != (tc.target != "") {
			t.Errorf("%s: got %v", tc.name, e)
		}
	}
	_, err = fs.Stat(ctx, connect.NewRequest(&filesystem.StatRequest{Path: dir + "/none"}))
	wantCode(t, err, connect.CodeNotFound)

	_ = os.Symlink("a", dir+"/via")
	for depth, want := range map[uint32]string{0: "b dangling f link", 1: "b dangling f link", 2: "b b/deep dangling f link"} {
		_ = os.MkdirAll(dir+"/a/b/deep", 0o755)
		l, err := fs.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir + "/via", Depth: depth}))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range l.Msg.GetEntries() {
			got = append(got, strings.TrimPrefix(e.GetPath(), dir+"/via/"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("depth %d: got %q, want %q", depth, got, want)
		}
	}
	_, err = fs.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir + "/a/f"}))
	wantCode(t, err, connect.CodeInvalidArgument)
	_, err = fs.ListDir(ctx, connect.NewRequest(&filesystem.ListDirRequest{Path: dir + "/none"}))
	wantCode(t, err, connect.CodeNotFound)

	mv, err := fs.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: dir + "/a/f", Destination: dir + "/x/y/g"}))
	if err != nil || mv.Msg.GetEntry().GetPath() != dir+"/x/y/g" {
		t.Errorf("got %v, %v", mv, err)
	}
	_, err = fs.Move(ctx, connect.NewRequest(&filesystem.MoveRequest{Source: dir + "/a/f", Destination: dir + "/z"}))
	wantCode(t, err, connect.CodeNotFound)
	for range 2 {
		if _, err := fs.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: dir + "/x"})); err != nil {
			t.Error(err)
		}
	}
	_, err = fs.Remove(ctx, connect.NewRequest(&filesystem.RemoveRequest{Path: "/usr/.."}))
	wantCode(t, err, connect.CodeInvalidArgument)
}
