package ecr_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/forkd/forkd/internal/images/ecr"
	"github.com/forkd/forkd/internal/images/ecr/ecrtest"
	"github.com/forkd/forkd/internal/images/ociimage"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const registry = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"

var keys = ecr.Keys{AccessKeyID: ecrtest.KeyID, SecretAccessKey: ecrtest.Secret, Region: "eu-west-1"}

func clientOf(s *ecrtest.Stub) ecr.Client {
	return ecr.Client{Transport: s.Transport, Pause: time.Millisecond}
}

// silent fails for an error that shows a secret.
func silent(t *testing.T, err error) {
	t.Helper()
	for _, secret := range []string{ecrtest.KeyID, ecrtest.DeniedID, ecrtest.Secret, ecrtest.Password, "AKIAUNKNOWN"} {
		if strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), secret) {
			t.Errorf("the error has %s: %v", secret, err)
		}
	}
}

func TestLogin(t *testing.T) {
	s := ecrtest.Start(t)
	china := keys
	china.Region = "cn-north-1"
	for host, k := range map[string]ecr.Keys{registry: keys, "123456789012.dkr.ecr.cn-north-1.amazonaws.com.cn": china} {
		got, err := clientOf(s).Login(t.Context(), host, k)
		if err != nil || got != (ecr.Login{Username: "AWS", Password: ecrtest.Password}) {
			t.Errorf("%s: %+v, %v", host, got, err)
		}
	}
	// Each call asks: a password is not kept.
	if asked, wrong := s.Asked(); len(asked) != 2 || len(wrong) != 0 {
		t.Errorf("asked by %v, wrong: %v", asked, wrong)
	}
}

// Keys with the same ID and other secrets do not profit from each other.
func TestErrorsOfUsers(t *testing.T) {
	s := ecrtest.Start(t)
	if _, err := clientOf(s).Login(t.Context(), registry, keys); err != nil {
		t.Fatal(err)
	}
	other := func(id, secret string) ecr.Keys {
		return ecr.Keys{AccessKeyID: id, SecretAccessKey: secret, Region: "eu-west-1"}
	}
	rows := []struct {
		name string
		keys ecr.Keys
		want string
	}{
		{"an unknown key", other("AKIAUNKNOWN7EXAMPLES", ecrtest.Secret), "check awsAccessKeyId"},
		{"another secret key", other(ecrtest.KeyID, "other"), "check awsSecretAccessKey"},
		{"no policy", other(ecrtest.DeniedID, ecrtest.Secret), "ecr:GetAuthorizationToken"},
	}
	for _, row := range rows {
		_, err := clientOf(s).Login(t.Context(), registry, row.keys)
		if err == nil || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s: %v, want %q", row.name, err, row.want)
		}
		silent(t, err)
	}
	if asked, _ := s.Asked(); len(asked) != 1+len(rows) { // no attempt is repeated
		t.Errorf("%d requests", len(asked))
	}
	late := clientOf(s)
	late.Now = func() time.Time { return time.Now().Add(-time.Hour) }
	if _, err := late.Login(t.Context(), registry, keys); err == nil || !strings.Contains(err.Error(), "clock") {
		t.Errorf("a wrong clock: %v", err)
	}
	unknown := keys
	unknown.Region = "eu-east-9"
	_, err := clientOf(s).Login(t.Context(), "123456789012.dkr.ecr.eu-east-9.amazonaws.com", unknown)
	if err == nil || !strings.Contains(err.Error(), "check awsRegion") {
		t.Errorf("a region that is not there: %v", err)
	}
}

