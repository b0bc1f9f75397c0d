package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
)

// Networked describes a child's access to this host: one allowed page and one refused page.
type Networked struct {
	FetchMS float64 `json:"fetch_ms"` // of the allowed page, by the child's own clock
	Refused string  `json:"refused"`  // reason for the refused page, as the child can read it
}

// fetch gets a page and returns the time in milliseconds, or an error.
const fetch = `def demo_fetch(url):
    import time, urllib.request
    began = time.monotonic()
    try:
        body = urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=20).read().decode()
    except OSError as e:
        return 'failed ' + str(e)
    return f'{(time.monotonic() - began) * 1000:.1f} {body}'`

// hostName is the guests' name of this host. deniedPage tells a guest about refused connections.
const (
	hostName   = "host.forkd.internal"
	deniedPage = "http://192.0.0.1/denied"
)

// network serves two pages on this host, allows a child one of them, and lets it fetch both.
func (r *Result) network(ctx context.Context, c *client.Client, sb api.SandboxInfo) error {
	page := rand.Text()
	open, err := serve(page)
	if err != nil {
		return err
	}
	defer open.Close()
	shut, err := serve(page)
	if err != nil {
		return err
	}
	defer shut.Close()
	rule := net.JoinHostPort(hostName, port(open))
	allow := api.SetNetworkRequest{Network: &api.NetworkPolicy{Allow: []string{rule}}}
	if _, err := c.SetNetwork(ctx, sb.ID, allow); err != nil {
		return fmt.Errorf("allow child %d %s: %w", sb.Index, rule, err)
	}
	if _, err := c.Eval(ctx, sb.ID, api.EvalRequest{Code: fetch}); err != nil {
		return err
	}
	get := func(url string) (took float64, body string, err error) {
		said, err := eval(ctx, c, sb, fmt.Sprintf("demo_fetch(%q)", url))
		if err != nil {
			return 0, "", err
		}
		first, body, _ := strings.Cut(strings.Trim(said, `'"`), " ")
		took, err = strconv.ParseFloat(first, 64)
		if err != nil {
			return 0, "", fmt.Errorf("%s", body)
		}
		return took, body, nil
	}
	r.Network = &Networked{}
	var body string
	if r.Network.FetchMS, body, err = get("http://" + rule + "/"); err != nil || body != page {
		r.fail("child %d was allowed %s and got %q, %v", sb.Index, rule, body, err)
	}
	other := net.JoinHostPort(hostName, port(shut))
	if _, body, err := get("http://" + other + "/"); err == nil {
		r.fail("child %d was not allowed %s and got %q", sb.Index, other, body)
	}
	_, why, err := get(deniedPage)
	if err != nil {
		return fmt.Errorf("child %d reads %s: %w", sb.Index, deniedPage, err)
	}
	if r.Network.Refused = reasonFor(why, other); r.Network.Refused == "" {
		r.fail("child %d was not told why it did not get %s: %q", sb.Index, other, why)
	}
	return nil
}

// reasonFor returns the reason for a host and port from the text of deniedPage.
func reasonFor(denied, hostPort string) string {
	for line := range strings.SplitSeq(strings.ReplaceAll(denied, `\n`, "\n"), "\n") {
		if _, why, ok := strings.Cut(line, "denied: "); ok && strings.Contains(why, hostPort) {
			return why
		}
	}
	return ""
}

// serve answers every request on a port of this host's loopback with a page.
func serve(page string) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, page) })}
	go s.Serve(l) // ends with l
	return l, nil
}

func port(l net.Listener) string { return strconv.Itoa(l.Addr().(*net.TCPAddr).Port) }
