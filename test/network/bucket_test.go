package network

import (
	"crypto/md5"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

const (
	bucketHost = "s3.example.com"
	bucketAddr = "93.184.216.36"
	bucketID   = "AKIDOFATENANT"
	bucketKey  = "f00d-the-secret-key-of-a-tenant"
	bucketText = "text-of-an-object-in-the-bucket"
)

// storage keeps objects, and serves requests with the right signature only. The AWS library checks the signatures.
// The tests of internal/net/s3sign use a real server, which is not in the machine for tests.
type storage struct {
	mu      sync.Mutex
	objects map[string]string
	headers map[string]http.Header // metadata of objects
}

func newStorage(objects map[string]string) *storage {
	return &storage{objects: objects, headers: map[string]http.Header{}}
}

func (s *storage) put(path, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[path] = text
}

func (s *storage) get(path string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[path]
}

// listed is the answer to a list of a bucket's objects.
type listed struct {
	XMLName        xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ ListBucketResult"`
	Name, Prefix   string
	Delimiter      string
	MaxKeys        int
	KeyCount       int
	IsTruncated    bool
	Contents       []listedObject
	CommonPrefixes []struct{ Prefix string }
}

type listedObject struct {
	Key, LastModified, ETag string
	Size                    int
	StorageClass            string
}

// list answers with the objects of a bucket below a prefix. Deeper ones are left out: the tests have none.
func (s *storage) list(bucket, prefix string) listed {
	out := listed{Name: bucket, Prefix: prefix, Delimiter: "/", MaxKeys: 1000}
	for path, text := range s.objects {
		key, of := strings.CutPrefix(path, "/"+bucket+"/")
		if rest, below := strings.CutPrefix(key, prefix); of && below && !strings.Contains(rest, "/") {
			out.Contents = append(out.Contents, listedObject{Key: key, LastModified: stored.Format("2006-01-02T15:04:05.000Z"),
				ETag: etag(text), Size: len(text), StorageClass: "STANDARD"})
		}
	}
	slices.SortFunc(out.Contents, func(a, b listedObject) int { return strings.Compare(a.Key, b.Key) })
	out.KeyCount = len(out.Contents)
	return out
}

// stored is the time of all objects.
var stored = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func etag(text string) string { return fmt.Sprintf("%q", fmt.Sprintf("%x", md5.Sum([]byte(text)))) }

func (s *storage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch text, ok := s.objects[r.URL.Path]; {
	case !signedRight(r):
		http.Error(w, "SignatureDoesNotMatch", http.StatusForbidden)
	case r.Method == http.MethodPut:
		s.objects[r.URL.Path], s.headers[r.URL.Path] = string(body), metadata(r.Header)
		w.Header().Set("ETag", etag(string(body)))
	case r.Method == http.MethodGet && strings.Count(strings.TrimSuffix(r.URL.Path, "/"), "/") == 1:
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(s.list(strings.Trim(r.URL.Path, "/"), r.URL.Query().Get("prefix")))
	case !ok:
		http.Error(w, "NoSuchKey", http.StatusNotFound)
	default:
		maps.Copy(w.Header(), s.headers[r.URL.Path])
		w.Header().Set("ETag", etag(text))
		http.ServeContent(w, r, "", stored, strings.NewReader(text))
	}
}

// metadata returns the headers that belong to an object.
func metadata(h http.Header) http.Header {
	out := http.Header{}
	for name, values := range h {
		if strings.HasPrefix(name, "X-Amz-Meta-") || name == "Content-Type" {
			out[name] = values
		}
	}
	return out
}

// signedRight signs a request again, with the headers that were signed.
func signedRight(r *http.Request) bool {
	got := r.Header.Get("Authorization")
	_, names, _ := strings.Cut(got, "SignedHeaders=")
	names, _, _ = strings.Cut(names, ",")
	at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
	if err != nil || time.Since(at).Abs() > 15*time.Minute {
		return false
	}
	again := &http.Request{Method: r.Method, URL: r.URL, Host: r.Host, Header: http.Header{}}
	for _, name := range strings.Split(names, ";") {
		switch name {
		case "host":
		case "content-length":
			again.ContentLength = r.ContentLength
		default:
			again.Header[http.CanonicalHeaderKey(name)] = r.Header.Values(name)
		}
	}
	signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
	err = signer.SignHTTP(r.Context(), aws.Credentials{AccessKeyID: bucketID, SecretAccessKey: bucketKey}, again,
		r.Header.Get("X-Amz-Content-Sha256"), "s3", "eu-central-1", at)
	return err == nil && again.Header.Get("Authorization") == got
}

// A guest without keys reads and writes objects, and so does its branch. The key is in none of them.
func TestGuestsUseBucketsWithoutTheirKeys(t *testing.T) {
	kvmtest.Drawn(t)
	w := shared(t)
	began := time.Now()
	for name, value := range map[string]string{"S3_ID": bucketID, "S3_KEY": "a-wrong-key"} {
		if _, err := w.Client.Secrets().Set(t.Context(), name, api.SetSecretRequest{Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	id := w.fork(t, parentTag, api.NetworkPolicy{Allow: []string{bucketHost + ":443"}, Sign: []api.SignRule{{
		Host: bucketHost, Region: "eu-central-1", Secrets: api.SignSecrets{AccessKeyID: "S3_ID", SecretAccessKey: "S3_KEY"},
		Buckets: []api.BucketRule{{Name: "work", Prefix: "agent/"}, {Name: "models", ReadOnly: true}},
	}}}).ID
	curl := func(id, args, want string) {
		t.Helper()
		r, err := w.Client.Exec(t.Context(), id, api.ExecRequest{TimeoutSecs: patience.Seconds(),
			Args: []string{"sh", "-c", `curl -sS --path-as-is -w " %{http_code}" ` + args}})
		if err != nil || !strings.Contains(r.Stdout, want) {
			t.Errorf("curl %s: %+v, %v, want %s", args, r, err, want)
		}
	}
	const object = "https://" + bucketHost + "/work/agent/a%20b"
	curl(id, "-T /etc/hostname "+object, "SignatureDoesNotMatch")
	if _, err := w.Client.Secrets().Set(t.Context(), "S3_KEY", api.SetSecretRequest{Value: bucketKey}); err != nil {
		t.Fatal(err)
	}
	curl(id, "-X PUT --data-binary "+bucketText+" "+object, " 200")
	curl(id, `-H "Authorization: AWS4-HMAC-SHA256 mine" `+object, bucketText+" 200")
	curl(id, "https://"+bucketHost+"/models/m", "weights 200")
	curl(id, "-X DELETE https://"+bucketHost+"/models/m", "only reading")
	curl(id, "https://"+bucketHost+"/other/x", "grants no access")
	curl(id, "https://"+bucketHost+"/work/agent/../secret", "servers read in different ways")

	child := w.branch(t, id, api.BranchRequest{Tag: "bucket", N: 1})[0].ID
	curl(child, object, bucketText+" 200")
	curl(child, "-X PUT --data-binary of-the-branch "+object, " 200")
	curl(id, object, "of-the-branch 200")

	if err := w.Client.Secrets().Remove(t.Context(), "S3_KEY"); err != nil {
		t.Fatal(err)
	}
	curl(child, object, "S3_KEY")
	w.noFileHas(t, began, bucketKey)
	for where, text := range map[string]string{
		"forkd net policy": w.cli(t, "net", "policy", id) + w.cli(t, "net", "policy", id, "--json"),
		"forkd inspect":    w.cli(t, "inspect", id, "--json"), "forkd net log": w.cli(t, "net", "log", id),
	} {
		if strings.Contains(text, bucketKey) {
			t.Errorf("%s has the key", where)
		}
	}
}

// noFileHas searches the files written since a time: the memory and the disks of snapshots, manifests and logs. The
// text of an object, which the guest had, shows that the search finds what is there.
func (w *world) noFileHas(t *testing.T, began time.Time, key string) {
	t.Helper()
	files := append(written(t, w.Data, began), written(t, filepath.Join(w.Run, "net"), began)...)
	seen := false
	for _, file := range append(files, filepath.Join(w.Dir, "daemon.log")) {
		found, _, err := search(file, key, bucketText)
		if err != nil {
			t.Fatal(err)
		}
		if seen = seen || found[bucketText]; found[key] {
			t.Errorf("the key is in %s", file)
		}
	}
	if !seen {
		t.Error("the search does not find the text of an object")
	}
}