func TestHostileAnswers(t *testing.T) {
	hour := time.Now().Add(time.Hour)
	text := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	token := func(plain string, at time.Time) http.HandlerFunc { return text(200, string(ecrtest.Token(plain, at))) }
	endless := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			for some := bytes.Repeat([]byte("x"), 16<<10); ; {
				if _, err := w.Write(some); err != nil {
					return
				}
			}
		}
	}
	slow := func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	secret := ecrtest.Password
	for _, row := range []struct {
		name     string
		answer   http.HandlerFunc
		want     string
		requests int
	}{
		{"an endless body", endless(200), "more than 65536 bytes", 1},
		{"an endless error", endless(500), "more than 65536 bytes", 1},
		{"no JSON", text(200, "<html>"+secret), "not that of ECR", 1},
		{"nothing", text(200, ""), "not that of ECR", 1},
		{"no data", text(200, `{"authorizationData":[]}`), "not that of ECR", 1},
		{"another type", text(200, `{"authorizationData":[{"authorizationToken":7}]}`), "not that of ECR", 1},
		{"no base64", text(200, `{"authorizationData":[{"authorizationToken":"`+secret+`!"}]}`), "not that of ECR", 1},
		{"no colon", token("AWS"+secret, hour), "not that of ECR", 1},
		{"no password", token("AWS:", hour), "not that of ECR", 1},
		{"no user", token(":"+secret, hour), "not that of ECR", 1},
		{"another line", token("AWS:"+secret+"\r\nX: y", hour), "not that of ECR", 1},
		{"an expired password", token("AWS:"+secret, time.Now().Add(-time.Minute)), "expired already", 1},
		{"a redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://"+ecrtest.Hosts[1]+"/", http.StatusFound)
		}, "302, a redirect", 1},
		{"an error of the server", text(500, `{"__type":"ServerException","message":"`+secret+`"}`), "500 (ServerException): begin", 3},
		{"too many requests", text(400, `{"__type":"ThrottlingException"}`), "ThrottlingException", 3},
		{"an error that is no name", text(400, `{"__type":"`+secret+` x"}`), "answered 400", 1},
		{"a name with a name space", text(400, `{"__type":"com.amazon.coral.service#AccessDeniedException"}`), "AWS denied access", 1},
		{"a name in a header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X-Amzn-Errortype", "AccessDeniedException:http://internal.amazon.com/")
			w.WriteHeader(http.StatusForbidden)
		}, "AWS denied access", 1},
		{"a large header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 1<<20))
		}, "reaches the host", 3},
		{"a slow answer", slow, "no answer within 500ms", 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := ecrtest.Start(t)
			s.Answer = row.answer
			c := clientOf(s)
			if row.name == "a slow answer" {
				c.Timeout = 500 * time.Millisecond
			}
			got, err := c.Login(t.Context(), registry, keys)
			if err == nil || !strings.Contains(err.Error(), row.want) || got != (ecr.Login{}) {
				t.Errorf("%+v, %v, want %q", got, err, row.want)
			}
			silent(t, err)
			if asked, wrong := s.Asked(); len(asked) != row.requests || len(wrong) != 0 {
				t.Errorf("%d requests, want %d, wrong: %v", len(asked), row.requests, wrong)
			}
		})
	}
}

func TestASecondAttempt(t *testing.T) {
	s, n := ecrtest.Start(t), 0
	s.Answer = func(w http.ResponseWriter, _ *http.Request) {
		if n++; n == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(ecrtest.Token("AWS:second", time.Now().Add(time.Hour)))
	}
	if got, err := clientOf(s).Login(t.Context(), registry, keys); err != nil || got.Password != "second" {
		t.Errorf("%+v, %v", got, err)
	}
}

// The cause of a cancelled build is its error.
func TestACancelledBuild(t *testing.T) {
	s := ecrtest.Start(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("the template was deleted")
	s.Answer = func(_ http.ResponseWriter, r *http.Request) {
		cancel(cause)
		<-r.Context().Done()
	}
	if _, err := clientOf(s).Login(ctx, registry, keys); !errors.Is(err, cause) {
		t.Error(err)
	}
}

// The name of the endpoint may lead to a private address, as in a VPC, and not to this host.
func TestWhereTheEndpointMayBe(t *testing.T) {
	for text, want := range map[string]bool{"203.0.113.7": true, "10.0.0.7": true, "fd00::7": true,
		"127.0.0.1": false, "::1": false, "169.254.169.254": false, "fe80::1": false, "0.0.0.0": false,
		"::ffff:127.0.0.1": false} {
		s := ecrtest.Start(t)
		s.Address = net.ParseIP(text)
		_, err := clientOf(s).Login(t.Context(), registry, keys)
		if (err == nil) != want || err != nil && !strings.Contains(err.Error(), "address refused") {
			t.Errorf("%s: %v", text, err)
		}
		if asked, _ := s.Asked(); len(asked) > 0 != want {
			t.Errorf("%s: %d requests", text, len(asked))
		}
	}
}

// A server with a certificate of another authority gets no request.
func TestTheCertificate(t *testing.T) {
	s, other := ecrtest.Start(t), ecrtest.Start(t)
	c := clientOf(s)
	c.Transport = func(host string) *http.Transport {
		mixed := s.Transport(host)
		mixed.TLSClientConfig = other.Transport(host).TLSClientConfig
		return mixed
	}
	if _, err := c.Login(t.Context(), registry, keys); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Error(err)
	}
	if asked, _ := s.Asked(); len(asked) > 0 {
		t.Errorf("%d requests", len(asked))
	}
}

// The daemon's transport goes through a proxy.
func TestTheProxy(t *testing.T) {
	proxy, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	at := url.URL{Scheme: "http", Host: proxy.Addr().String()}
	t.Setenv("HTTPS_PROXY", at.String())
	first := make(chan string, 1)
	go func() {
		defer close(first)
		conn, err := proxy.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		_ = proxy.Close()
		b := make([]byte, 1024)
		n, _ := conn.Read(b)
		first <- string(b[:n])
		_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
	}()
	c := ecr.Client{Pause: time.Millisecond, Transport: func(host string) *http.Transport {
		daemons := ociimage.Transport(host)
		if daemons.Proxy == nil {
			t.Error("the daemon's transport does not ask the environment")
		}
		daemons.Proxy = http.ProxyURL(&at) // Go reads the environment once in a process
		return daemons
	}}
	_, err = c.Login(t.Context(), registry, keys)
	if err == nil {
		t.Error("a proxy that refuses is no error")
	}
	silent(t, err)
	got := <-first
	if !strings.HasPrefix(got, "CONNECT "+ecrtest.Hosts[0]+":443 HTTP/1.1\r\n") || strings.Contains(got, ecrtest.KeyID) {
		t.Errorf("the proxy got %q", got)
	}
}

