package ecrtest

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	algorithm = "AWS4-HMAC-SHA256"
	timeForm  = "20060102T150405Z"
)

// Signature is the header Authorization of a request with AWS Signature Version 4.
type Signature struct {
	KeyID, Date, Region, Service string
	Headers                      []string // the names of the signed ones, in order
	Value                        string
}

// ParseSignature reads a header Authorization.
func ParseSignature(header string) (s Signature, err error) {
	rest, ok := strings.CutPrefix(header, algorithm+" ")
	parts := strings.Split(rest, ", ")
	if !ok || len(parts) != 3 {
		return s, errors.New("no signature of version 4")
	}
	for i, name := range []string{"Credential=", "SignedHeaders=", "Signature="} {
		if parts[i], ok = strings.CutPrefix(parts[i], name); !ok {
			return s, fmt.Errorf("no %s", name)
		}
	}
	scope := strings.Split(parts[0], "/")
	if len(scope) != 5 || scope[4] != "aws4_request" {
		return s, errors.New("no scope")
	}
	return Signature{scope[0], scope[1], scope[2], scope[3], strings.Split(parts[1], ";"), parts[2]}, nil
}

// Check computes a signature by the specification, with the secret key, and compares it.
func (s Signature) Check(r *http.Request, body []byte, secret string) error {
	at, err := time.Parse(timeForm, r.Header.Get("X-Amz-Date"))
	if err != nil || at.Format("20060102") != s.Date {
		return errors.New("the date is not that of the scope")
	}
	if !slices.IsSorted(s.Headers) || !slices.Contains(s.Headers, "host") {
		return errors.New("the signed headers are not sorted, or have no host")
	}
	for name := range r.Header {
		name = strings.ToLower(name)
		if (strings.HasPrefix(name, "x-amz-") || name == "content-type") && !slices.Contains(s.Headers, name) {
			return fmt.Errorf("the header %s is not signed", name)
		}
	}
	scope := strings.Join([]string{s.Date, s.Region, s.Service, "aws4_request"}, "/")
	text := strings.Join([]string{algorithm, r.Header.Get("X-Amz-Date"), scope, digest(s.canonical(r, body))}, "\n")
	key := []byte("AWS4" + secret)
	for _, part := range []string{s.Date, s.Region, s.Service, "aws4_request", text} {
		key = mac(key, part)
	}
	if hex.EncodeToString(key) != s.Value {
		return errors.New("the signature is another one")
	}
	return nil
}

// canonical returns the canonical request. The path has no characters to escape.
func (s Signature) canonical(r *http.Request, body []byte) []byte {
	var b bytes.Buffer
	query := strings.ReplaceAll(r.URL.Query().Encode(), "+", "%20")
	fmt.Fprintf(&b, "%s\n%s\n%s\n", r.Method, (&url.URL{Path: r.URL.Path}).EscapedPath(), query)
	for _, name := range s.Headers {
		value := strings.Join(r.Header.Values(name), ",")
		switch name {
		case "host":
			value = r.Host
		case "content-length":
			value = fmt.Sprint(len(body))
		}
		fmt.Fprintf(&b, "%s:%s\n", name, strings.Join(strings.Fields(value), " "))
	}
	fmt.Fprintf(&b, "\n%s\n%s", strings.Join(s.Headers, ";"), digest(body))
	return b.Bytes()
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}
