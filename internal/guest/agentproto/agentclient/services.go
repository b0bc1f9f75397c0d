package agentclient

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forkd/forkd/internal/guest/agentproto"
	"github.com/forkd/forkd/internal/guest/agentproto/servicewire"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// ErrNoServices is the error of an agent that is older than services.
var ErrNoServices = errors.New("the guest's agent is older than this daemon and has no services: " +
	"make its snapshot again from the image, and fork that")

// ErrNoLiveness is the error of an agent that is older than the liveness of services.
var ErrNoLiveness = errors.New("the guest's agent is older than this daemon and cannot check ready services: " +
	"make its snapshot again from the image, and fork that")

// ErrNoStopSignal is the error of an agent that is older than the stop signals of services.
var ErrNoStopSignal = errors.New("the guest's agent is older than this daemon and stops services by SIGTERM only: " +
	"make its snapshot again from the image, and fork that")

// Services lists services. With a wait it first waits until each is ready, failed or stopped.
func (c *Client) Services(ctx context.Context, wait time.Duration) (servicewire.List, error) {
	path := servicewire.Path
	if wait > 0 {
		path += "?wait_ms=" + strconv.FormatInt(wait.Milliseconds(), 10)
	}
	l, err := c.services(ctx, http.MethodGet, path, nil)
	return l, said(err)
}

// DeclareService starts a service, or replaces one of its name with another declaration.
func (c *Client) DeclareService(ctx context.Context, spec servicespec.Spec) (servicewire.List, error) {
	if spec.Liveness.On() || spec.StopSignal != "" { // an older agent would ignore them
		resp, err := c.serviceRequest(ctx, http.MethodGet, servicewire.Path, nil)
		if err != nil {
			return servicewire.List{}, said(err)
		}
		_ = resp.Body.Close()
		switch {
		case spec.Liveness.On() && resp.Header.Get(servicewire.Header) != servicewire.HeaderValue:
			return servicewire.List{}, ErrNoLiveness
		case spec.StopSignal != "" && resp.Header.Get(servicewire.StopHeader) == "":
			return servicewire.List{}, ErrNoStopSignal
		}
	}
	l, err := c.services(ctx, http.MethodPut, servicePath(spec.Name), spec)
	return l, said(err)
}

// ChangeService stops, starts or restarts a service.
func (c *Client) ChangeService(ctx context.Context, name, action string) (servicewire.List, error) {
	l, err := c.services(ctx, http.MethodPost, servicePath(name), servicewire.Action{Do: action})
	return l, said(err)
}

// RemoveService stops a service and removes it with its log.
func (c *Client) RemoveService(ctx context.Context, name string) (servicewire.List, error) {
	l, err := c.services(ctx, http.MethodDelete, servicePath(name), nil)
	return l, said(err)
}

// ServiceLog opens a service's log: its last lines, or all if lines is negative. With follow it ends with the
// context. The caller closes it.
func (c *Client) ServiceLog(ctx context.Context, name string, lines int, follow bool) (io.ReadCloser, error) {
	q := url.Values{"follow": {strconv.FormatBool(follow)}}
	if lines >= 0 {
		q.Set("tail", strconv.Itoa(lines))
	}
	resp, err := c.serviceRequest(ctx, http.MethodGet, servicePath(name)+servicewire.LogSuffix+"?"+q.Encode(), nil)
	if err != nil {
		return nil, said(err)
	}
	if follow {
		return resp.Body, nil
	}
	// The most that an agent keeps, and a line about what it lost.
	return limitedBody{io.LimitReader(resp.Body, servicespec.MaxLog+1024), resp.Body}, nil
}

// limitedBody is the begin of an answer's body.
type limitedBody struct {
	io.Reader
	io.Closer
}

func servicePath(name string) string { return servicewire.Path + "/" + url.PathEscape(name) }

// services sends a request that is answered with the list.
func (c *Client) services(ctx context.Context, method, path string, body any) (servicewire.List, error) {
	resp, err := c.serviceRequest(ctx, method, path, body)
	if err != nil {
		return servicewire.List{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, servicewire.MaxListBytes+1))
	if err != nil {
		return servicewire.List{}, fmt.Errorf("services: %w", said(err))
	}
	return servicewire.ParseList(b)
}

// serviceRequest returns an answer with status 200, or a *FileError.
func (c *Client) serviceRequest(ctx context.Context, method, path string, body any) (*http.Response, error) {
	var in io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("services: %w", err)
		}
		in = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, baseURL+path, in)
	if err != nil {
		return nil, fmt.Errorf("services: %w", err)
	}
	return c.plain(req, "services", servicewire.Header, ErrNoServices)
}

// plain sends a request to plain routes that not every agent has. Their answers have the header. It returns an answer
// with status 200, a *FileError, or missing for an agent without these routes.
func (c *Client) plain(req *http.Request, what, header string, missing error) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, said(err))
	}
	has := resp.Header.Get(header) != ""
	if has && resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	switch {
	case has:
		refused := &FileError{Message: resp.Status}
		_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(refused)
		refused.Code = resp.StatusCode
		return nil, refused
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, missing
	}
	return nil, agentproto.Violationf("an answer about %s without their header", what)
}
