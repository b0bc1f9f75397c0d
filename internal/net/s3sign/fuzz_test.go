package s3sign

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"
	"testing"
	"time"
)

// FuzzSign checks signed requests as a careless server would read them: with a path that is cleaned, and decoded twice.
func FuzzSign(f *testing.F) {
	for _, s := range []string{"/work/agent-7/x", "/work/agent-7/%2e%2e/x", "/models//x", "/work/agent-7/%252e%252e/y", "/work?prefix=agent-7/"} {
		f.Add("GET", s, "")
		f.Add("PUT", s, "models/x")
	}
	f.Fuzz(func(t *testing.T, method, target, source string) {
		u, err := url.ParseRequestURI(target)
		if err != nil || len(target) > 4096 {
			return
		}
		r := &http.Request{Method: method, URL: u, Header: http.Header{}, Body: http.NoBody}
		if source != "" {
			r.Header.Set("X-Amz-Copy-Source", source)
		}
		out, err := New(grant(), time.Now).Sign(r)
		if err != nil {
			return
		}
		allowed(t, out.URL.EscapedPath(), out.Method != "GET" && out.Method != "HEAD", out.URL.Query().Get("prefix"))
		if s := out.Header.Get("X-Amz-Copy-Source"); s != "" {
			s, _, _ = strings.Cut(s, "?")
			allowed(t, "/"+s, false, "")
		}
	})
}

func allowed(t *testing.T, sent string, write bool, prefix string) {
	t.Helper()
	for range 3 {
		clean := path.Clean(sent)
		bucket, key, _ := strings.Cut(strings.TrimPrefix(clean, "/"), "/")
		switch {
		case bucket == "models" && !write:
		case bucket == "work" && strings.HasPrefix(key+"/", "agent-7/"):
		case bucket == "work" && key == "" && !write: // a list, or facts of the bucket
		default:
			t.Fatalf("%s with the prefix %q is signed", sent, prefix)
		}
		next, err := url.PathUnescape(sent)
		if err != nil {
			return
		}
		sent = next
	}
}

func FuzzChunked(f *testing.F) {
	f.Add([]byte("4;chunk-signature=00\r\nabcd\r\n0\r\n\r\n"), int64(4))
	f.Add([]byte("1\r\na\r\n0\r\na:b\r\n\r\n"), int64(1))
	f.Fuzz(func(t *testing.T, body []byte, length int64) {
		length = min(max(length, 0), 1<<20)
		b, err := io.ReadAll(newChunked(bytes.NewReader(body), length))
		if int64(len(b)) > length || err == nil && int64(len(b)) != length {
			t.Fatalf("%d bytes of %d: %v", len(b), length, err)
		}
	})
}
