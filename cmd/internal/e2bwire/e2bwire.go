// Package e2bwire is a minimal client of E2B's protocol: it creates a sandbox, runs a command in it
// and ends it, with the requests of E2B's packages. It has no settings and does not retry. The
// bench and `forkd e2b check` use it. Other programs should use E2B's packages.
package e2bwire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// maxMessage limits one message, in bytes.
const maxMessage = 4 << 20

// Client sends requests to a daemon at URL, which serves both the control API and sandboxes.
type Client struct {
	// URL is the daemon's address. Key is the API key for the control API. Sandboxes get their own
	// token instead.
	URL, Key string
	HTTP     *http.Client // sends all requests; required
}

// Sandbox is the answer to a create.
type Sandbox struct {
	ID    string `json:"sandboxID"`       // in the form of E2B's API
	Token string `json:"envdAccessToken"` // sent with requests to the sandbox
}

// Create makes a sandbox of a template. The sandbox ends after the given number of seconds.
func (c *Client) Create(ctx context.Context, template string, seconds int) (Sandbox, error) {
	body, err := json.Marshal(map[string]any{"templateID": template, "timeout": seconds})
	if err != nil {
		return Sandbox{}, err
	}
	resp, err := c.send(ctx, http.MethodPost, "/v2/sandboxes", nil, body)
	if err != nil {
		return Sandbox{}, err
	}
	defer resp.Body.Close()
	var s Sandbox
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxMessage)).Decode(&s); err != nil {
		return Sandbox{}, fmt.Errorf("read the answer to create: %w", err)
	}
	return s, nil
}

// Info requests a sandbox and discards the answer, to measure the cost of the control API.
func (c *Client) Info(ctx context.Context, s Sandbox) error {
	return c.drain(c.send(ctx, http.MethodGet, "/sandboxes/"+s.ID, nil, nil))
}

// Health sends a request with almost no work for the control API, to measure the cost of a request.
func (c *Client) Health(ctx context.Context) error {
	return c.drain(c.send(ctx, http.MethodGet, "/health", nil, nil))
}

// Kill ends a sandbox.
func (c *Client) Kill(ctx context.Context, s Sandbox) error {
	return c.drain(c.send(ctx, http.MethodDelete, "/sandboxes/"+s.ID, nil, nil))
}

// Run runs a command line like commands.run, and returns its standard output.
func (c *Client) Run(ctx context.Context, s Sandbox, line string) (string, error) {
	body, err := json.Marshal(map[string]any{"stdin": false,
		"process": map[string]any{"cmd": "/bin/bash", "args": []string{"-l", "-c", line}}})
	if err != nil {
		return "", err
	}
	header := http.Header{"Content-Type": {"application/connect+json"}, "Connect-Protocol-Version": {"1"}}
	resp, err := c.send(ctx, http.MethodPost, "/process.Process/Start", c.toward(s, 49983, header), envelope(body))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	return output(resp.Body)
}

// Code runs Python in the default context of the code interpreter, and returns the text of its
// value.
func (c *Client) Code(ctx context.Context, s Sandbox, code string) (string, error) {
	body, err := json.Marshal(map[string]any{"code": code})
	if err != nil {
		return "", err
	}
	resp, err := c.send(ctx, http.MethodPost, "/execute", c.toward(s, 49999, http.Header{}), body)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text := ""
	for d := json.NewDecoder(resp.Body); ; {
		var e struct{ Type, Text, Name, Value string }
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return text, nil
		} else if err != nil {
			return "", fmt.Errorf("read the answer to execute: %w", err)
		}
		switch e.Type {
		case "result":
			text = e.Text
		case "error":
			return "", fmt.Errorf("%s: %s", e.Name, e.Value)
		}
	}
}

func (c *Client) toward(s Sandbox, port int, h http.Header) http.Header {
	h.Set("E2b-Sandbox-Id", s.ID)
	h.Set("E2b-Sandbox-Port", fmt.Sprint(port))
	h.Set("X-Access-Token", s.Token)
	return h
}

func (c *Client) send(ctx context.Context, method, path string, h http.Header, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, strings.TrimSuffix(c.URL, "/")+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if h == nil {
		h = http.Header{"X-Api-Key": {c.Key}}
	}
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", "application/json")
	}
	req.Header = h
	resp, err := c.HTTP.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode/100 != 2 {
		defer resp.Body.Close()
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
		return nil, fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(said))
	}
	return resp, nil
}

func (c *Client) drain(resp *http.Response, err error) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(resp.Body, maxMessage))
	return err
}

// envelope frames a message of the Connect protocol: flags, length, content.
func envelope(message []byte) []byte {
	b := append(make([]byte, 1, 5+len(message)), binary.BigEndian.AppendUint32(nil, uint32(len(message)))...)
	return append(b, message...)
}

// endOfStream flags the last envelope.
const endOfStream = 2

// output reads the events of a process to its end.
func output(r io.Reader) (string, error) {
	var out strings.Builder
	ended := false
	for {
		var head [5]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return "", fmt.Errorf("read the answer to Start: %w", err)
		}
		n := binary.BigEndian.Uint32(head[1:])
		if n > maxMessage {
			return "", fmt.Errorf("a message of the answer to Start has %d bytes", n)
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(r, message); err != nil {
			return "", fmt.Errorf("read the answer to Start: %w", err)
		}
		var e event
		if err := json.Unmarshal(message, &e); err != nil {
			return "", fmt.Errorf("read the answer to Start: %w", err)
		}
		out.Write(e.Event.Data.Stdout)
		switch {
		case e.Error != nil:
			return "", fmt.Errorf("%s: %s", e.Error.Code, e.Error.Message)
		case e.Event.End != nil && e.Event.End.Code != 0:
			return "", fmt.Errorf("the command ended with %d", e.Event.End.Code)
		case e.Event.End != nil:
			ended = true
		case head[0]&endOfStream != 0 && !ended:
			return "", errors.New("the answer to Start ended before the command did")
		}
		if head[0]&endOfStream != 0 {
			return out.String(), nil
		}
	}
}

// event is a message of the answer to Start, or the last one.
type event struct {
	Event struct {
		Data struct {
			Stdout []byte `json:"stdout"`
		} `json:"data"`
		End *struct {
			Code int `json:"exitCode"`
		} `json:"end"`
	} `json:"event"`
	Error *struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}
