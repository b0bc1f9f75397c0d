package s3sign_test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/forkd/forkd/internal/net/netproxy"
	"github.com/forkd/forkd/internal/net/s3sign"
	"github.com/forkd/forkd/internal/testing/kvmtest"
)

// The tests in this file need a server that checks signatures: FORKD_TEST_VERSITYGW is the path of
// github.com/versity/versitygw. Some need rclone.

const (
	keyID  = "AKIDOFATENANT"
	keyOne = "the-secret-key-number-one"
)

// far is a real server, and the way to it through an Interceptor.
type far struct {
	t       *testing.T
	addr    string // of the server
	dir     string // its buckets
	i       *netproxy.Interceptor
	ca      string // the guests' certificate
	grant   atomic.Pointer[s3sign.Grant]
	connect string // a proxy with CONNECT, in place of a guest's wire
}

func newFar(t *testing.T) *far {
	t.Helper()
	kvmtest.Soak(t) // make test-buckets
	program := os.Getenv("FORKD_TEST_VERSITYGW")
	if program == "" {
		t.Fatal("FORKD_TEST_VERSITYGW is not set: needs a server of S3 that checks signatures")
	}
	f := &far{t: t, dir: t.TempDir()}
	for _, dir := range []string{"models", "work", "other"} {
		if err := os.Mkdir(filepath.Join(f.dir, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cert, key, pool := certificate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.addr = l.Addr().String()
	l.Close()
	c := exec.Command(program, "--port", f.addr, "--access", keyID, "--secret", keyOne, "--cert", cert, "--key", key,
		"--virtual-domain", "s3.test", "--quiet", "posix", "--sidecar", t.TempDir(), f.dir)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	f.i = netproxy.NewInterceptor(pool, nil)
	if f.ca, err = f.i.CA("tag a"); err != nil {
		t.Fatal(err)
	}
	f.grant.Store(&s3sign.Grant{Host: "s3.test", Region: "us-east-1", Keys: s3sign.Keys{AccessKeyID: keyID, SecretAccessKey: keyOne},
		Buckets: []s3sign.Bucket{{Name: "models", ReadOnly: true}, {Name: "work", Prefix: "agent-7/"}}})
	f.listen()
	eventually(t, "a server", func() bool {
		c, err := net.Dial("tcp", f.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	return f
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("there is not %s", what)
		}
	}
}

// certificate makes the server's certificate, and files of it.
func certificate(t *testing.T) (cert, key string, pool *x509.CertPool) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "s3.test"},
		DNSNames: []string{"s3.test", "*.s3.test"}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, k.Public(), k)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	os.WriteFile(cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600)
	os.WriteFile(key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600)
	parsed, _ := x509.ParseCertificate(der)
	pool = x509.NewCertPool()
	pool.AddCert(parsed)
	return cert, key, pool
}

// listen starts the proxy with CONNECT. It serves each connection through the Interceptor.
func (f *far) listen() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		f.t.Fatal(err)
	}
	f.connect = "http://" + l.Addr().String()
	f.t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go f.serve(c)
		}
	}()
}

func (f *far) serve(c net.Conn) {
	defer c.Close()
	r, err := http.ReadRequest(bufio.NewReader(io.LimitReader(c, 4096)))
	if err != nil || r.Method != http.MethodConnect {
		return
	}
	host, _, _ := net.SplitHostPort(r.Host)
	server, err := net.Dial("tcp", f.addr)
	if err != nil {
		return
	}
	defer server.Close()
	io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	f.i.Serve(context.Background(), netproxy.Session{
		Authority: "tag a", Host: host, Near: c, Far: server, Headers: func() map[string]string { return nil },
		Signer: func() netproxy.Signer {
			g := *f.grant.Load()
			if bucket, ok := strings.CutSuffix(host, "."+g.Host); ok {
				g.Host, g.HostBucket = host, bucket
			}
			return s3sign.New(g, time.Now)
		},
	})
}

// ask makes a guest's request.
func (f *far) ask(method, url, body string, headers ...string) (int, string) {
	f.t.Helper()
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM([]byte(f.ca))
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(parse(f.connect)), TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	defer c.CloseIdleConnections()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	res, err := c.Do(r)
	if err != nil {
		f.t.Fatal(err)
	}
	defer res.Body.Close()
	b, _ := io.ReadAll(res.Body)
	return res.StatusCode, string(b)
}

func parse(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err)
	}
	return u
}

func (f *far) want(status int, text, method, url, body string, headers ...string) {
	f.t.Helper()
	if got, b := f.ask(method, url, body, headers...); got != status || !strings.Contains(b, text) {
		f.t.Errorf("%s %s: %d %.300s, want %d %s", method, url, got, b, status, text)
	}
}

