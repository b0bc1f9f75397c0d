package e2bapi_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/volumefiles"
	"github.com/forkd/forkd/internal/domain/keys"
	"github.com/forkd/forkd/internal/domain/principal"
	"github.com/forkd/forkd/internal/domain/volumes"
	layerstore "github.com/forkd/forkd/internal/store/layer/store"
	"github.com/forkd/forkd/internal/store/volume"
)

// volumeDaemon returns a daemon with volumes.
func volumeDaemon(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	layers, err := layerstore.Open(filepath.Join(dir, "layers"), layerstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store, err := volume.Open(volume.Config{Dir: filepath.Join(dir, "volumes"), Pins: layers, Now: time.Now,
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	d := newDaemon(t, func(o *e2bapi.Options) { o.Volumes = volumes.Tenants{Store: store} })
	d.engine.Volumes = store
	return d
}

// newVolume is the answer to a request for a volume.
type newVolume struct{ VolumeID, Name, Token string }

// content asks for the files of a volume with its token.
func (d *daemon) content(v newVolume, method, route, path, body string) answer {
	d.t.Helper()
	return d.do(method, "/volumecontent/"+v.VolumeID+"/"+route+"?path="+path, body, "X-API-KEY", "", "Authorization",
		"Bearer "+v.Token)
}

// wantContent fails the test unless the answer has this status and text.
func wantContent(t *testing.T, what string, a answer, status int, text string) {
	t.Helper()
	if a.StatusCode != status || !strings.Contains(a.body, text) {
		t.Errorf("%s: %s %s, want %d and %q", what, a.Status, a.body, status, text)
	}
}

// The files of a volume are served with its token, as long as the key that asked for it is valid and may fork.
func TestTokensForFilesOfVolumes(t *testing.T) {
	d := volumeDaemon(t)
	key, text, err := d.keys.Create(keys.Spec{Name: "v", Tenant: "acme", Scopes: principal.Read | principal.Fork | principal.Run})
	if err != nil {
		t.Fatal(err)
	}
	v := want[newVolume](t, d.as(text, "POST", "/volumes", `{"name":"data"}`), 201)
	other := want[newVolume](t, d.as(text, "POST", "/volumes", `{"name":"other"}`), 201)
	wantContent(t, "write", d.content(v, "PUT", "file", "/f", "of acme"), 201, `"size":7`)
	wantContent(t, "read", d.content(v, "GET", "file", "/f", ""), 200, "of acme")
	reader := d.key(keys.Spec{Name: "r", Tenant: "acme", Scopes: principal.Read})
	read := want[newVolume](t, d.as(reader, "GET", "/volumes/"+v.VolumeID, ""), 200)
	theirs := want[newVolume](t, d.as(d.evil, "POST", "/volumes", `{"name":"data"}`), 201)
	for what, bad := range map[string]newVolume{
		"a key that only reads":       read,
		"the token of another volume": {VolumeID: v.VolumeID, Token: other.Token},
		"another tenant's token":      {VolumeID: v.VolumeID, Token: theirs.Token},
		"a key":                       {VolumeID: v.VolumeID, Token: text},
		"nothing":                     {VolumeID: v.VolumeID},
		"a volume that is not there":  {VolumeID: "vol-000000000000000000000000", Token: v.Token},
	} {
		wantContent(t, what, d.content(bad, "GET", "file", "/f", ""), 401, `"code":"unauthorized"`)
	}
	wantContent(t, "no such method", d.content(v, "POST", "file", "/f", ""), 404, "")
	for what, a := range map[string]answer{
		"depth": d.content(v, "GET", "dir", "/&depth=99", ""), "owner": d.content(v, "PUT", "file", "/f&uid=-1", ""),
		"mode": d.content(v, "POST", "dir", "/d&mode=x", ""), "body": d.content(v, "PATCH", "path", "/f", `{"mode":99999}`),
		"above": d.content(v, "DELETE", "path", "/..", ""),
	} {
		wantContent(t, what, a, 400, `"code":"bad_request"`)
	}
	wantContent(t, "a missing file", d.content(v, "GET", "path", "/no", ""), 404, `path /no: no such file`)
	if _, err := d.keys.Revoke(key.ID); err != nil {
		t.Fatal(err)
	}
	wantContent(t, "a revoked key", d.content(v, "GET", "file", "/f", ""), 401, "revoked")
}

// An upload and a download of a volume's file end with the key that asked for the token.
func TestTransfersOfFilesOfVolumesEndWithTheirKey(t *testing.T) {
	d := volumeDaemon(t)
	key, text, err := d.keys.Create(keys.Spec{Name: "v", Tenant: "acme", Scopes: principal.Read | principal.Fork | principal.Run})
	if err != nil {
		t.Fatal(err)
	}
	v := want[newVolume](t, d.as(text, "POST", "/volumes", `{"name":"data"}`), 201)
	large := strings.Repeat("a large file ", 8<<20/13) // more than the buffers of a connection
	wantContent(t, "write", d.content(v, "PUT", "file", "/large", large), 201, "")
	send := func(method, path string, body io.Reader) (*http.Response, error) {
		r, err := http.NewRequestWithContext(t.Context(), method, d.server.URL+"/volumecontent/"+v.VolumeID+"/file?path="+path, body)
		if err != nil {
			return nil, err
		}
		r.Header.Set("Authorization", "Bearer "+v.Token)
		return http.DefaultClient.Do(r)
	}
	download, err := send("GET", "/large", nil)
	if err != nil || download.StatusCode != 200 {
		t.Fatalf("%v, %v", download, err)
	}
	defer download.Body.Close()
	r, w := io.Pipe()
	defer w.Close()
	type reply struct {
		*http.Response
		err error
	}
	upload := make(chan reply, 1)
	go func() {
		resp, err := send("PUT", "/slow", r)
		upload <- reply{resp, err}
	}()
	if _, err := io.WriteString(w, "begun"); err != nil {
		t.Fatal(err)
	}
	if _, err := d.keys.Revoke(key.ID); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-upload:
		if got.err != nil {
			t.Fatal(got.err)
		}
		defer got.Body.Close()
		if text, _ := io.ReadAll(got.Body); got.StatusCode != 401 || !strings.Contains(string(text), "revoked") {
			t.Errorf("the upload: %s %s", got.Status, text)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the upload goes on")
	}
	time.Sleep(time.Second) // elapses: the daemon gives up the connection of a client that does not read
	if n, err := io.Copy(io.Discard, download.Body); err == nil {
		t.Errorf("the download went on to its end, %d bytes", n)
	}
	again := want[newVolume](t, d.as(d.acme, "GET", "/volumes/"+v.VolumeID, ""), 200)
	wantContent(t, "a file that was not whole", d.content(again, "GET", "file", "/slow", ""), 404, "")
}

// serving returns the number of sandboxes that serve files of volumes.
func (d *daemon) serving() (n int) {
	for _, info := range d.engine.List() {
		if volumefiles.Ours(info) {
			n++
		}
	}
	return n
}

// A sandbox that mounts a volume ends the one that served its files, after the transfers in progress.
func TestAVolumeChangesHands(t *testing.T) {
	d := volumeDaemon(t)
	v := want[newVolume](t, d.as(d.acme, "POST", "/volumes", `{"name":"data"}`), 201)
	wantContent(t, "write", d.content(v, "PUT", "file", "/f", "x"), 201, "")
	if n := d.serving(); n != 1 {
		t.Fatalf("%d sandboxes serve the files", n)
	}
	if l := want[[]any](t, d.as(d.acme, "GET", "/v2/sandboxes", ""), 200); len(l) != 1 {
		t.Errorf("clients see %v", l)
	}
	// An upload that has begun is finished first.
	r, w := io.Pipe()
	var wg sync.WaitGroup
	wg.Go(func() {
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", d.server.URL+"/volumecontent/"+v.VolumeID+"/file?path=/slow", r)
		req.Header.Set("Authorization", "Bearer "+v.Token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil || resp.StatusCode != 201 {
			t.Errorf("the upload: %v, %v", resp, err)
		}
	})
	_, _ = io.WriteString(w, "begun, ")
	var s created
	wg.Go(func() {
		s = want[created](t, d.as(d.acme, "POST", "/v2/sandboxes",
			`{"templateID":"open","volumeMounts":[{"name":"data","path":"/data"}]}`), 201)
	})
	_, err1 := io.WriteString(w, "and ended")
	if err := errors.Join(err1, w.Close()); err != nil {
		t.Fatal(err)
	}
	wg.Wait()
	if n := d.serving(); n != 0 {
		t.Errorf("%d sandboxes serve the files beside the one with the mount", n)
	}
	wantContent(t, "through the sandbox", d.content(v, "GET", "file", "/slow", ""), 200, "begun, and ended")
	want[any](t, d.as(d.acme, "POST", "/sandboxes/"+s.SandboxID+"/pause", ""), 204)
	wantContent(t, "a paused sandbox", d.content(v, "GET", "file", "/f", ""), 409, "resume it")
	want[any](t, d.as(d.acme, "DELETE", "/sandboxes/"+s.SandboxID, ""), 204)
	wantContent(t, "after it", d.content(v, "GET", "file", "/f", ""), 200, "x")
	want[any](t, d.as(d.acme, "DELETE", "/volumes/"+v.VolumeID, ""), 204)
	wantContent(t, "a removed volume", d.content(v, "GET", "file", "/f", ""), 404, "no such volume")
	if n := d.serving(); n != 0 {
		t.Errorf("%d sandboxes are left", n)
	}
}

// Many clients at once share one sandbox.
func TestManyRequestsForFilesOfAVolume(t *testing.T) {
	d := volumeDaemon(t)
	v := want[newVolume](t, d.as(d.acme, "POST", "/volumes", `{"name":"data"}`), 201)
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			name := fmt.Sprint("/f", i)
			wantContent(t, name, d.content(v, "PUT", "file", name, name), 201, name)
			wantContent(t, name, d.content(v, "GET", "file", name, ""), 200, name)
		})
	}
	wg.Wait()
	if n := d.serving(); n != 1 {
		t.Errorf("%d sandboxes serve the files", n)
	}
}
