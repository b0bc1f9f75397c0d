package hostileagent

import (
	"cmp"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/forkd/forkd/internal/guest/agentproto/agentclient"
	"github.com/forkd/forkd/internal/leaf/servicespec"
)

// readLog reads a log that is not followed.
func readLog(ctx context.Context, c *agentclient.Client) error {
	r, err := c.ServiceLog(ctx, "web", -1, false)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = io.Copy(io.Discard, r)
	return err
}

const servicesHead = "HTTP/1.1 200 OK\r\nForkd-Services: 1\r\nConnection: close\r\n\r\n"

// A list of services is bounded and checked. A log ends at its largest size.
func TestServicesAreBounded(t *testing.T) {
	service := `{"spec":{"name":"web","command":["a"]},"state":"ready"}`
	lists := map[string]call{"services": plainCalls["services"]}
	for name, a := range map[string]attack{
		"an endless list":     after(raw(servicesHead), forever(raw(" "))),
		"endless services":    after(raw(servicesHead+`{"services":[`), forever(raw(service+","))),
		"no list":             cut(raw(servicesHead + "hello")),
		"two of one name":     cut(raw(servicesHead + `{"services":[` + service + "," + service + `]}`)),
		"an impossible state": cut(raw(servicesHead + `{"services":[` + strings.Replace(service, "ready", "fine", 1) + `]}`)),
	} {
		t.Run(name, func(t *testing.T) { drive(t, a, wantViolation, lists) })
	}
	t.Run("an endless log", func(t *testing.T) {
		c := agentclient.New(listen(t, overHTTP("", after(raw(servicesHead), forever(raw("spam"))))))
		defer c.Close()
		err := attacked(t, func(ctx context.Context) error { return cmp.Or(readLog(ctx, c), io.EOF) })
		if !errors.Is(err, io.EOF) {
			t.Errorf("got %v, want its end at the largest size", err)
		}
	})
}

// An agent without liveness is asked before a declaration with it is sent: it would ignore the field.
func TestLivenessIsNotSentToAnOldAgent(t *testing.T) {
	c := agentclient.New(listen(t, overHTTP("", cut(raw(servicesHead+`{"services":[]}`)))))
	defer c.Close()
	err := attacked(t, func(ctx context.Context) error {
		_, err := c.DeclareService(ctx, servicespec.Spec{Name: "web", Command: []string{"a"}, Port: 1,
			Liveness: servicespec.Liveness{IntervalMS: 1000}})
		return err
	})
	if !errors.Is(err, agentclient.ErrNoLiveness) {
		t.Errorf("got %v", err)
	}
}

// The words of a refusal are safe to show, and an old agent is named as such.
func TestRefusalsAboutServices(t *testing.T) {
	ask := func(t *testing.T, answer string) error {
		c := agentclient.New(listen(t, overHTTP("", cut(raw(answer)))))
		defer c.Close()
		return attacked(t, func(ctx context.Context) error { _, err := c.Services(ctx, 0); return err })
	}
	err := ask(t, "HTTP/1.1 400 X\r\nForkd-Services: 1\r\nConnection: close\r\n\r\n{\"message\":\"\\u001b[31mred\\u0007"+
		strings.Repeat("x", 60000)+"\"}")
	var refused *agentclient.FileError
	if !errors.As(err, &refused) || strings.ContainsAny(err.Error(), "\x1b\x07") {
		t.Errorf("got %.300q", err)
	}
	err = ask(t, "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n404 page not found")
	if !errors.Is(err, agentclient.ErrNoServices) {
		t.Errorf("got %v", err)
	}
}
