package e2bapi_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
)

func gzipped(t *testing.T, fill func(w io.Writer)) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	fill(z)
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// bombs returns small archives that are large or slow to read.
func bombs(t *testing.T) map[string][]byte {
	header := func(w io.Writer, h *tar.Header) {
		tw := tar.NewWriter(w)
		h.Typeflag = tar.TypeReg
		if err := tw.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
	}
	zeros := gzipped(t, func(w io.Writer) { _, _ = w.Write(make([]byte, 8<<20)) })
	large := gzipped(t, func(w io.Writer) { header(w, &tar.Header{Name: "f", Size: 4 << 30}) })
	return map[string][]byte{
		"4 GiB of zeros": append(large, bytes.Repeat(zeros, 512)...),
		"270,000 folders": gzipped(t, func(w io.Writer) {
			for i := range 3000 {
				header(w, &tar.Header{Name: fmt.Sprint(i, strings.Repeat("/a", 90))})
			}
		}),
		"1,500,000 records": gzipped(t, func(w io.Writer) {
			var x bytes.Buffer
			header(&x, &tar.Header{Name: "f", PAXRecords: map[string]string{"a.b": strings.Repeat("\n", 3000)}})
			for range 500 {
				_, _ = w.Write(x.Bytes())
			}
		}),
		"empty blocks": bytes.Repeat(gzipped(t, func(io.Writer) {}), 100_000),
	}
}

func TestArchiveBombsAreRefused(t *testing.T) {
	b := builder(t)
	r := b.request(`{"name":"bomb"}`)
	n := 0
	for name, body := range bombs(t) {
		n++
		at := "/templates/" + r.TemplateID + "/files/" + hashOf(n)
		l := want[link](t, b.do("GET", at, ""), 201)
		wantError(t, b.put(l.URL, bytes.NewReader(body), int64(len(body))), 400, "archive")
		if want[link](t, b.do("GET", at, ""), 201).Present {
			t.Errorf("%s: %d KiB are kept", name, len(body)>>10)
		}
	}
	copyStep := map[string]any{"type": "COPY", "args": []string{".", "/x"}, "filesHash": hashOf(1)}
	b.begin(r, map[string]any{"steps": steps{copyStep}})
	if s := b.outcome(r); s.Status != "error" || !strings.Contains(s.Reason.Message, "not uploaded") {
		t.Errorf("a build with a refused archive: %s, %+v", s.Status, s.Reason)
	}
}

func TestNewlinesInABuildsLog(t *testing.T) {
	b := builder(t)
	_, s := b.ready("lines", map[string]any{"steps": steps{step("RUN", `head -c 1048576 /dev/zero | tr '\0' '\n'; echo end`)}})
	if len(s.log) > 100 || !strings.Contains(strings.Join(s.log, "\n"), "[stdout]: end") {
		t.Errorf("%d entries for 1 MiB of newlines", len(s.log))
	}
}

// files returns the names of files below a directory.
func files(t testing.TB, dir string) (names []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			names = append(names, path)
		}
		return nil // files of uploads come and go
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// wait polls until a directory has n files.
func wait(t testing.TB, dir string, n int) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		if len(files(t, dir)) == n {
			return
		}
	}
	t.Fatalf("%s has %q, want %d files", dir, files(t, dir), n)
}

func TestUploadsAtATimeAreLimited(t *testing.T) {
	d := newDaemon(t)
	dir := filepath.Join(d.dir, "templates", "files")
	ctx, breakOff := context.WithCancel(t.Context())
	defer breakOff()
	ended := make(chan bool)
	const most = 4
	for i := range most {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, d.linkFor(d.evil, "t", hashOf(i)),
			io.MultiReader(strings.NewReader("x"), untilDone{ctx}))
		if err != nil {
			t.Fatal(err)
		}
		req.ContentLength = 1 << 20
		go func() {
			if resp, err := d.server.Client().Do(req); err == nil {
				resp.Body.Close()
			}
			ended <- true
		}()
	}
	wait(t, dir, most)
	body := packed(t, "f", "x")
	put := func(key string, i int) answer {
		return d.put(d.linkFor(key, "t", hashOf(i)), bytes.NewReader(body), int64(len(body)))
	}
	wantError(t, put(d.evil, 8), 503, "uploads are under way")
	if a := put(d.acme, 8); a.StatusCode != 200 {
		t.Errorf("another tenant's upload: %s %s", a.Status, a.body)
	}
	breakOff()
	for range most {
		<-ended
	}
	const kept = 2 // acme's archive and its record
	wait(t, dir, kept)
	if a := put(d.evil, 9); a.StatusCode != 200 {
		t.Errorf("after the uploads broke off: %s %s", a.Status, a.body)
	}
}

