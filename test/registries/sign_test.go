package registries

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/images/signed"
	"github.com/forkd/forkd/internal/store/signature"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const password = "pass"

// pair makes a key pair in two files, and returns it.
func pair(t *testing.T) (private, public string, key *signature.PrivateKey, verify *signature.PublicKey) {
	t.Helper()
	a, b, err := signature.Generate([]byte(password))
	must(t, err)
	dir := t.TempDir()
	private, public = filepath.Join(dir, "team.key"), filepath.Join(dir, "team.pub")
	must(t, os.WriteFile(private, a, 0o600))
	must(t, os.WriteFile(public, b, 0o600))
	key, err = signature.ParsePrivate(a, []byte(password))
	must(t, err)
	verify, err = signature.ParsePublic(b)
	must(t, err)
	return private, public, key, verify
}

// require finds the signatures of a reference and requires one of a key.
func (h *host) require(ref string, key *signature.PublicKey) ([]signature.Signature, error) {
	h.t.Helper()
	repo := h.repository(ref)
	_, digest, err := repo.Manifest(h.t.Context())
	must(h.t, err)
	all, err := signed.Find(h.t.Context(), repo, digest.String())
	if err != nil {
		return nil, err
	}
	return all, signature.Require(key, all, digest.String())
}

// cosign verifies our signature, in its default way and by referrers. The referrers need a registry with that API.
func TestCosignVerifiesOurSignature(t *testing.T) {
	kvmtest.Soak(t) // cosign takes minutes to build
	for name, start := range registries {
		t.Run(name, func(t *testing.T) {
			ref := start(t) + "/team/app:1"
			h := newHost(t)
			h.make("one", 1)
			d := h.push("one", ref)
			_, public, key, verify := pair(t)
			_, strange, _, _ := pair(t)
			must(t, signed.Attach(t.Context(), h.repository(ref), key, d))
			must(t, signed.Attach(t.Context(), h.repository(ref), key, d)) // a second time changes nothing for readers
			all, err := h.require(ref, verify)
			if err != nil || len(all) != 1 {
				t.Errorf("%d signatures, %v", len(all), err)
			}
			check := func(key string, more ...string) error {
				args := append([]string{"verify", "--insecure-ignore-tlog=true", "--allow-http-registry", "--key", key}, more...)
				out, err := run(t, "cosign", append(args, ref)...)
				if err == nil && !strings.Contains(out, d.Digest) {
					err = fmt.Errorf("cosign says %s", out)
				}
				return err
			}
			must(t, check(public))
			t.Setenv("COSIGN_EXPERIMENTAL", "1")
			must(t, check(public, "--experimental-oci11=true"))
			if err := check(strange); err == nil {
				t.Error("cosign accepts another key")
			}
		})
	}
}

// We verify cosign's signature, in its default way and by referrers, and add our own to it.
func TestOurVerificationOfCosign(t *testing.T) {
	kvmtest.Soak(t) // cosign takes minutes to build
	for name, start := range registries {
		for mode, more := range map[string][]string{"tag": nil, "referrers": {"--registry-referrers-mode=oci-1-1"}} {
			t.Run(name+" "+mode, func(t *testing.T) {
				ref := start(t) + "/team/app:1"
				h := newHost(t)
				h.make("one", 1)
				d := h.push("one", ref)
				repository := strings.TrimSuffix(ref, ":1")
				private, public, _, verify := pair(t)
				_, _, ours, verifyOurs := pair(t)
				t.Setenv("COSIGN_EXPERIMENTAL", "1")
				args := append([]string{"sign", "--tlog-upload=false", "--yes", "--allow-http-registry", "--key", private}, more...)
				_, err := run(t, "cosign", append(args, repository+"@"+d.Digest)...)
				must(t, err)
				all, err := h.require(ref, verify)
				must(t, err)
				policy := &signature.Policy{Rules: []signature.Rule{{Repositories: []string{repository}, Keys: []*signature.PublicKey{verify}}}}
				must(t, newHost(t).pull(ref, "two", all, policy.Check))
				if _, err := h.require(ref, verifyOurs); !errors.Is(err, signature.ErrRefused) {
					t.Errorf("another key: %v", err)
				}
				must(t, signed.Attach(t.Context(), h.repository(ref), ours, d))
				for _, k := range []*signature.PublicKey{verify, verifyOurs} {
					if _, err := h.require(ref, k); err != nil {
						t.Error(err)
					}
				}
				_, err = run(t, "cosign", "verify", "--insecure-ignore-tlog=true", "--allow-http-registry", "--key", public, ref)
				must(t, err)
			})
		}
	}
}