func TestKeysAndHosts(t *testing.T) {
	with := func(change func(*ecr.Keys)) ecr.Keys {
		k := keys
		change(&k)
		return k
	}
	region := func(r string) ecr.Keys { return with(func(k *ecr.Keys) { k.Region = r }) }
	id := func(s string) ecr.Keys { return with(func(k *ecr.Keys) { k.AccessKeyID = s }) }
	for _, row := range []struct {
		host string
		keys ecr.Keys
		want string // in the error; empty for success
	}{
		{registry, keys, ""},
		{"123456789012.dkr.ecr.us-gov-west-1.amazonaws.com", region("us-gov-west-1"), ""},
		{"123456789012.dkr.ecr.cn-northwest-1.amazonaws.com.cn", region("cn-northwest-1"), ""},
		{"123456789012.dkr.ecr.cn-northwest-1.amazonaws.com", region("cn-northwest-1"), "no registry of ECR"},
		{"123456789012.dkr.ecr.eu-west-1.amazonaws.com.cn", keys, "no registry of ECR"},
		{registry, region("eu-west-2"), "in the region eu-west-1, and awsRegion is eu-west-2"},
		{"public.ecr.aws", keys, "without a registry"},
		{"ghcr.io", keys, "no registry of ECR"},
		{"index.docker.io", keys, "no registry of ECR"},
		{registry + ":443", keys, "no registry of ECR"},
		{registry + ".", keys, "no registry of ECR"},
		{registry + ".evil.example", keys, "no registry of ECR"},
		{"evil." + registry, keys, "no registry of ECR"},
		{"12345678901.dkr.ecr.eu-west-1.amazonaws.com", keys, "12 digits"},
		{"12345678901a.dkr.ecr.eu-west-1.amazonaws.com", keys, "12 digits"},
		{"123456789012.dkr.ecr.eu-west-1.evil.example", keys, "no registry of ECR"},
		{"123456789012.dkr.ecr.us-iso-east-1.amazonaws.com", region("us-iso-east-1"), "get-login-password"},
		{registry, id(""), "missing"},
		{registry, with(func(k *ecr.Keys) { k.SecretAccessKey = "" }), "missing"},
		{registry, with(func(k *ecr.Keys) { k.SecretAccessKey = strings.Repeat("x", 257) }), "too long"},
		{registry, id("short"), "not the ID"},
		{registry, id("AKIAIOSFODNN7EXAM\r\nX: y"), "not the ID"},
		{registry, id("AKIAIOSFODNN7EXA/us/x"), "not the ID"},
		{registry, id("ASIAIOSFODNN7EXAMPLE"), "session token"},
	} {
		err := row.keys.Check(row.host)
		if (err == nil) != (row.want == "") || err != nil && !strings.Contains(err.Error(), row.want) {
			t.Errorf("%s %s: %v, want %q", row.host, row.keys.Region, err, row.want)
		}
		silent(t, err)
	}
}

// A region is a part of a host's name, and comes from a tenant.
func TestRegions(t *testing.T) {
	for _, bad := range []string{"", "eu-west-1.evil.example", "evil.example/", "eu-west-1@evil.example", "eu-west-1:8080",
		"eu-west-1/", "eu-west-1#", "eu-west-1?x", "eu-west-1\n", "\neu-west-1", "EU-WEST-1", "eu_west_1", "eu-west-",
		"-west-1", "eu--1", "eu-west-123", "é-west-1", "eu-west-1%2f", "localhost", "169.254.169.254", "eusc-de-east-1",
		"eu-" + strings.Repeat("a", 64) + "-1"} {
		k := keys
		k.Region = bad
		host := "123456789012.dkr.ecr." + bad + ".amazonaws.com"
		if err := k.Check(host); err == nil || !strings.Contains(err.Error(), "no region of AWS") {
			t.Errorf("%q: %v", bad, err)
		}
		dialed := false
		c := ecr.Client{Transport: func(string) *http.Transport { dialed = true; return &http.Transport{} }}
		if _, err := c.Login(t.Context(), host, k); err == nil || dialed {
			t.Errorf("%q: %v, a transport: %v", bad, err, dialed)
		}
	}
	if !slices.Contains(ecrtest.Hosts, "api.ecr."+keys.Region+".amazonaws.com") {
		t.Error("the stub has another name")
	}
}
