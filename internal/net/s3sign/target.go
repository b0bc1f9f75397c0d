package s3sign

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxKey is S3's limit for a key, in bytes.
const maxKey = 1024

// target is a bucket, and an object in it if key is not empty.
type target struct{ bucket, key string }

// parsePath reads an escaped path. If hostBucket is not empty, the path has the key only.
func parsePath(escaped, hostBucket string) (target, error) {
	rest, ok := strings.CutPrefix(escaped, "/")
	if !ok {
		return target{}, errors.New("the path does not begin with a slash")
	}
	plain, err := unescape(rest)
	if err != nil {
		return target{}, err
	}
	t := target{bucket: hostBucket, key: plain}
	if hostBucket == "" {
		t.bucket, t.key, _ = strings.Cut(plain, "/")
	}
	if t.bucket == "" {
		return target{}, errors.New("the request names no bucket, and the network policy grants single buckets")
	}
	return t, checkKey(t.key)
}

// unescape decodes a path once. It refuses slashes and dots that are escaped, once or twice: a server or a proxy before
// it may decode them at another point.
func unescape(path string) (string, error) {
	lower := strings.ToLower(path)
	for _, bad := range []string{"%2f", "%5c", "%252e", "%252f", "%255c", "%00"} {
		if strings.Contains(lower, bad) {
			return "", fmt.Errorf("the path has an escaped %s, which servers read in different ways", bad)
		}
	}
	plain, err := url.PathUnescape(path)
	if err != nil {
		return "", errors.New("the path has a broken escape")
	}
	return plain, nil
}

// checkKey refuses keys that a server may read as another key.
func checkKey(key string) error {
	switch {
	case key == "":
		return nil
	case len(key) > maxKey:
		return fmt.Errorf("the key is longer than %d bytes", maxKey)
	case !utf8.ValidString(key) || strings.ContainsFunc(key, unicode.IsControl) || strings.Contains(key, `\`):
		return errors.New("the key has a control character or a backslash, or is not UTF-8")
	}
	segments := strings.Split(key, "/")
	for i, s := range segments {
		if s == "." || s == ".." || s == "" && i < len(segments)-1 {
			return errors.New("the key has an empty part, or a part . or .., which servers read in different ways")
		}
	}
	return nil
}

// escape returns a key as in canonical requests of AWS Signature V4.
func escape(key string) string {
	var b strings.Builder
	for i := range len(key) {
		switch c := key[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// path returns the plain path of a target.
func (t target) path(hostBucket string) string {
	if hostBucket != "" {
		return "/" + t.key
	}
	if t.key == "" {
		return "/" + t.bucket
	}
	return "/" + t.bucket + "/" + t.key
}

// copySource reads the value of X-Amz-Copy-Source, and returns it in its canonical form.
func copySource(value string) (target, string, error) {
	path, query, versioned := strings.Cut(value, "?")
	t, err := parsePath("/"+strings.TrimPrefix(path, "/"), "")
	if err == nil && t.key == "" {
		err = errors.New("it names no object")
	}
	if err != nil {
		return t, "", fmt.Errorf("x-amz-copy-source: %w", err)
	}
	out := escape(t.bucket + "/" + t.key)
	if versioned {
		version, ok := strings.CutPrefix(query, "versionId=")
		if !ok || strings.Trim(version, versionLetters) != "" {
			return t, "", errors.New("x-amz-copy-source: only ?versionId= may follow the key")
		}
		out += "?versionId=" + version
	}
	return t, out, nil
}

const versionLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~"
