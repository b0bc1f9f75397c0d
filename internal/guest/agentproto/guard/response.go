package guard

import (
	"io"
	"net/http"
	"strings"

	"connectrpc.com/connect"

	"github.com/forkd/forkd/internal/guest/agentproto"
)

// maxRefusal limits the body of an unsuccessful answer, and the message that ends a stream.
const maxRefusal = 64 << 10

// Response puts limits on an agent's answer to req. It does not use resp.Request. Reads of the body
// return a Violation if the answer exceeds them. If Response returns an error, it has closed the
// body.
func Response(req *http.Request, resp *http.Response) error {
	if resp.StatusCode < http.StatusOK {
		resp.Body.Close()
		return violation("answer %q, which was not asked for", resp.Status)
	}
	if err := notRedirect(resp); err != nil {
		resp.Body.Close()
		return err
	}
	asked := req.Header.Get("Content-Type") // the content type of the answer is not trusted
	switch {
	case resp.StatusCode != http.StatusOK:
		resp.Body = &limited{body: resp.Body, left: maxRefusal, what: "a refusal"}
	case strings.HasPrefix(asked, "application/connect+"):
		resp.Body = newFrames(resp.Body)
	case asked == "application/proto", asked == "application/json" && req.Header.Get("Connect-Protocol-Version") != "":
		resp.Body = &limited{body: resp.Body, left: agentproto.MaxMessageBytes, what: "a message"}
	}
	return nil
}

// Client is an HTTP client for Connect. It puts limits on answers.
type Client struct {
	Next connect.HTTPClient // sends the requests
}

// Do implements connect.HTTPClient.
func (c Client) Do(req *http.Request) (*http.Response, error) {
	resp, err := c.Next.Do(req)
	if err != nil {
		return nil, err
	}
	if err := Response(req, resp); err != nil {
		return nil, err
	}
	return resp, nil
}

// violation returns a Violation with a code. Without a code, Connect would treat it as a lost
// connection.
func violation(format string, args ...any) error {
	return connect.NewError(connect.CodeInternal, agentproto.Violationf(format, args...))
}

// limited is a body with a limit. It fails if it is longer.
type limited struct {
	body io.ReadCloser
	left int
	what string
}

// Read implements io.Reader.
func (l *limited) Read(p []byte) (int, error) {
	if len(p) > l.left+1 {
		p = p[:l.left+1] // one extra byte detects an oversized body
	}
	n, err := l.body.Read(p)
	if l.left -= n; l.left < 0 {
		l.left = 0
		return 0, violation("%s is too long", l.what)
	}
	return n, err
}

// Close implements io.Closer.
func (l *limited) Close() error { return l.body.Close() }
