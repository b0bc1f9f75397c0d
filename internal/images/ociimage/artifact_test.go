package ociimage

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func (b *bench) repository(ref string) *Repository {
	b.t.Helper()
	cache, err := OpenCache(b.cache)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { cache.Close() })
	r, err := OpenRepository(b.t.Context(), Pull{
		Ref: b.host + ref, Cache: cache, Wait: time.Millisecond, Keychain: authn.NewMultiKeychain(),
	})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func describe(data []byte) v1.Descriptor {
	return v1.Descriptor{MediaType: "application/x-part", Digest: digestOf(data), Size: int64(len(data))}
}

// upload pushes blobs and a manifest that names them.
func (b *bench) upload(ref string, blobs ...[]byte) error {
	p, err := b.repository(ref).Push(b.t.Context())
	if err != nil {
		return err
	}
	layers := []string{}
	for _, data := range blobs {
		d := describe(data)
		if err := p.Blob(d, func() io.Reader { return bytes.NewReader(data) }); err != nil {
			return err
		}
		layers = append(layers, fmt.Sprintf(`{"mediaType":"application/x-part","digest":%q,"size":%d}`, d.Digest, d.Size))
	}
	const kind = "application/vnd.oci.image.manifest.v1+json"
	return p.Manifest([]byte(fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"artifactType":"application/x-artifact",`+
		`"config":%s,"layers":[%s]}`, kind, layers[0], strings.Join(layers[1:], ","))), kind)
}

func TestAnArtifactIsPushedAndFetched(t *testing.T) {
	b := newBench(t)
	config, one, two := []byte("{}"), big(300_000), big(200_000)
	if err := b.upload("/team/a:1", config, one); err != nil {
		t.Fatal(err)
	}
	sent := 0
	b.lie = func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			sent++
		}
		return false
	}
	if err := b.upload("/team/a:2", config, one, two); err != nil {
		t.Fatal(err)
	}
	if sent != 1 {
		t.Errorf("%d blobs were sent, want the new one only", sent)
	}
	r := b.repository("/team/a:2")
	raw, digest, err := r.Manifest(t.Context())
	if err != nil || digest != digestOf(raw) || !strings.Contains(string(raw), "x-artifact") {
		t.Errorf("%s %v", raw, err)
	}
	if tags, err := r.Tags(t.Context()); err != nil || strings.Join(tags, " ") != "1 2" {
		t.Errorf("%q %v", tags, err)
	}
	if err := r.Fetch(t.Context(), []v1.Descriptor{describe(one), describe(two)}, func(int64, int64) {}); err != nil {
		t.Fatal(err)
	}
	f, err := r.Open(describe(two))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || !bytes.Equal(got, two) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if _, err := b.repository("/team/a@" + digest.String()).Push(t.Context()); !errors.Is(err, ErrInvalid) {
		t.Errorf("a push to a digest: %v", err)
	}
}

// A registry that lies about blobs of an artifact fills neither the cache nor the disk.
func TestALyingRegistryOfAnArtifact(t *testing.T) {
	data := big(300_000)
	for name, lie := range map[string]func(w http.ResponseWriter){
		"other bytes": func(w http.ResponseWriter) { w.Write(bytes.Repeat([]byte("x"), len(data))) },
		"an endless blob": func(w http.ResponseWriter) {
			for {
				if _, err := w.Write(data); err != nil {
					return
				}
			}
		},
		"a missing blob": func(w http.ResponseWriter) { w.WriteHeader(http.StatusNotFound) },
		"always 503":     func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) },
		"too many redirects": func(w http.ResponseWriter) {
			w.Header().Set("Location", "/v2/team/a/blobs/"+describe(data).Digest.String())
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			if err := b.upload("/team/a:1", []byte("{}"), data); err != nil {
				t.Fatal(err)
			}
			b.lie = func(w http.ResponseWriter, r *http.Request) bool {
				is := strings.Contains(r.URL.Path, "/blobs/")
				if is {
					lie(w)
				}
				return is
			}
			r := b.repository("/team/a:1")
			if err := r.Fetch(t.Context(), []v1.Descriptor{describe(data)}, func(int64, int64) {}); err == nil || b.blobs() != 0 {
				t.Errorf("%v, and %d blobs", err, b.blobs())
			}
			b.lie = nil
			if err := r.Fetch(t.Context(), []v1.Descriptor{describe(data)}, func(int64, int64) {}); err != nil || b.blobs() != 1 {
				t.Errorf("an honest registry: %v", err)
			}
		})
	}
}
