package artifacts_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/forkd/forkd/internal/images/artifacts"
	"github.com/forkd/forkd/internal/store/hub"
)

// shop is a registry with one snapshot, which asks for ann:secret.
type shop struct {
	host, ref string
	blobs     [][]byte
}

func newShop(t *testing.T) shop {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user+":"+password != "ann:secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	out := shop{host: strings.TrimPrefix(s.URL, "http://")}
	put := func(method, path, kind string, body []byte) {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/v2/team/py/"+path, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.SetBasicAuth("ann", "secret")
		r.Header.Set("Content-Type", kind)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusCreated {
			t.Fatalf("%s %s: %s", method, path, resp.Status)
		}
	}
	blob := func(kind, text string) hub.Descriptor {
		d := hub.Descriptor{MediaType: kind, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256([]byte(text))), Size: int64(len(text))}
		put(http.MethodPost, "blobs/uploads/?digest="+d.Digest, "application/octet-stream", []byte(text))
		out.blobs = append(out.blobs, []byte(text))
		return d
	}
	a := hub.Artifact{SchemaVersion: 2, MediaType: hub.ManifestType, ArtifactType: hub.ArtifactType, Config: blob(hub.ConfigType, `{"fake":true}`),
		Annotations: map[string]string{"vnd.forkd.architecture": "amd64", hub.TitleKey: "py"}}
	table := blob(hub.TableType, string((&hub.Table{}).Encode()))
	table.Annotations = map[string]string{"vnd.forkd.name": "vmstate"}
	data := blob(hub.FramesType, "the state of a VM")
	data.Annotations = map[string]string{"vnd.forkd.name": "vmstate", "vnd.forkd.bytes": "17"}
	a.Layers = []hub.Descriptor{table, data}
	raw, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	digest := fmt.Sprintf("sha256:%x", sha256.Sum256(raw))
	put(http.MethodPut, "manifests/"+digest, hub.ManifestType, raw)
	out.ref = out.host + "/team/py@" + digest
	return out
}

func (s shop) login(password string) []byte {
	return fmt.Appendf(nil, `{"auths":{%q:{"username":"ann","password":%q}},"credsStore":"evil"}`, s.host, password)
}

func TestASnapshotArrivesWholeAndLeavesNothing(t *testing.T) {
	s, dir := newShop(t), t.TempDir()
	p := artifacts.New(artifacts.Config{Allow: []string{s.host + "/team"}, Dir: dir, Wait: time.Millisecond, Pulls: 1})
	a, err := p.Open(t.Context(), s.ref, s.login("secret"))
	if err != nil {
		t.Fatal(err)
	}
	var busy *artifacts.Error
	if _, err := p.Open(t.Context(), s.ref, s.login("secret")); !errors.As(err, &busy) || busy.Reason() != artifacts.ReasonBusy {
		t.Errorf("a second pull: %v", err)
	}
	var begin, whole bytes.Buffer
	read := func(to *bytes.Buffer) func(io.Reader) error {
		return func(r io.Reader) error { _, err := to.ReadFrom(r); return err }
	}
	if err := errors.Join(a.Probe(read(&begin)), a.Fetch(t.Context()), a.Send(read(&whole))); err != nil {
		t.Fatal(err)
	}
	for _, b := range s.blobs {
		if !bytes.Contains(whole.Bytes(), b) {
			t.Errorf("the stream lacks the blob %q", b)
		}
	}
	if begin.Len() == 0 || begin.Len() > whole.Len() {
		t.Errorf("the beginning has %d bytes, all %d", begin.Len(), whole.Len())
	}
	refused := errors.New("no room")
	if err := a.Send(func(io.Reader) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("a node that refuses: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
		t.Errorf("left are %v, %v", list, err)
	}
	if again, err := p.Open(t.Context(), s.ref, s.login("secret")); err != nil {
		t.Errorf("after the end of the first pull: %v", err)
	} else {
		again.Close()
	}
}

func TestRefusals(t *testing.T) {
	s := newShop(t)
	for name, tt := range map[string]struct {
		allow, ref, login, want string
		most                    int64
	}{
		"another host":       {"registry.example.com", s.ref, "", artifacts.ReasonNotAllowed, 0},
		"a longer name":      {s.host + "/te", s.ref, "", artifacts.ReasonNotAllowed, 0},
		"nothing allowed":    {"", s.ref, "", artifacts.ReasonNotAllowed, 0},
		"a tag":              {s.host, s.host + "/team/py:v1", "", artifacts.ReasonInvalid, 0},
		"no reference":       {s.host, "@sha256:00", "", artifacts.ReasonInvalid, 0},
		"no credentials":     {s.host, s.ref, "", artifacts.ReasonFailed, 0},
		"wrong credentials":  {s.host, s.ref, string(s.login("guess")), artifacts.ReasonFailed, 0},
		"no JSON":            {s.host, s.ref, "secret", artifacts.ReasonInvalid, 0},
		"no base64":          {s.host, s.ref, `{"auths":{"a":{"auth":"secret"}}}`, artifacts.ReasonInvalid, 0},
		"an unknown digest":  {s.host, s.host + "/team/py@sha256:" + strings.Repeat("0", 64), string(s.login("secret")), artifacts.ReasonNotFound, 0},
		"a large snapshot":   {s.host, s.ref, string(s.login("secret")), artifacts.ReasonInvalid, 10},
		"a silent registry":  {"127.0.0.1:1", "127.0.0.1:1/py@sha256:" + strings.Repeat("0", 64), "", artifacts.ReasonFailed, 0},
		"a secret elsewhere": {s.host, s.ref, `{"auths":{"other.example.com":{"auth":"YW5uOnNlY3JldA=="}}}`, artifacts.ReasonFailed, 0},
	} {
		dir := t.TempDir()
		p := artifacts.New(artifacts.Config{Allow: []string{tt.allow}, Dir: dir, Wait: time.Millisecond, Most: tt.most, Pulls: 1})
		for range 2 { // a refusal frees its place
			var login []byte
			if tt.login != "" {
				login = []byte(tt.login)
			}
			_, err := p.Open(t.Context(), tt.ref, login)
			var e *artifacts.Error
			if !errors.As(err, &e) || e.Reason() != tt.want {
				t.Errorf("%s: %v, want %s", name, err, tt.want)
			} else if strings.Contains(err.Error(), "secret:") || strings.Contains(err.Error(), "YW5u") {
				t.Errorf("%s: the error has credentials: %v", name, err)
			}
		}
		if list, err := os.ReadDir(dir); err != nil || len(list) > 0 {
			t.Errorf("%s leaves %v, %v", name, list, err)
		}
	}
}
