package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/forkd/forkd/api"
)

// connection sends requests to one daemon and reads the answers, on any route.
type connection struct {
	url    string // as given
	base   string // with the http scheme, without a slash at the end
	http   *http.Client
	plain  *http.Transport // of http, which passes answers on as they are
	token  string
	agent  string
	header http.Header                       // Options.Header
	retry  func(context.Context, error) bool // Options.Retry
}

// URL returns the daemon's URL as given in Options or the environment.
func (c *connection) URL() string { return c.url }

// Close closes idle connections.
func (c *connection) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// roundTripper adds the headers of every request. It also turns the daemon's own errors into
// *Error, below libraries without knowledge of their form.
type roundTripper struct {
	next *http.Transport
	conn *connection
}

func (t roundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for k, v := range t.conn.header {
		r.Header[http.CanonicalHeaderKey(k)] = v
	}
	r.Header.Set("User-Agent", t.conn.agent)
	if t.conn.token != "" {
		r.Header.Set("Authorization", "Bearer "+t.conn.token)
	}
	trace(r)
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, disconnected(t.conn.url, r, err)
	}
	if resp.Header.Get(api.HeaderError) != "" {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		resp.Body = answerBody{resp.Body, t.conn.url, r}
	}
	return resp, nil
}

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the transport.
func (t roundTripper) CloseIdleConnections() { t.next.CloseIdleConnections() }

// call sends one JSON request. in and out may be nil.
func (c *connection) call(ctx context.Context, method, path string, in, out any) error {
	_, err := c.callHeader(ctx, method, path, in, out)
	return err
}

// callHeader is call with the answer's headers as a result.
func (c *connection) callHeader(ctx context.Context, method, path string, in, out any) (http.Header, error) {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return nil, fmt.Errorf("encode request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	resp, err := c.send(ctx, method, path, body, http.Header{"Content-Type": {"application/json"}})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
		return resp.Header, err
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxAnswer)).Decode(out); err != nil {
		if ended := endOf(err); ended != nil {
			return nil, ended
		}
		return nil, fmt.Errorf("decode the daemon's answer to %s %s: %w", method, path, err)
	}
	return resp.Header, nil
}

// endOf returns the broken connection or the end of the caller's context in a read error. It
// returns nil for other errors.
func endOf(err error) error {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	}
	return nil
}

// maxAnswer limits an answer read into memory, in bytes. The largest answer has two streams of
// output as JSON escapes and base64, which is below the limit.
const maxAnswer = 256 << 20

// send sends a request and checks the status. The caller closes the body.
func (c *connection) send(ctx context.Context, method, path string, body io.Reader,
	header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, body)
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	for k, v := range header {
		r.Header[k] = v
	}
	resp, err := c.http.Do(r)
	for err != nil && c.again(r, body, err) {
		resp, err = c.http.Do(r)
	}
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			return nil, e // without the "Post ..." prefix of net/http
		}
		return nil, err
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, responseError(resp)
	}
	return resp, nil
}

// again reports whether to repeat a failed request: it changes nothing, and no daemon has answered
// it.
func (c *connection) again(r *http.Request, body io.Reader, err error) bool {
	var e *Error
	if c.retry == nil || r.Method != http.MethodGet || body != nil || !errors.As(err, &e) || e.Status != 0 {
		return false
	}
	return (e.Code == api.CodeUnreachable || e.Code == api.CodeBroken) && c.retry(r.Context(), err)
}

func (c *connection) text(ctx context.Context, path string) (string, error) {
	resp, err := c.send(ctx, http.MethodGet, path, nil, nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	return string(b), err
}

// stream sends a request and returns an answer of JSON lines. The caller closes the body.
func (c *connection) stream(ctx context.Context, path string, in any) (*http.Response, error) {
	b, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("encode request: %w", err)
	}
	return c.send(ctx, http.MethodPost, path, bytes.NewReader(b), http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/x-ndjson"},
	})
}

// streamed converts an error from the last line of a stream.
func streamed(e *api.Error) error {
	return &Error{
		Code: e.Code, Message: e.Message, Reason: e.Reason, Details: e.Details, Status: e.Code.Status(),
		RequestID: e.RequestID, fromDaemon: true,
	}
}

// post sends a raw body, and discards the answer.
func (c *connection) post(ctx context.Context, to string, content io.Reader) error {
	resp, err := c.send(ctx, http.MethodPost, to, content, http.Header{"Content-Type": {"application/octet-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxAnswer))
	return err
}
