package contract

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
)

// open sends a GET request and returns the answer with its body open.
func (r rest) open(ctx context.Context, path string, header map[string]string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.url+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		b, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, restFailure(resp.StatusCode, b)
	}
	return resp, nil
}

// events reads as many events as args asks for.
func (r rest) events(ctx context.Context, args arguments) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	q := url.Values{"after": {"0"}, "filter": args.texts("filter")}
	for _, name := range []string{"sandbox", "kind"} {
		if v := args.text(name); v != "" {
			q.Set(name, v)
		}
	}
	resp, err := r.open(ctx, "/v1/events?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	events := []any{}
	for lines := bufio.NewScanner(resp.Body); len(events) < args.number("count") && lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data:"); ok {
			var e any
			if err := json.Unmarshal([]byte(data), &e); err != nil {
				return nil, err
			}
			events = append(events, e)
		}
	}
	return events, nil
}

// port sends text to a port of the guest and returns the answer.
func (r rest) port(ctx context.Context, args arguments) (any, error) {
	resp, err := r.open(ctx, fmt.Sprintf("/v1/sandboxes/%s/ports/%s/connect", args.id(), args.text("port")),
		map[string]string{"Connection": "Upgrade", "Upgrade": api.UpgradeTCP})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if w, ok := resp.Body.(io.Writer); ok {
		if _, err := io.WriteString(w, args.text("send")); err != nil {
			return nil, err
		}
	}
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}
