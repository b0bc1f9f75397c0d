package s3sign

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"
)

// The keys and the time of the examples in Amazon's documentation of Signature V4 for S3.
var (
	exampleKeys = Keys{AccessKeyID: "AKIAIOSFODNN7EXAMPLE", SecretAccessKey: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"}
	exampleTime = time.Date(2013, 5, 24, 0, 0, 0, 0, time.UTC)
)

func example() *Signer {
	return New(Grant{
		Host: "examplebucket.s3.amazonaws.com", HostBucket: "examplebucket", Region: "us-east-1", Keys: exampleKeys,
		Buckets: []Bucket{{Name: "examplebucket"}},
	}, func() time.Time { return exampleTime })
}

func TestSignaturesAreThoseOfAmazonsExamples(t *testing.T) {
	for name, tc := range map[string]struct{ path, rng, want string }{
		"get an object":  {"/test.txt", "bytes=0-9", "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
		"list a bucket":  {"/?max-keys=2&prefix=J", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
		"order of query": {"/?prefix=J&max-keys=2", "", "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("GET", "https://examplebucket.s3.amazonaws.com"+tc.path, nil)
			if tc.rng != "" {
				r.Header.Set("Range", tc.rng)
			}
			r.Header.Set("Authorization", "AWS4-HMAC-SHA256 of the guest")
			out, err := example().Sign(r)
			if err != nil {
				t.Fatal(err)
			}
			if got := out.Header.Get("Authorization"); !strings.HasSuffix(got, "Signature="+tc.want) {
				t.Error(got)
			}
		})
	}
	// GET Bucket lifecycle is no operation that is signed for guests.
	out := &http.Request{Method: "GET", Host: "examplebucket.s3.amazonaws.com", Header: http.Header{},
		URL: &url.URL{Scheme: "https", Host: "examplebucket.s3.amazonaws.com", Path: "/", RawQuery: "lifecycle="}}
	const want = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
	if err := example().authorize(out, emptyPayload); err != nil || !strings.HasSuffix(out.Header.Get("Authorization"), want) {
		t.Error(out.Header, err)
	}
}

// grant has a read-only bucket, and a part of another one.
func grant() Grant {
	return Grant{Host: "s3.test", Region: "us-east-1", Keys: Keys{"ID", "secret-key-of-a-tenant", "token-of-a-tenant"},
		Buckets: []Bucket{{Name: "models", ReadOnly: true}, {Name: "work", Prefix: "agent-7/"}}}
}

// sign signs a request whose target is written as it comes over the wire.
func sign(t *testing.T, g Grant, method, target, body string, headers ...string) (*http.Request, error) {
	t.Helper()
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err // net/http refuses it
	}
	r := httptest.NewRequest(method, "https://s3.test/", strings.NewReader(body))
	r.URL, r.RequestURI = u, target
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	return New(g, time.Now).Sign(r)
}

func TestOnlyGrantedObjectsAreSigned(t *testing.T) {
	for _, tc := range []struct{ method, target, want string }{ // want is the target to send; empty if it is refused
		{"GET", "/models/a/b.bin", "/models/a/b.bin"},
		{"GET", "/models/a%20b%2B+c", "/models/a%20b%2B%2Bc"},
		{"HEAD", "/models/%E2%82%AC", "/models/%E2%82%AC"},
		{"HEAD", "/models", "/models"},
		{"GET", "/models/?list-type=2&prefix=a%2F", "/models?list-type=2&prefix=a%2F"},
		{"GET", "/models/x?X-Amz-Signature=00&X-Amz-Credential=a&x-id=GetObject&versionId=7", "/models/x?versionId=7"},
		{"PUT", "/models/x", ""},
		{"DELETE", "/models/x", ""},
		{"POST", "/models?delete", ""},
		{"PUT", "/work/agent-7/x", "/work/agent-7/x"},
		{"PUT", "/work/agent-7/dir/", "/work/agent-7/dir/"},
		{"DELETE", "/work/agent-7/x", "/work/agent-7/x"},
		{"POST", "/work/agent-7/x?uploads", "/work/agent-7/x?uploads="},
		{"PUT", "/work/agent-7/x?partNumber=1&uploadId=u", "/work/agent-7/x?partNumber=1&uploadId=u"},
		{"GET", "/work?prefix=agent-7/", "/work?prefix=agent-7%2F"},
		{"GET", "/work?prefix=agent-7/&prefix=", ""},
		{"GET", "/work?prefix=agent-70/", ""},
		{"GET", "/work?prefix=agent-7", ""},
		{"GET", "/work", ""},
		{"GET", "/work?versions&prefix=", ""},
		{"POST", "/work?delete", ""}, // the keys are in the body
		{"PUT", "/work/agent-70/x", ""},
		{"GET", "/work/agent-8/x", ""},
		{"GET", "/work/agent-7/../agent-8/x", ""},
		{"GET", "/work/agent-7/%2e%2e/agent-8/x", ""},
		{"GET", "/work/agent-7/.%2E/agent-8/x", ""},
		{"GET", "/work/agent-7/%252e%252e/agent-8/x", ""},
		{"GET", "/work/agent-7%2f..%2fagent-8/x", ""},
		{"GET", "/work/agent-7/..%5cagent-8/x", ""},
		{"GET", "/work//agent-7/x", ""},
		{"GET", "/work/agent-7//x", ""},
		{"GET", "//work/agent-7/x", ""},
		{"GET", "/./work/agent-7/x", ""},
		{"GET", "/models/../other/x", ""},
		{"GET", "/models/x%00", ""},
		{"GET", "/models/%ff", ""},
		{"GET", "/", ""},
		{"GET", "/other/x", ""},
		{"GET", "/Models/x", ""},
		{"GET", "/models/x?acl", ""},
		{"GET", "/models?policy", ""},
		{"GET", "/models?session", ""}, // temporary keys
		{"PUT", "/models", ""},
		{"DELETE", "/work", ""},
		{"PUT", "/work/agent-7/x?acl", ""},
		{"PUT", "/work/agent-7/x?retention", ""},
		{"POST", "/", ""}, // MinIO's AssumeRole
		{"POST", "/work", ""},
		{"POST", "/work/agent-7/x?select&select-type=2", ""},
		{"PATCH", "/work/agent-7/x", ""},
		{"GET", "/work?prefix=agent-7/../agent-8/", ""},
		{"GET", "/work?versions&prefix=agent-7/./", ""},
		{"GET", "/models/x?a;b=c", ""},
	} {
		t.Run(tc.method+" "+tc.target, func(t *testing.T) {
			out, err := sign(t, grant(), tc.method, tc.target, "")
			switch {
			case tc.want == "" && err == nil:
				t.Errorf("it is signed: %s", out.URL)
			case tc.want != "" && err != nil:
				t.Error(err)
			case tc.want != "" && out.URL.RequestURI() != tc.want:
				t.Errorf("it is sent to %s, want %s", out.URL.RequestURI(), tc.want)
			}
		})
	}
}

func TestCopiesComeFromGrantedObjectsOnly(t *testing.T) {
	for source, want := range map[string]string{
		"/models/a%20b?versionId=x1": "models/a%20b?versionId=x1",
		"work/agent-7/x":             "work/agent-7/x",
		"work/agent-8/x":             "",
		"other/x":                    "",
		"/models/../other/x":         "",
		"/models/%2e%2e/other/x":     "",
		"/models/x?versionId=a&b=c":  "",
		"/models":                    "",
		"//other/x":                  "",
		"arn:aws:s3:us-east-1:1:accesspoint/p/object/x": "",
	} {
		out, err := sign(t, grant(), "PUT", "/work/agent-7/y", "", "X-Amz-Copy-Source", source)
		if (err == nil) != (want != "") || err == nil && out.Header.Get("X-Amz-Copy-Source") != want {
			t.Errorf("%s: %v", source, err)
		}
	}
	if _, err := sign(t, grant(), "PUT", "/work/agent-7/y", "", "X-Amz-Copy-Source", "models/a", "X-Amz-Copy-Source", "other/a"); err == nil {
		t.Error("the first of two sources was judged")
	}
	if _, err := sign(t, grant(), "GET", "/work/agent-7/y", "", "X-Amz-Copy-Source", "models/a"); err == nil {
		t.Error("a GET copies")
	}
}

func TestHeadersThatChangeAnOperationAreNotSent(t *testing.T) {
	out, err := sign(t, grant(), "PUT", "/work/agent-7/x", "text", "Authorization", "mine", "X-Amz-Security-Token", "mine",
		"X-Amz-Date", "mine", "X-Original-Url", "/other", "X-Http-Method-Override", "DELETE", "X-Goog-Copy-Source", "other/x",
		"Transfer-Encoding", "chunked", "Connection", "X-Amz-Date", "Upgrade", "h2c", "X-Amz-Meta-A", "1", "Content-Type", "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"X-Original-Url", "X-Http-Method-Override", "X-Goog-Copy-Source", "Transfer-Encoding", "Connection", "Upgrade"} {
		if v := out.Header.Values(name); len(v) > 0 {
			t.Errorf("%s: %q is sent", name, v)
		}
	}
	if h := out.Header; h.Get("X-Amz-Meta-A") != "1" || h.Get("X-Amz-Security-Token") != "token-of-a-tenant" ||
		len(h.Values("Authorization")) != 1 || !strings.Contains(h.Get("Authorization"), "content-type;host;x-amz-content-sha256") {
		t.Error(h)
	}
	for name, value := range map[string]string{
		"X-Amz-Acl": "public-read", "X-Amz-Grant-Read": "x", "X-Amz-Rename-Source": "other/x", "X-Amz-Object-Lock-Mode": "COMPLIANCE",
		"X-Amz-Bypass-Governance-Retention": "true", "X-Amz-Meta-Snowball-Auto-Extract": "true", "X-Amz-Meta-Minio-Snowball-Prefix": "..",
		"X-Amz-Copy-Source-Bucket": "other",
	} {
		if _, err := sign(t, grant(), "PUT", "/work/agent-7/x", "", name, value); err == nil {
			t.Errorf("%s: %s is signed", name, value)
		}
	}
}

func TestBodies(t *testing.T) {
	const stream = "4;chunk-signature=00\r\nabcd\r\n2;chunk-signature=00\r\nef\r\n0;chunk-signature=00\r\n\r\n"
	out, err := sign(t, grant(), "PUT", "/work/agent-7/x", stream, "X-Amz-Content-Sha256", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
		"X-Amz-Decoded-Content-Length", "6", "Content-Encoding", "aws-chunked, gzip")
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(out.Body)
	if string(b) != "abcdef" || err != nil || out.ContentLength != 6 || out.Header.Get("Content-Encoding") != "gzip" {
		t.Errorf("%q %v %v", b, err, out.Header)
	}
	const trailer = "6\r\nabcdef\r\n0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n"
	out, err = sign(t, grant(), "PUT", "/work/agent-7/x", trailer, "X-Amz-Content-Sha256", unsignedTrailer,
		"X-Amz-Decoded-Content-Length", "6", "X-Amz-Trailer", "x-amz-checksum-crc32")
	if err != nil || out.Header.Get(hashHeader) != unsignedTrailer || out.ContentLength != int64(len(trailer)) ||
		out.Header.Get(trailerHeader) == "" {
		t.Error(out, err)
	}
	hash := strings.Repeat("0a", 32)
	if out, err = sign(t, grant(), "PUT", "/work/agent-7/x", "ab", hashHeader, hash); err != nil || out.Header.Get(hashHeader) != hash {
		t.Error(out, err)
	}
	for _, bad := range []string{"STREAMING-OTHER", strings.Repeat("x", 64)} {
		if _, err = sign(t, grant(), "PUT", "/work/agent-7/x", "ab", hashHeader, bad); err == nil {
			t.Errorf("%s is signed", bad)
		}
	}
	if _, err = sign(t, grant(), "GET", "/work/agent-7/x", "ab"); err == nil {
		t.Error("a GET with a body is signed")
	}
}

func TestBrokenChunksEndTheUpload(t *testing.T) {
	for _, body := range []string{
		"", "4\r\nabcd", "4\r\nabcd\r\n", "4\r\nabcdX\r\n0\r\n\r\n", "7\r\nabcdefg\r\n0\r\n\r\n", "4\nabcd\r\n0\r\n\r\n", "-1\r\n\r\n",
		"4\r\nabcd\r\n0\r\n\r\n", "6\r\nabcdef\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n", strings.Repeat("0", 5000) + "\r\n",
		"6\r\nabcdef\r\n0\r\n" + strings.Repeat("a:b\r\n", 17),
	} {
		if b, err := io.ReadAll(newChunked(strings.NewReader(body), 6)); err == nil {
			t.Errorf("%.40q is read as %q", body, b)
		}
	}
}

func TestRefusalsHaveNoKeysAndSayWhy(t *testing.T) {
	g := grant()
	g.Missing = "secret S3_KEY not found"
	_, err := sign(t, g, "GET", "/models/x", "")
	w := httptest.NewRecorder()
	New(g, time.Now).Refuse(w, err)
	if w.Code != http.StatusForbidden || !strings.Contains(w.Body.String(), "S3_KEY not found") {
		t.Error(w.Code, w.Body)
	}
	_, err = sign(t, grant(), "PUT", "/models/x", "")
	w = httptest.NewRecorder()
	New(grant(), time.Now).Refuse(w, err)
	for _, key := range New(grant(), time.Now).Secrets() {
		if strings.Contains(w.Body.String(), key) {
			t.Error(w.Body)
		}
	}
	if !strings.Contains(w.Body.String(), "only reading") {
		t.Error(w.Body)
	}
}

// A rotated secret may have the same key ID. The AWS library alone would use the old derived key.
func TestARotatedKeyOfTheSameIDIsUsed(t *testing.T) {
	now := func() time.Time { return exampleTime }
	signature := func(secret string) string {
		g := grant()
		g.Keys = Keys{AccessKeyID: "ID", SecretAccessKey: secret}
		out, err := New(g, now).Sign(httptest.NewRequest("GET", "https://s3.test/models/x", nil))
		if err != nil {
			t.Fatal(err)
		}
		return out.Header.Get("Authorization")
	}
	if one := signature("one"); one == signature("two") || one != signature("one") {
		t.Error("the signature does not depend on the secret alone")
	}
}
