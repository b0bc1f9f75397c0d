package e2bapi_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/api/e2bapi"
	"github.com/forkd/forkd/internal/api/e2bapi/build"
	"github.com/forkd/forkd/internal/domain/keys"
)

// linkFor returns the upload link of a tenant's files.
func (d *daemon) linkFor(key, name, hash string) string {
	d.t.Helper()
	r := want[requested](d.t, d.as(key, "POST", "/v3/templates", fmt.Sprintf(`{"name":%q}`, name)), 202)
	return want[link](d.t, d.as(key, "GET", "/templates/"+r.TemplateID+"/files/"+hash, ""), 201).URL
}

// stored returns the bytes of uploads on the disk.
func (d *daemon) stored() (sum int64) {
	d.t.Helper()
	paths, err := filepath.Glob(filepath.Join(d.dir, "templates", "files", "*", "*"))
	if err != nil {
		d.t.Fatal(err)
	}
	more, _ := filepath.Glob(filepath.Join(d.dir, "templates", "files", "*", ".part-*"))
	for _, p := range append(paths, more...) {
		if st, err := os.Stat(p); err == nil {
			sum += st.Size()
		}
	}
	return sum
}

func hashOf(i int) string { return fmt.Sprintf("%064x", i) }

func (d *daemon) revoke(name string) {
	d.t.Helper()
	for _, k := range d.keys.List() {
		if k.Name == name {
			if _, err := d.keys.Revoke(k.ID); err != nil {
				d.t.Fatal(err)
			}
		}
	}
}

func TestUploadsCountAgainstTheDiskQuota(t *testing.T) {
	d := newDaemon(t)
	key := d.key(keys.Spec{Name: "small", Tenant: "small", Quotas: keys.Quotas{DiskMiB: 1}})
	body := packed(t, "f", strings.Repeat("x", 300<<10))
	refused := 0
	for i := range 6 {
		a := d.put(d.linkFor(key, "t", hashOf(i)), bytes.NewReader(body), int64(len(body)))
		if a.StatusCode == 429 || a.StatusCode == 403 {
			refused++
		}
	}
	if n := d.stored(); n > 1<<20 || refused != 3 {
		t.Errorf("%d bytes stored with a quota of 1 MiB, %d of 6 uploads refused", n, refused)
	}
	big := int64(2 << 20)
	a := d.put(d.linkFor(key, "t", hashOf(9)), io.LimitReader(zeros{}, big), big)
	if a.StatusCode == 200 || !strings.Contains(a.body, "quota") {
		t.Errorf("2 MiB at a time: %s %s", a.Status, a.body)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestARevokedKeysLinkIsRefused(t *testing.T) {
	d := newDaemon(t)
	key := d.key(keys.Spec{Name: "gone", Tenant: "gone"})
	url := d.linkFor(key, "t", hashOf(1))
	d.revoke("gone")
	body := packed(t, "f", "x")
	wantError(t, d.put(url, bytes.NewReader(body), int64(len(body))), 403, "revoked")
	other := ""
	for _, k := range d.keys.List() {
		if k.Tenant == "acme" {
			other = k.ID
		}
	}
	forged := strings.Replace(url, "key=", "key="+other+"&was=", 1)
	wantError(t, d.put(forged, bytes.NewReader(body), int64(len(body))), 403, "not valid")
	if n := d.stored(); n != 0 {
		t.Errorf("%d bytes stored", n)
	}
}

// midway calls then when half of the bytes are read.
type midway struct {
	io.Reader
	left int
	then func()
}

func (m *midway) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if m.left -= n; m.left <= 0 && m.then != nil {
		m.then()
		m.then = nil
	}
	return n, err
}

func TestARevokedKeyEndsItsUpload(t *testing.T) {
	d := newDaemon(t)
	key := d.key(keys.Spec{Name: "gone", Tenant: "gone"})
	url := d.linkFor(key, "t", hashOf(1))
	body := packed(t, "f", strings.Repeat("x", 12<<20))
	r := &midway{bytes.NewReader(body), 1 << 20, func() { d.revoke("gone") }}
	if a := d.put(url, r, int64(len(body))); a.StatusCode != 403 {
		t.Errorf("%s %s", a.Status, a.body)
	}
	if n := d.stored(); n != 0 {
		t.Errorf("%d bytes stored", n)
	}
}

func TestPartialUploadsAreRemovedAtStart(t *testing.T) {
	dir := t.TempDir()
	part := filepath.Join(dir, "files", "0123456789abcdef", ".part-1")
	if err := os.MkdirAll(filepath.Dir(part), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(part, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := build.OpenStore(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(part); !os.IsNotExist(err) {
		t.Errorf("the partial upload: %v", err)
	}
}

func TestUploadsLeaveTheDisksReserve(t *testing.T) {
	store, _, err := build.OpenStore(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	store.Reserve(1 << 60)
	b := newBench(t, func(o *e2bapi.Options) { o.Builds = store })
	r := b.request(`{"name":"files"}`)
	l := want[link](t, b.do("GET", "/templates/"+r.TemplateID+"/files/"+hashOf(1), ""), 201)
	a := b.put(l.URL, bytes.NewReader(nil), 0)
	if a.StatusCode == 200 || !strings.Contains(a.body, "stay free") {
		t.Errorf("%s %s", a.Status, a.body)
	}
}

func TestATenantHasSoManyTemplates(t *testing.T) {
	d := newDaemon(t)
	key, refused := d.key(keys.Spec{Name: "many", Tenant: "many"}), 0
	for i := range 202 {
		if a := d.as(key, "POST", "/v3/templates", fmt.Sprintf(`{"name":"t%d"}`, i)); a.StatusCode != 202 {
			refused++
		}
	}
	if refused != 2 {
		t.Errorf("%d of 202 templates refused, want 2", refused)
	}
	want[any](t, d.as(d.acme, "POST", "/v3/templates", `{"name":"t"}`), 202)
}
