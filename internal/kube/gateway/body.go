package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// bodyOf is readBody for handlers: it answers with the error itself, and then returns false.
func (g *Gateway) bodyOf(w *writer, r *http.Request) (body []byte, free func(), ok bool) {
	body, free, err := g.readBody(w, r)
	if err != nil {
		g.refuse(w, r, failureOf(err))
	}
	return body, free, err == nil
}

// readBody reads a JSON body into memory. The caller calls free when the body is sent.
func (g *Gateway) readBody(w *writer, r *http.Request) (body []byte, free func(), err error) {
	var held int64
	free = sync.OnceFunc(func() { g.buffered.Add(-held) })
	var all bytes.Buffer
	from := io.LimitReader(r.Body, api.MaxBodyBytes+1)
	_ = w.rc.SetReadDeadline(time.Now().Add(g.cfg.BodyTime)) // a recorder of a test has no deadlines
	for chunk := make([]byte, 16<<10); ; {
		n, err := from.Read(chunk)
		if held += int64(n); g.buffered.Add(int64(n)) > g.cfg.MaxBuffered {
			free()
			discard(r)
			return nil, nil, failf(api.CodeBusy, "", "the gateway holds %d bytes of requests and answers already",
				g.cfg.MaxBuffered)
		}
		all.Write(chunk[:n])
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			free()
			return nil, nil, failf(api.CodeRequestTimeout, "", "read the request: %v", err)
		}
	}
	if all.Len() > api.MaxBodyBytes {
		free()
		discard(r)
		return nil, nil, failf(api.CodeTooLarge, "", "the body is longer than %d bytes", api.MaxBodyBytes)
	}
	_ = w.rc.SetReadDeadline(time.Time{})
	return all.Bytes(), free, nil
}

// discard reads the rest of a refused body, within a limit and until the read deadline. If the gateway closed the
// connection while the client still sends, the client could lose the answer.
func discard(r *http.Request) { _, _ = io.CopyN(io.Discard, r.Body, api.MaxBodyBytes) }

// restore gives a request its body again.
func restore(r *http.Request, body []byte) {
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	r.TransferEncoding = nil
}

// parse reports whether a body is an object with the fields of v. Other fields are the node's.
func parse(body []byte, v any) bool { return json.Unmarshal(body, v) == nil }

func escape(name string) string { return url.PathEscape(name) }

func keyIn(id string) sandbox.NodeKey { return sandbox.NodeKeyIn(fullID(id)) }

func failureOf(err error) failure {
	var f failure
	if errors.As(err, &f) {
		return f
	}
	return failf(api.CodeInternal, "", "%v", err)
}
