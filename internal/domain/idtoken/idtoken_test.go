package idtoken

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/forkd/forkd/internal/domain/sandbox"
)

// bench is an issuer at a real address, and a relying party that knows the address only.
type bench struct {
	*Issuer
	t   *testing.T
	dir string
	now time.Time
	url string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: filepath.Join(t.TempDir(), "identity"), now: time.Now()}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case DiscoveryPath:
			_ = json.NewEncoder(w).Encode(b.Discovery())
		case KeysPath:
			_ = json.NewEncoder(w).Encode(b.KeySet())
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(srv.Close)
	b.url = srv.URL
	b.Issuer = b.open()
	return b
}

func (b *bench) open() *Issuer {
	b.t.Helper()
	s, err := Open(Config{URL: b.url, Lifetime: DefaultLifetime, Dir: b.dir, Now: func() time.Time { return b.now }})
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

func (b *bench) mint(i sandbox.Info) string {
	b.t.Helper()
	token, err := b.Mint(i, "sts.example")
	if err != nil {
		b.t.Fatal(err)
	}
	return token.Text
}

// verify checks a token as a relying party with a clock that is late by the duration.
func (b *bench) verify(token string, late time.Duration) (*oidc.IDToken, error) {
	b.t.Helper()
	ctx := context.Background()
	p, err := oidc.NewProvider(ctx, b.url)
	if err != nil {
		b.t.Fatal(err)
	}
	return p.VerifierContext(ctx, &oidc.Config{ClientID: "sts.example",
		Now: func() time.Time { return b.now.Add(-late) }}).Verify(ctx, token)
}

var child = sandbox.Info{ID: "sb-2", Owner: "acme", Index: 3, SnapshotTag: "gf-1", SnapshotHash: "sha256:aa",
	Kin: sandbox.Kin{Parent: "sb-1", Identity: true}}

func TestARelyingPartyAcceptsATokenFromDiscoveryAlone(t *testing.T) {
	b := newBench(t)
	token, err := b.verify(b.mint(child), 0)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := token.Claims(&got); err != nil {
		t.Fatal(err)
	}
	for claim, want := range map[string]any{"iss": b.url, "sub": "tenant:acme:sandbox:sb-2", "tenant": "acme",
		"sandbox": "sb-2", "snapshot": "gf-1", "snapshot_digest": "sha256:aa", "parent": "sb-1", "fork_index": 3.0} {
		if got[claim] != want {
			t.Errorf("%s is %v, want %v", claim, got[claim], want)
		}
	}
	if got["exp"].(float64)-got["iat"].(float64) != DefaultLifetime.Seconds() || len(got["jti"].(string)) != 32 {
		t.Errorf("times and id: %v", got)
	}
	for _, claim := range b.Discovery().Claims {
		if _, has := got[claim]; !has {
			t.Errorf("the discovery document lists %s, the token has no such claim", claim)
		}
	}
}

func TestTimesOfAToken(t *testing.T) {
	b := newBench(t)
	token := b.mint(child)
	for _, c := range []struct {
		late time.Duration
		ok   bool
	}{{30 * time.Second, true}, {-DefaultLifetime + 5*time.Second, true}, {-DefaultLifetime - time.Second, false},
		{20 * time.Minute, false}} { // the verifier allows 5 minutes before nbf
		if _, err := b.verify(token, c.late); (err == nil) != c.ok {
			t.Errorf("a clock that is late by %s: %v", c.late, err)
		}
	}
}

func TestATokenAfterARollbackNamesTheSnapshotOfTheRollback(t *testing.T) {
	i := sandbox.Info{ID: "sb-1", SnapshotTag: "a", SnapshotHash: "1", RolledBackTo: "b", RolledBackHash: "2", BranchedFrom: "sb-0"}
	if c := about(i); c.Snapshot != "b" || c.SnapshotDigest != "2" || c.Subject != "operator:sandbox:sb-1" || c.Parent != "sb-0" {
		t.Errorf("claims are %+v", c)
	}
}

// No name makes a subject that looks like another's, whatever a later version allows in names.
func TestSubjectsCannotBeForged(t *testing.T) {
	seen := map[string]string{}
	for _, tenant := range []string{"", "a", "a:sandbox:sb-1", "a%3Asandbox", "a*", "a b", "A", "ä", "operator", "a/../b"} {
		for _, id := range []string{"sb-1", "sb-1:x", "sandbox:sb-1"} {
			s := Subject(tenant, id)
			if other, is := seen[s]; is {
				t.Errorf("%q and %s have the subject %s", tenant+" "+id, other, s)
			}
			seen[s] = tenant + " " + id
			if parts := strings.Split(s, ":"); len(parts) != 4 && (tenant != "" || len(parts) != 3) ||
				strings.ContainsAny(s, "* /") {
				t.Errorf("tenant %q, sandbox %q: subject %q", tenant, id, s)
			}
		}
	}
}

func TestAudiences(t *testing.T) {
	b := newBench(t)
	for _, a := range []string{"", "a b", "a\n", "ä", strings.Repeat("a", MaxAudience+1), "\x00"} {
		if _, err := b.Mint(child, a); !errors.Is(err, sandbox.ErrInvalid) {
			t.Errorf("audience %.10q: %v", a, err)
		}
	}
	if _, err := b.Mint(child, "https://sts.example/?a=b&c=ü"[:27]); err != nil {
		t.Error(err)
	}
}

func TestAudiencesThatTheOperatorAllows(t *testing.T) {
	b := newBench(t)
	b.cfg.Audiences = []string{"sts.example", "vault"}
	if _, err := b.Mint(child, "vault"); err != nil {
		t.Error(err)
	}
	if _, err := b.Mint(child, "other"); !errors.Is(err, sandbox.ErrForbidden) || !strings.Contains(err.Error(), "operator has not allowed") {
		t.Errorf("another audience: %v", err)
	}
}

func TestARotationKeepsTheOldKeyUntilItsTokensHaveExpired(t *testing.T) {
	b := newBench(t)
	old := b.mint(child)
	if _, err := Rotate(b.dir, b.now, false); err != nil {
		t.Fatal(err)
	}
	next := b.mint(child) // by the same issuer, without a restart
	for name, token := range map[string]string{"old": old, "new": next} {
		if _, err := b.verify(token, 0); err != nil {
			t.Errorf("the %s token after a rotation: %v", name, err)
		}
	}
	if n := len(b.KeySet().Keys); n != 2 {
		t.Errorf("%d keys, want 2", n)
	}
	all, err := os.ReadFile(filepath.Join(b.dir, keyFile))
	if err != nil || bytes.Count(all, []byte(`"private"`)) != 1 {
		t.Errorf("the file keeps the old private key: %v", err)
	}
	b.now = b.now.Add(retiredFor + time.Second)
	if n := len(b.KeySet().Keys); n != 1 {
		t.Errorf("%d keys after the end of the old one, want 1", n)
	}
	if keys, err := Keys(b.dir, b.now); err != nil || len(keys) != 1 || !keys[0].Until.IsZero() {
		t.Errorf("shown are %+v, %v", keys, err)
	}
}

func TestARevokedKeyIsGoneAtOnce(t *testing.T) {
	b := newBench(t)
	old := b.mint(child)
	if _, err := Rotate(b.dir, b.now, true); err != nil {
		t.Fatal(err)
	}
	if _, err := b.verify(old, 0); err == nil {
		t.Error("a token of the revoked key is valid")
	}
	if _, err := b.verify(b.mint(child), 0); err != nil {
		t.Error(err)
	}
}

func TestTheKeySurvivesARestartAndItsFileIsPrivate(t *testing.T) {
	b := newBench(t)
	token := b.mint(child)
	path := filepath.Join(b.dir, keyFile)
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Fatalf("mode %v, %v", st.Mode(), err)
	}
	b.Issuer = b.open()
	if _, err := b.verify(token, 0); err != nil {
		t.Error(err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{URL: b.url, Lifetime: DefaultLifetime, Dir: b.dir}); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("a file that others can read: %v", err)
	}
}

