// Package ecrtest is a stand-in for Amazon's Elastic Container Registry, for tests. It owns the service that gives
// passwords, and checks the signature of each request with code of its own. It has no images. The trap: it has a
// certificate for the names in Hosts only.
package ecrtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Hosts are the names of the stub.
var Hosts = []string{"api.ecr.eu-west-1.amazonaws.com", "api.ecr.cn-north-1.amazonaws.com.cn"}

// Keys of a user who may have a password, and of one whom AWS denies it.
const (
	KeyID    = "AKIAIOSFODNN7EXAMPLE"
	Secret   = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	DeniedID = "AKIADENIEDN7EXAMPLES"
)

// Password is that of the stub's answers. The user is AWS.
const Password = "eyJwYXlsb2FkIjoi+/stub=="

// Stub is a running stand-in.
type Stub struct {
	// Answer replaces the answer to signed requests, unless it is nil.
	Answer http.HandlerFunc
	// Address is the address that clients see. It is public by default.
	Address net.IP

	listener string
	roots    *x509.CertPool

	mu    sync.Mutex // guards the fields below
	asked []string
	wrong []string
}

// Start starts a stub until the end of the test.
func Start(t testing.TB) *Stub {
	t.Helper()
	certificate, roots := certificateFor(t)
	s := &Stub{Address: net.IPv4(203, 0, 113, 7), roots: roots}
	server := httptest.NewUnstartedServer(s)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // broken connections belong to the tests
	server.StartTLS()
	t.Cleanup(server.Close)
	s.listener = server.Listener.Addr().String()
	return s
}

func certificateFor(t testing.TB) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: Hosts, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err == nil {
		c, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(c)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, roots
}

// Transport returns a transport that finds the stub under its names.
func (s *Stub) Transport(string) *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{RootCAs: s.roots}, ForceAttemptHTTP2: true,
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			host, port, err := net.SplitHostPort(address)
			if err != nil || port != "443" || !slices.Contains(Hosts, host) {
				return nil, &net.DNSError{Err: "no such host", Name: address, IsNotFound: true}
			}
			var d net.Dialer
			conn, err := d.DialContext(ctx, "tcp", s.listener)
			if err != nil {
				return nil, err
			}
			return &elsewhere{conn, s.Address}, nil
		}}
}

// elsewhere is a connection that shows another address.
type elsewhere struct {
	net.Conn
	ip net.IP
}

func (e *elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: e.ip, Port: 443} }

// Asked returns the IDs of the keys of all requests, and why requests were wrong.
func (s *Stub) Asked() (keyIDs, wrong []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.asked), slices.Clone(s.wrong)
}

func (s *Stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	signed, code, why := s.judge(r, body)
	s.mu.Lock()
	s.asked = append(s.asked, signed.KeyID)
	if why != "" {
		s.wrong = append(s.wrong, why)
	}
	s.mu.Unlock()
	w.Header().Set("Content-Type", "application/x-amz-json-1.1")
	switch {
	case code != "":
		w.WriteHeader(http.StatusBadRequest)
		// Like AWS, with what was signed.
		_ = json.NewEncoder(w).Encode(map[string]string{"__type": code, "message": "Credential=" + signed.KeyID + " " + why})
	case s.Answer != nil:
		s.Answer(w, r)
	default:
		_, _ = w.Write(Token("AWS:"+Password, time.Now().Add(12*time.Hour)))
	}
}

// judge returns AWS's name of an error, which is empty for a request that it answers. why is an error of the client,
// not of its user.
func (s *Stub) judge(r *http.Request, body []byte) (signed Signature, code, why string) {
	signed, err := ParseSignature(r.Header.Get("Authorization"))
	region, _, _ := strings.Cut(strings.TrimPrefix(r.Host, "api.ecr."), ".")
	switch {
	case err != nil:
		return signed, "IncompleteSignatureException", err.Error()
	case r.Method != http.MethodPost, r.URL.Path != "/", r.URL.RawQuery != "", !json.Valid(body),
		!slices.Contains(Hosts, r.Host), r.Header.Get("Content-Type") != "application/x-amz-json-1.1",
		r.Header.Get("X-Amz-Target") != "AmazonEC2ContainerRegistry_V20150921.GetAuthorizationToken":
		return signed, "UnknownOperationException", "another request"
	case signed.Region != region || signed.Service != "ecr":
		return signed, "InvalidSignatureException", "the scope is another one"
	case signed.KeyID != KeyID && signed.KeyID != DeniedID:
		return signed, "UnrecognizedClientException", ""
	}
	if at, err := time.Parse(timeForm, r.Header.Get("X-Amz-Date")); err != nil || time.Since(at).Abs() > 5*time.Minute {
		return signed, "InvalidSignatureException", "Signature expired"
	}
	if signed.Check(r, body, Secret) != nil {
		return signed, "InvalidSignatureException", ""
	}
	if signed.KeyID == DeniedID {
		return signed, "AccessDeniedException", ""
	}
	return signed, "", ""
}

// Token returns an answer of ECR with a text as token.
func Token(plain string, expires time.Time) []byte {
	data := map[string]any{"authorizationToken": base64.StdEncoding.EncodeToString([]byte(plain)),
		"expiresAt": float64(expires.UnixMilli()) / 1000, "proxyEndpoint": "https://evil.example"}
	b, _ := json.Marshal(map[string]any{"authorizationData": []any{data}}) // never fails
	return b
}
