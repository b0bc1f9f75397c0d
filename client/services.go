package client

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/forkd/forkd/api"
)

// Services holds the requests about the services of a sandbox.
type Services struct {
	conn *connection
	id   string
}

// ServicesOf returns the services of a sandbox.
func ServicesOf(c *Client, id string) Services { return Services{&c.connection, id} }

func (s Services) path(name, rest string) string {
	if name == "" {
		return sandboxPath(s.id, "/services")
	}
	return sandboxPath(s.id, "/services/"+url.PathEscape(name)+rest)
}

// List returns the services by name. With a wait it first waits until each is ready, failed or stopped.
func (s Services) List(ctx context.Context, wait time.Duration) ([]api.Service, error) {
	q := url.Values{}
	if wait > 0 {
		q.Set("wait_secs", strconv.FormatFloat(wait.Seconds(), 'f', -1, 64))
	}
	var list []api.Service
	return list, s.conn.call(ctx, http.MethodGet, withQuery(s.path("", ""), q), nil, &list)
}

// Declare starts a service, or replaces one with another declaration.
func (s Services) Declare(ctx context.Context, name string, spec api.ServiceSpec) (api.Service, error) {
	var out api.Service
	return out, s.conn.call(ctx, http.MethodPut, s.path(name, ""), spec, &out)
}

// Change stops, starts or restarts a service.
func (s Services) Change(ctx context.Context, name, action string) (api.Service, error) {
	var out api.Service
	return out, s.conn.call(ctx, http.MethodPost, s.path(name, ""), api.ServiceAction{Action: action}, &out)
}

// Remove stops a service and removes it with its log.
func (s Services) Remove(ctx context.Context, name string) error {
	return s.conn.call(ctx, http.MethodDelete, s.path(name, ""), nil, nil)
}

// Log writes the last lines of a service's log to w; all that is kept if lines is negative. With follow it then
// writes new output until the sandbox or ctx ends.
func (s Services) Log(ctx context.Context, name string, lines int, follow bool, w io.Writer) error {
	q := url.Values{}
	if follow {
		q.Set("follow", "true")
	}
	if lines >= 0 {
		q.Set("tail", strconv.Itoa(lines))
	}
	resp, err := s.conn.send(ctx, http.MethodGet, withQuery(s.path(name, "/log"), q), nil, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(w, resp.Body); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("the log of service %s of %s: %w", name, s.id, err)
	}
	return nil
}