func TestARealServerAcceptsTheSignaturesAndNoOthers(t *testing.T) {
	f := newFar(t)
	if err := os.WriteFile(filepath.Join(f.dir, "models", "a b+€.bin"), []byte("weights"), 0o644); err != nil {
		t.Fatal(err)
	}
	f.want(200, "", "PUT", "https://s3.test/work/agent-7/x", "hello")
	f.want(200, "hello", "GET", "https://s3.test/work/agent-7/x", "")
	f.want(200, "hello", "GET", "https://work.s3.test/agent-7/x", "")
	f.want(200, "weights", "GET", "https://s3.test/models/a%20b%2B%E2%82%AC.bin", "", "Authorization", "AWS4-HMAC-SHA256 of the guest")
	f.want(206, "wei", "GET", "https://models.s3.test/a%20b%2B%E2%82%AC.bin", "", "Range", "bytes=0-2")
	f.want(200, "agent-7/x", "GET", "https://s3.test/work?list-type=2&prefix=agent-7/", "")
	f.want(200, "CopyObjectResult", "PUT", "https://s3.test/work/agent-7/copy", "", "X-Amz-Copy-Source", "/models/a%20b%2B%E2%82%AC.bin")
	f.want(200, "weights", "GET", "https://s3.test/work/agent-7/copy", "")
	f.want(200, "", "PUT", "https://s3.test/work/agent-7/chunks",
		"4;chunk-signature=00\r\nabcd\r\n2;chunk-signature=00\r\nef\r\n0;chunk-signature=00\r\n\r\n",
		"X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "X-Amz-Decoded-Content-Length", "6", "Content-Encoding", "aws-chunked")
	f.want(200, "abcdef", "GET", "https://s3.test/work/agent-7/chunks", "")
	f.want(400, "", "PUT", "https://s3.test/work/agent-7/y", "hello", "X-Amz-Content-Sha256", strings.Repeat("0", 64)) // the server checks the body
	f.want(403, "forkd refused", "PUT", "https://s3.test/models/x", "no")
	f.want(403, "forkd refused", "GET", "https://s3.test/other/x", "")
	f.want(403, "forkd refused", "DELETE", "https://s3.test/work/agent-8/x", "")
	f.want(204, "", "DELETE", "https://s3.test/work/agent-7/x", "")

	wrong := *f.grant.Load()
	wrong.Keys.SecretAccessKey = "another"
	f.grant.Store(&wrong)
	f.want(403, "SignatureDoesNotMatch", "GET", "https://s3.test/work/agent-7/copy", "")
	missing := wrong
	missing.Missing = "secret S3_KEY not found"
	f.grant.Store(&missing)
	f.want(403, "S3_KEY not found", "GET", "https://s3.test/work/agent-7/copy", "")
	right := wrong
	right.Keys.SecretAccessKey = keyOne
	f.grant.Store(&right) // a rotation
	f.want(200, "weights", "GET", "https://s3.test/work/agent-7/copy", "")
}

// rclone runs rclone without keys.
func (f *far) rclone(args ...string) *exec.Cmd {
	f.t.Helper()
	program, err := exec.LookPath("rclone")
	if err != nil {
		f.t.Fatal(err)
	}
	ca := filepath.Join(f.t.TempDir(), "ca")
	os.WriteFile(ca, []byte(f.ca), 0o600)
	c := exec.Command(program, append([]string{"--ca-cert", ca, "--config", "/dev/null", "--retries", "1", "--low-level-retries", "2", "--contimeout", "5s", "--timeout", "10s",
		"--s3-endpoint", "https://s3.test", "--s3-provider", "Other", "--s3-no-check-bucket"}, args...)...)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + f.t.TempDir(), "HTTPS_PROXY=" + f.connect}
	return c
}

func TestRcloneMountsABucketWithoutKeys(t *testing.T) {
	f := newFar(t)
	for _, args := range [][]string{
		{"rcat", ":s3:work/agent-7/dir/a.txt"}, {"cat", ":s3:work/agent-7/dir/a.txt"}, {"lsf", "-R", ":s3:work/agent-7/"},
	} {
		c := f.rclone(args...)
		c.Stdin = strings.NewReader("from rclone")
		out, err := c.CombinedOutput()
		if err != nil || args[0] == "cat" && string(out) != "from rclone" || args[0] == "lsf" && !strings.Contains(string(out), "dir/a.txt") {
			t.Fatalf("%v: %s: %v", args, out, err)
		}
	}
	if out, err := f.rclone("--low-level-retries", "1", "touch", ":s3:models/new").CombinedOutput(); err == nil {
		t.Errorf("a read-only bucket was changed: %s", out)
	}
	f.mount()
}

func (f *far) mount() {
	t := f.t
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Fatal(err)
	}
	at := t.TempDir()
	c := f.rclone("mount", "--vfs-cache-mode", "writes", "--vfs-write-back", "0s", "--cache-dir", t.TempDir(), ":s3:work/agent-7", at)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { exec.Command("fusermount3", "-u", at).Run(); c.Process.Kill(); c.Wait() }()
	eventually(t, "the file in the mount", func() bool {
		b, _ := os.ReadFile(filepath.Join(at, "dir/a.txt"))
		return string(b) == "from rclone"
	})
	if err := os.WriteFile(filepath.Join(at, "b.txt"), []byte("from the mount"), 0o644); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the file in the bucket", func() bool {
		b, _ := os.ReadFile(filepath.Join(f.dir, "work/agent-7/b.txt"))
		return string(b) == "from the mount"
	})
}