func TestADamagedFileIsRefusedAtTheStartAndIgnoredLater(t *testing.T) {
	b := newBench(t)
	path := filepath.Join(b.dir, keyFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"empty": "", "cut": string(whole[:len(whole)/2]), "another version": `{"format":2}`,
		"no key": `{"format":1,"keys":[]}`, "other key": strings.Replace(string(whole), `"public": "MII`, `"public": "MIJ`, 1)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Config{URL: b.url, Lifetime: DefaultLifetime, Dir: b.dir}); err == nil {
			t.Errorf("%s: opened", name)
		}
		if _, err := Rotate(b.dir, b.now, false); err == nil {
			t.Errorf("%s: rotated", name)
		}
		if _, err := b.verify(b.mint(child), 0); err != nil { // with the key in memory
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.verify(b.mint(child), 0); err != nil {
		t.Errorf("without a file: %v", err)
	}
}

func TestIssuersURLs(t *testing.T) {
	for text, ok := range map[string]bool{"https://id.example": true, "https://id.example:8443/forkd": true,
		"http://127.0.0.1:8889": true, "http://localhost": true, "http://[::1]:1": true, "http://id.example": false,
		"https://id.example/": false, "https://": false, "id.example": false, "https://u@id.example": false,
		"https://id.example?a": false, "https://id.example?": false, "https://id.example#": false, "": false} {
		if err := CheckURL(text); (err == nil) != ok {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// FuzzKeyFile reads what a damaged disk may have.
func FuzzKeyFile(f *testing.F) {
	k, err := newKey(time.Unix(1, 0))
	if err != nil {
		f.Fatal(err)
	}
	b, err := json.Marshal(file{format, []key{k}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"format":1,"keys":[{"id":"a","public":"AA=="}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decode(b)
		if err == nil && (len(all) == 0 || all[len(all)-1].parsed == nil) {
			t.Fatal("a file without a key is read")
		}
	})
}
