package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/forkd/forkd/api"
)

// records holds the requests about events, receipts and the audit log. Client embeds it.
type records struct{ conn *connection }

// EventsRequest selects events.
type EventsRequest struct {
	// After is the ID of the last known event. The stream begins with the next event, or with an
	// event of kind api.EventGap if the daemon no longer has the next one. 0 means new events only.
	After uint64
	// All begins with the oldest event the daemon has. It excludes After.
	All               bool
	Sandbox, Snapshot string   // if empty, all
	Kinds             []string // a kind that ends in a dot is a prefix; if empty, all
	Filters           []string // label=KEY or label=KEY=VALUE; all must match
}

func (r EventsRequest) path() string {
	q := url.Values{}
	set := func(name, v string) {
		if v != "" {
			q.Set(name, v)
		}
	}
	set("sandbox", r.Sandbox)
	set("snapshot", r.Snapshot)
	set("kind", strings.Join(r.Kinds, ","))
	if len(r.Filters) > 0 {
		q["filter"] = r.Filters
	}
	if r.After > 0 || r.All {
		q.Set("after", strconv.FormatUint(r.After, 10))
	}
	if len(q) == 0 {
		return "/v1/events"
	}
	return "/v1/events?" + q.Encode()
}

// maxEvent limits one line of the stream, in bytes.
const maxEvent = 1 << 20

// Events calls each with the daemon's events, until each returns an error or ctx ends. It returns
// the error of each. If the daemon ends the stream, the error says why. Another call with After
// continues from the last event.
func (c records) Events(ctx context.Context, req EventsRequest, each func(api.Event) error) error {
	resp, err := c.conn.send(ctx, http.MethodGet, req.path(), nil, http.Header{"Accept": {"text/event-stream"}})
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxEvent)
	name := ""
	for lines.Scan() {
		key, value, _ := strings.Cut(lines.Text(), ":")
		switch value = strings.TrimPrefix(value, " "); key {
		case "event":
			name = value
		case "data":
			if err := tellEvent(name, []byte(value), each); err != nil {
				return err
			}
		case "":
			name = ""
		}
	}
	switch err := lines.Err(); {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil, errors.Is(err, io.ErrUnexpectedEOF):
		return brokenOff(c.conn.url, http.MethodGet, io.ErrUnexpectedEOF)
	default:
		return fmt.Errorf("follow events: %w", err)
	}
}

func tellEvent(name string, data []byte, each func(api.Event) error) error {
	if name == api.EventEnd {
		var e api.Error
		if err := json.Unmarshal(data, &e); err != nil {
			return fmt.Errorf("read the end of the events: %w", err)
		}
		return streamed(&e)
	}
	var e api.Event
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("read an event: %w", err)
	}
	return each(e)
}