// untilDone blocks until its context is done.
type untilDone struct{ ctx context.Context }

func (u untilDone) Read([]byte) (int, error) {
	<-u.ctx.Done()
	return 0, u.ctx.Err()
}

func TestAnUploadEndsAtTheDisksReserve(t *testing.T) {
	dir := t.TempDir()
	store, _, err := build.OpenStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	store.Reserve(0)
	b := newBench(t, func(o *e2bapi.Options) { o.Builds = store })
	r := b.request(`{"name":"files"}`)
	l := want[link](t, b.do("GET", "/templates/"+r.TemplateID+"/files/"+hashOf(1), ""), 201)
	body := packed(t, "f", strings.Repeat("x", 12<<20))
	a := b.put(l.URL, &midway{bytes.NewReader(body), 1 << 20, func() { store.Reserve(1 << 60) }}, int64(len(body)))
	if a.StatusCode == 200 || !strings.Contains(a.body, "stay free") {
		t.Errorf("%s %s", a.Status, a.body)
	}
	if left := files(t, filepath.Join(dir, "files")); len(left) != 0 {
		t.Errorf("the upload left %q", left)
	}
}

func TestBuildsOfATenantAreLimited(t *testing.T) {
	b := builder(t, func(c *build.Config) { c.Parallel, c.Queue, c.QueueEach = 1, 8, 2 })
	gate := filepath.Join(t.TempDir(), "go")
	text, err := json.Marshal(map[string]any{"fromImage": "base",
		"steps": steps{step("RUN", "while [ ! -e "+gate+" ]; do sleep 0.01; done")}})
	if err != nil {
		t.Fatal(err)
	}
	begin := func(tenant string, i int) answer {
		name := fmt.Sprintf(`{"name":"t%d"}`, i)
		r := want[requested](t, b.do("POST", "/v3/templates", name, "X-API-KEY", tenant), 202)
		return b.do("POST", "/v2/templates/"+r.TemplateID+"/builds/"+r.BuildID, string(text), "X-API-KEY", tenant)
	}
	for i := range 2 {
		want[any](t, begin("tenant_a", i), 202)
	}
	wantError(t, begin("tenant_a", 2), 503, "2 builds of the tenant")
	want[any](t, begin("tenant_b", 0), 202)
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestLogsOfATenantShareALimit(t *testing.T) {
	const most, each, noisy = 256 << 10, 48 << 10, 8
	b := builder(t, func(c *build.Config) { c.LogBytes = most })
	run := func(key, name, command string) (text string) {
		t.Helper()
		r := want[requested](t, b.do("POST", "/v3/templates", fmt.Sprintf(`{"name":%q}`, name), "X-API-KEY", key), 202)
		body, err := json.Marshal(map[string]any{"fromImage": "base", "force": true, "steps": steps{step("RUN", command)}})
		if err != nil {
			t.Fatal(err)
		}
		at := "/templates/" + r.TemplateID + "/builds/" + r.BuildID
		want[any](t, b.do("POST", "/v2"+at, string(body), "X-API-KEY", key), 202)
		b.untilReady(at, key)
		return at
	}
	quiet := run("tenant", "quiet", "echo here")
	var all []string
	for i := range noisy {
		all = append(all, run(apiKey, fmt.Sprint("noisy", i), fmt.Sprintf("head -c %d /dev/zero | tr '\\0' x", each)))
	}
	sum, last := 0, 0
	for _, at := range all {
		last = len(b.logOf(at, apiKey))
		sum += last
	}
	if sum > most || last < each {
		t.Errorf("logs have %d bytes, want at most %d; the last has %d, want at least %d", sum, most, last, each)
	}
	if !strings.Contains(b.logOf(quiet, "tenant"), "here") {
		t.Error("another tenant's log is gone")
	}
}

func (b *bench) untilReady(at, key string) {
	b.t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); <-time.After(2 * time.Millisecond) {
		switch s := want[buildStatus](b.t, b.do("GET", at+"/status", "", "X-API-KEY", key), 200); s.Status {
		case "ready":
			return
		case "error":
			b.t.Fatal(s.Reason.Message)
		}
	}
	b.t.Fatal("the build is not over")
}

// logOf returns the messages of a build's log.
func (b *bench) logOf(at, key string) string {
	b.t.Helper()
	log := want[struct{ Logs []entry }](b.t, b.do("GET", at+"/logs?limit=10000", "", "X-API-KEY", key), 200)
	var text strings.Builder
	for _, e := range log.Logs {
		text.WriteString(e.Message + "\n")
	}
	return text.String()
}
