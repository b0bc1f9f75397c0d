package gateway

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"sync"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/internal/domain/sandbox"
)

// maxEvent limits one line of an event stream, in bytes.
const maxEvent = 256 << 10

// events merges the event streams of all nodes as they arrive. Each node numbers its own events, so a merged stream
// cannot continue after an event: it starts now, or with the oldest of each node. The stream of one sandbox is its
// node's, and can.
func (g *Gateway) events(w *writer, r *http.Request) {
	q := r.URL.Query()
	if n := g.cfg.Nodes.ByKey(keyIn(q.Get("sandbox"))); n != nil {
		g.forward(w, r, n)
		return
	}
	if after := strings.TrimSpace(r.Header.Get("Last-Event-ID") + q.Get("after")); strings.Trim(after, "0") != "" {
		g.refuse(w, r, failf(api.CodeInvalid, "", "events of all nodes cannot continue after event %s: each node has "+
			"its own numbers. Leave after out, use 0, or name a sandbox", sandbox.Clip(after)))
		return
	}
	parts, missing, refusal := g.openAll(r, "text/event-stream")
	if len(parts) == 0 {
		refuseList(g, w, r, refusal)
		return
	}
	tellMissing(w, missing)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	out := &eventMerger{w: w}
	out.send([]byte("retry: 1000\n\n"))
	var readers sync.WaitGroup
	for _, s := range parts {
		readers.Go(func() {
			err := out.copy(s)
			// The client has to connect again to get the events of this node: end the whole stream.
			for _, other := range parts {
				other.end()
			}
			g.cfg.Log.Debug("an event stream ended", "node", s.node.Name, "error", err)
		})
	}
	readers.Wait()
	for _, s := range parts {
		s.close()
	}
}

// eventMerger writes whole events of several streams.
type eventMerger struct {
	mu sync.Mutex // held for one write
	w  *writer
}

func (o *eventMerger) send(event []byte) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.w.Write(event); err != nil {
		return err
	}
	return o.w.FlushError()
}

// copy passes events on, without their numbers.
func (o *eventMerger) copy(s *stream) error {
	lines := bufio.NewScanner(s.resp.Body)
	lines.Buffer(nil, maxEvent)
	var event bytes.Buffer
	for lines.Scan() {
		line := lines.Bytes()
		switch {
		case len(line) == 0:
			if event.Len() > 0 {
				event.WriteByte('\n')
				if err := o.send(event.Bytes()); err != nil {
					return err
				}
				event.Reset()
			}
		case bytes.HasPrefix(line, []byte("id:")), bytes.HasPrefix(line, []byte("retry:")):
		case event.Len()+len(line) > maxEvent:
			return fmt.Errorf("an event has more than %d bytes", maxEvent)
		default:
			event.Write(line)
			event.WriteByte('\n')
		}
	}
	return lines.Err()
}
