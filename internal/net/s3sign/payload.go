package s3sign

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

const (
	unsignedPayload = "UNSIGNED-PAYLOAD"
	unsignedTrailer = "STREAMING-UNSIGNED-PAYLOAD-TRAILER"
	emptyPayload    = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

	hashHeader    = "X-Amz-Content-Sha256"
	lengthHeader  = "X-Amz-Decoded-Content-Length"
	trailerHeader = "X-Amz-Trailer"
)

// signedStreams are bodies in chunks with signatures by the guest's keys.
var signedStreams = []string{
	"STREAMING-AWS4-HMAC-SHA256-PAYLOAD", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER",
	"STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD", "STREAMING-AWS4-ECDSA-P256-SHA256-PAYLOAD-TRAILER",
}

// payload is the body to send.
type payload struct {
	body   io.ReadCloser
	length int64
	hash   string // for the signature
}

// payloadOf returns the body of a request, and changes the headers to send accordingly. A hash by the guest is kept:
// the host then checks the body. Bodies without one are not hashed here. TLS protects them.
func payloadOf(r *http.Request, h http.Header) (payload, error) {
	p := payload{body: r.Body, length: r.ContentLength, hash: r.Header.Get(hashHeader)}
	length := h.Get(lengthHeader)
	h.Del(lengthHeader)
	trailer := h.Get(trailerHeader)
	h.Del(trailerHeader)
	switch {
	case p.length < 0:
		return p, errLength
	case p.hash == unsignedTrailer:
		h.Set(lengthHeader, length)
		if h.Set(trailerHeader, trailer); trailer == "" {
			h.Del(trailerHeader)
		}
		_, err := decodedLength(length)
		return p, err
	case slices.Contains(signedStreams, p.hash):
		return plain(p, h, length)
	case p.hash == "" || p.hash == unsignedPayload:
		if p.hash = unsignedPayload; p.length == 0 {
			p.hash = emptyPayload
		}
		return p, nil
	case len(p.hash) != 64 || strings.Trim(p.hash, "0123456789abcdef") != "":
		return p, errors.New("x-amz-content-sha256 is neither a hash nor a known kind of body")
	}
	return p, nil
}

var errLength = errors.New("the request has no Content-Length")

// plain replaces a body in signed chunks by its plain bytes. Checksums after the last chunk are lost.
func plain(p payload, h http.Header, length string) (payload, error) {
	n, err := decodedLength(length)
	if err != nil {
		return p, err
	}
	var encodings []string
	for _, e := range strings.Split(strings.Join(h.Values("Content-Encoding"), ","), ",") {
		if e = strings.TrimSpace(e); e != "" && !strings.EqualFold(e, "aws-chunked") {
			encodings = append(encodings, e)
		}
	}
	h.Del("Content-Encoding")
	if len(encodings) > 0 {
		h.Set("Content-Encoding", strings.Join(encodings, ","))
	}
	if strings.HasSuffix(p.hash, "-TRAILER") {
		h.Del("X-Amz-Sdk-Checksum-Algorithm")
	}
	return payload{body: readCloser{newChunked(p.body, n), p.body}, length: n, hash: unsignedPayload}, nil
}

func decodedLength(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 62)
	if err != nil {
		return 0, errors.New("x-amz-decoded-content-length is no length")
	}
	return int64(n), nil
}

type readCloser struct {
	io.Reader
	io.Closer
}