// Each row is an artifact in a registry whose signature must not be accepted.
func TestSignaturesOfRegistriesAreRefused(t *testing.T) {
	for name, row := range map[string]struct {
		forge func(t *testing.T, h *host, base string, d signature.Descriptor, key *signature.PrivateKey)
		want  string
	}{
		"unsigned": {func(*testing.T, *host, string, signature.Descriptor, *signature.PrivateKey) {}, "is not signed"},
		"another key": {func(t *testing.T, h *host, base string, d signature.Descriptor, _ *signature.PrivateKey) {
			_, _, other, _ := pair(t)
			must(t, signed.Attach(t.Context(), h.repository(base+":1"), other, d))
		}, "another key"},
		"a tampered manifest": {func(t *testing.T, h *host, base string, d signature.Descriptor, key *signature.PrivateKey) {
			must(t, signed.Attach(t.Context(), h.repository(base+":1"), key, d))
			h.retag(base+":1", func(raw string) string { return strings.Replace(raw, `"amd64"`, `"amd65"`, 1) })
		}, "is not signed"},
		"the signature of another artifact": {func(t *testing.T, h *host, base string, d signature.Descriptor, key *signature.PrivateKey) {
			h.make("other", 2)
			other := h.push("other", base+":2")
			must(t, signed.Attach(t.Context(), h.repository(base+":2"), key, other))
			raw, _, err := h.repository(base + ":" + signature.Tag(other.Digest)).Manifest(t.Context())
			must(t, err)
			up, err := h.repository(base + ":" + signature.Tag(d.Digest)).Push(t.Context())
			must(t, err)
			must(t, up.Manifest([]byte(strings.ReplaceAll(string(raw), other.Digest, d.Digest)), signature.ManifestType))
		}, "for another artifact"},
		"a manifest of another kind": {func(t *testing.T, h *host, base string, d signature.Descriptor, _ *signature.PrivateKey) {
			raw, _, err := h.repository(base + ":1").Manifest(t.Context())
			must(t, err)
			up, err := h.repository(base + ":" + signature.Tag(d.Digest)).Push(t.Context())
			must(t, err)
			must(t, up.Manifest(raw, signature.ManifestType))
		}, "is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			base := library(t) + "/team/app"
			h := newHost(t)
			h.make("one", 1)
			d := h.push("one", base+":1")
			_, _, key, verify := pair(t)
			row.forge(t, h, base, d, key)
			if _, err := h.require(base+":1", verify); err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
}

// retag changes the manifest of a tag.
func (h *host) retag(ref string, change func(string) string) {
	h.t.Helper()
	raw, _, err := h.repository(ref).Manifest(h.t.Context())
	must(h.t, err)
	up, err := h.repository(ref).Push(h.t.Context())
	must(h.t, err)
	must(h.t, up.Manifest([]byte(change(string(raw))), signature.ManifestType))
}

// A registry with an endless list of referrers, or with many, costs a bounded number of bytes and requests.
func TestManyReferrers(t *testing.T) {
	var requests int
	list := func(http.ResponseWriter) {}
	base := through(t, func(w http.ResponseWriter, r *http.Request) bool {
		requests++
		if strings.Contains(r.URL.Path, "/referrers/") {
			w.Header().Set("Content-Type", "application/vnd.oci.image.index.v1+json")
			list(w)
			return true
		}
		return false
	}) + "/team/app"
	h := newHost(t)
	h.make("one", 1)
	d := h.push("one", base+":1")
	_, _, _, verify := pair(t)
	descriptor, err := json.Marshal(map[string]any{"mediaType": signature.ManifestType, "digest": d.Digest, "size": d.Size,
		"artifactType": signature.ArtifactType})
	must(t, err)
	for name, row := range map[string]func(http.ResponseWriter){
		"endless": func(w http.ResponseWriter) {
			fmt.Fprint(w, `{"schemaVersion":2,"manifests":[`)
			for {
				if _, err := fmt.Fprintf(w, "%s,", descriptor); err != nil {
					return
				}
			}
		},
		"many": func(w http.ResponseWriter) {
			fmt.Fprintf(w, `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[%s%s]}`,
				strings.Repeat(string(descriptor)+",", 900), descriptor)
		},
	} {
		t.Run(name, func(t *testing.T) {
			list, requests = row, 0
			if _, err := h.require(base+":1", verify); err == nil || requests > 40 {
				t.Errorf("%v after %d requests", err, requests)
			}
		})
	}
}

// The policy of a daemon's operator holds for streams of clients, which can leave signatures out and name any source.
func TestAPolicyHoldsForStreams(t *testing.T) {
	base := library(t) + "/team/app"
	a := newHost(t)
	a.make("one", 1)
	d := a.push("one", base+":1")
	_, _, key, verify := pair(t)
	policy := func(repository string) *signature.Policy {
		return &signature.Policy{Rules: []signature.Rule{{Repositories: []string{repository}, Keys: []*signature.PublicKey{verify}}}}
	}
	must(t, signed.Attach(t.Context(), a.repository(base+":1"), key, d))
	all, err := a.require(base+":1", verify)
	must(t, err)
	b := newHost(t)
	for name, row := range map[string]struct {
		signatures []signature.Signature
		policy     *signature.Policy
		want       string
	}{
		"without signatures":       {nil, policy(base), "is not signed"},
		"a key of another project": {all, policy("registry.example.com/*"), "not trusted for the repository"},
	} {
		if err := b.pull(base+":1", "two", row.signatures, row.policy.Check); !errors.Is(err, signature.ErrRefused) ||
			!strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	must(t, b.pull(base+":1", "two", all, policy(base).Check))
	b.same("two", a, "one")
}
