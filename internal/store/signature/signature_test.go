package signature

import (
	"bytes"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func pair(t testing.TB) (*PrivateKey, *PublicKey) {
	t.Helper()
	private, public, err := Generate([]byte("pw"))
	must(t, err)
	a, err := ParsePrivate(private, []byte("pw"))
	must(t, err)
	b, err := ParsePublic(public)
	must(t, err)
	return a, b
}

var (
	digest = "sha256:" + strings.Repeat("ab", 32)
	other  = "sha256:" + strings.Repeat("cd", 32)
)

const repository = "registry.example.com/team/app"

func signed(t testing.TB, k *PrivateKey, repository, digest string) Signature {
	t.Helper()
	s, err := k.Sign(repository, digest)
	must(t, err)
	return s
}

func TestASignatureIsVerified(t *testing.T) {
	private, public := pair(t)
	s := signed(t, private, repository, digest)
	if got, err := public.Verify(s, digest); err != nil || got != repository {
		t.Fatalf("%q %v", got, err)
	}
	must(t, Require(public, []Signature{{[]byte("{}"), []byte("x")}, s}, digest))
}

func TestSignaturesAreRefused(t *testing.T) {
	private, public := pair(t)
	stranger, _ := pair(t)
	good := signed(t, private, repository, digest)
	changed := good
	changed.Payload = bytes.Replace(good.Payload, []byte("ab"), []byte("ac"), 1)
	large := good
	large.Payload = append(bytes.Clone(good.Payload), bytes.Repeat([]byte(" "), MaxPayload)...)
	many := make([]Signature, MaxSignatures, MaxSignatures+1)
	for name, row := range map[string]struct {
		all  []Signature
		want string
	}{
		"none":                       {nil, "is not signed"},
		"another key":                {[]Signature{signed(t, stranger, repository, digest)}, "made with another key"},
		"a changed payload":          {[]Signature{changed}, "made with another key"},
		"another artifact":           {[]Signature{signed(t, private, repository, other)}, "for another artifact"},
		"a large payload":            {[]Signature{large}, "with a payload of"},
		"a good one behind the last": {append(many, good), "made with another key"},
		"an empty one":               {[]Signature{{}}, "made with another key"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := Require(public, row.all, digest); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
	if _, err := private.Sign(repository, "sha256:zz"); err == nil {
		t.Error("a bad digest was signed")
	}
}

// The keys in testdata are from cosign 2.6.5 (cosign generate-key-pair, COSIGN_PASSWORD=pass).
func TestKeysOfCosign(t *testing.T) {
	private, err := os.ReadFile("testdata/cosign.key")
	must(t, err)
	k, err := ParsePrivate(private, []byte("pass"))
	must(t, err)
	want, err := os.ReadFile("testdata/cosign.pub")
	must(t, err)
	if got, err := k.Public(); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s %v", got, err)
	}
	if _, err := ParsePrivate(private, []byte("pasS")); !errors.Is(err, ErrKey) || !strings.Contains(err.Error(), "password") {
		t.Errorf("a wrong password: %v", err)
	}
	if _, err := ParsePrivate(want, nil); !errors.Is(err, ErrKey) {
		t.Errorf("a public key: %v", err)
	}
	if _, err := ParsePublic(private); !errors.Is(err, ErrKey) {
		t.Errorf("a private key: %v", err)
	}
}

func TestAManifestHoldsSignatures(t *testing.T) {
	private, public := pair(t)
	s := signed(t, private, repository, digest)
	m := NewManifest(Descriptor{MediaType: ManifestType, Digest: digest, Size: 7})
	m.Add(s)
	raw, err := m.Encode()
	must(t, err)
	back, err := ParseManifest(raw)
	must(t, err)
	got, err := back.Layers[0].Of(s.Payload)
	must(t, err)
	if _, err := public.Verify(got, digest); err != nil || back.Subject.Digest != digest {
		t.Errorf("%+v %v", back, err)
	}
	if _, err := back.Layers[0].Of([]byte("other")); !errors.Is(err, ErrManifest) {
		t.Errorf("another payload: %v", err)
	}
	for name, text := range map[string]string{
		"text":            "hello",
		"a bad digest":    `{"layers":[{"mediaType":"` + PayloadType + `","digest":"sha256:../../x","size":1}]}`,
		"a large payload": `{"layers":[{"mediaType":"` + PayloadType + `","digest":"` + digest + `","size":1000000}]}`,
		"many bytes":      strings.Repeat(" ", MaxManifest) + "{}",
	} {
		if _, err := ParseManifest([]byte(text)); !errors.Is(err, ErrManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAPolicyTrustsKeysForRepositories(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
		return filepath.Join(dir, name)
	}
	team, _ := pair(t)
	all, _ := pair(t)
	stranger, _ := pair(t)
	for name, k := range map[string]*PrivateKey{"team.pub": team, "all.pub": all} {
		text, err := k.Public()
		must(t, err)
		write(name, string(text))
	}
	p, err := ReadPolicy(write("policy.yaml", `
signatures:
  - repositories: [registry.example.com/team/*, registry.example.com/one]
    keys: [team.pub]
  - repositories: ["*"]
    keys: [all.pub]
`))
	must(t, err)
	for name, row := range map[string]struct {
		key  *PrivateKey
		repo string
		want string // empty: trusted
	}{
		"below":              {team, "registry.example.com/team/a/b", ""},
		"exact":              {team, "registry.example.com/one", ""},
		"everywhere":         {all, "registry.example.com/x", ""},
		"another repository": {team, "registry.example.com/teams/a", "not trusted for the repository"},
		"longer than exact":  {team, "registry.example.com/one/two", "not trusted for the repository"},
		"another registry":   {team, "evil.example.com/team/a", "not trusted for the repository"},
		"a stranger":         {stranger, "registry.example.com/team/a", "another key"},
	} {
		err := p.Check([]Signature{signed(t, row.key, row.repo, digest)}, digest)
		if row.want == "" && err != nil || row.want != "" && (!errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), row.want)) {
			t.Errorf("%s: %v, want %q", name, err, row.want)
		}
	}
	if err := p.Check(nil, digest); !errors.Is(err, ErrRefused) {
		t.Errorf("unsigned: %v", err)
	}
	for name, text := range map[string]string{
		"empty":             "",
		"no keys":           "signatures: [{repositories: [a/b]}]",
		"no repositories":   "signatures: [{keys: [team.pub]}]",
		"an unknown field":  "signatures: [{repositories: [a/b], keys: [team.pub], unsigned: true}]",
		"a missing key":     "signatures: [{repositories: [a/b], keys: [no.pub]}]",
		"a pattern":         "signatures: [{repositories: [a/*/b], keys: [team.pub]}]",
		"a URL":             "signatures: [{repositories: ['https://a/b'], keys: [team.pub]}]",
		"a policy as a key": "signatures: [{repositories: [a/b], keys: [policy.yaml]}]",
	} {
		if _, err := ReadPolicy(write("bad.yaml", text)); err == nil {
			t.Errorf("%s is accepted", name)
		}
	}
}

func FuzzManifest(f *testing.F) {
	f.Add([]byte(`{"layers":[{"mediaType":"`+PayloadType+`","digest":"`+digest+`","size":2,"annotations":{"`+
		signatureKey+`":"`+base64.StdEncoding.EncodeToString([]byte("s"))+`"}}]}`), []byte("{}"))
	f.Fuzz(func(t *testing.T, raw, payload []byte) {
		m, err := ParseManifest(raw)
		if err != nil {
			return
		}
		if len(m.Layers) > MaxSignatures {
			t.Errorf("%d signatures", len(m.Layers))
		}
		for _, l := range m.Layers {
			if s, err := l.Of(payload); err == nil && len(s.Signature) > maxSignature {
				t.Errorf("a signature of %d bytes", len(s.Signature))
			}
		}
	})
}

// No bytes are a signature of a key that did not make them.
func FuzzVerify(f *testing.F) {
	private, public := pair(f)
	good := signed(f, private, repository, digest)
	f.Add(good.Payload, good.Signature[:8])
	f.Add([]byte("{}"), []byte{0x30, 0x06, 2, 1, 1, 2, 1, 1})
	f.Fuzz(func(t *testing.T, payload, sig []byte) {
		if bytes.Equal(payload, good.Payload) {
			return
		}
		if _, err := public.Verify(Signature{payload, sig}, digest); err == nil {
			t.Error("verified")
		}
	})
}

func FuzzPolicyAndKeys(f *testing.F) {
	f.Add([]byte("signatures: [{repositories: [a/b], keys: [k]}]"))
	key, err := os.ReadFile("testdata/cosign.pub")
	must(f, err)
	f.Add(key)
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := ParsePublic(b)
		if (k == nil) == (err == nil) {
			t.Error(err)
		}
		p, err := parsePolicy(b, func(string) (*PublicKey, error) { return &PublicKey{}, nil })
		if err == nil && (len(p.Rules) == 0 || len(p.Rules[0].Keys) == 0) {
			t.Error("a policy without keys")
		}
	})
}
