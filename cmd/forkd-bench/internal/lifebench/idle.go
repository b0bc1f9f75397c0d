package lifebench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/compare"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// IdleConfig holds the parameters of the measurement of an idle daemon.
type IdleConfig struct {
	Programs string // directory with forkd and forkd-vmm
	Paused   int    // sandboxes
	Requests int    // with a key, and the same number without
	Say      func(string)
}

// Idle holds the figures of a daemon started by the bench (docs/inside/formats/json-output.md).
type Idle struct {
	Paused int `json:"paused"`
	// HeapBytes is the growth of the daemon's heap per paused sandbox. Descriptors is the growth of
	// its open files for all of them.
	HeapBytes   float64 `json:"heap_bytes_each"`
	Descriptors float64 `json:"descriptors"`
	StartMS     float64 `json:"start_ms"`       // until a daemon with the paused sandboxes answers
	StartNoneMS float64 `json:"start_none_ms"`  // the same without paused sandboxes
	ListMS      float64 `json:"list_ms"`        // list of all sandboxes; median
	PlainUS     float64 `json:"request_us"`     // without a key; median
	KeyUS       float64 `json:"request_key_us"` // with a tenant's key; median
	KeyMoreUS   float64 `json:"key_more_us"`    // median of the differences of consecutive requests
	Requests    int     `json:"requests"`
}

// RunIdle starts daemons on this host, in a temporary folder, and measures them.
func RunIdle(ctx context.Context, c IdleConfig) (out Idle, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	out.Paused, out.Requests = c.Paused, c.Requests
	c.Say("a daemon with nothing")
	none, err := c.daemon(ctx, 0, func(ctx context.Context, d *client.Client, _ *burden) error {
		return c.ask(ctx, d, &out)
	})
	if err != nil {
		return out, err
	}
	c.Say(fmt.Sprintf("a daemon with %d paused sandboxes", c.Paused))
	full, err := c.daemon(ctx, c.Paused, c.list)
	if err != nil {
		return out, err
	}
	out.StartMS, out.StartNoneMS, out.ListMS = full.started, none.started, full.list
	out.HeapBytes = (full.heap - none.heap) / float64(max(c.Paused, 1))
	out.Descriptors = full.files - none.files
	return out, nil
}

// burden holds the figures of one daemon.
type burden struct {
	heap, files, started, list float64
}

// daemon starts a daemon with so many paused sandboxes, calls look, and ends the daemon.
func (c IdleConfig) daemon(ctx context.Context, paused int,
	look func(context.Context, *client.Client, *burden) error) (b burden, err error) {
	dir, err := os.MkdirTemp("", "forkd-bench")
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := record(filepath.Join(dir, "data", "paused"), paused); err != nil {
		return b, err
	}
	build := compare.Build{Dir: c.Programs, Serve: []string{"--jail", "off", "--kill-on-stop=false"},
		Env: []string{"GOGC=2"}}
	first, err := compare.Serve(ctx, build, dir)
	if err == nil { // the daemon writes missing receipts
		err = first.Stop()
	}
	if err != nil {
		return b, err
	}
	began := time.Now()
	d, err := compare.Serve(ctx, build, dir)
	if err != nil {
		return b, err
	}
	b.started = measure.Millis(time.Since(began))
	defer func() { err = errors.Join(err, d.Stop()) }()
	if err := b.weigh(ctx, d.Client()); err != nil {
		return b, err
	}
	return b, look(ctx, d.Client(), &b)
}

// record writes records of sandboxes paused in snapshots that do not exist (docs/inside/formats/paused.md).
func record(dir string, n int) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for i := range n {
		id := fmt.Sprintf("sb-%08x-0001", i)
		info := map[string]any{
			"ID": id, "Index": 1, "Status": "paused",
			"SnapshotTag": "bench", "SnapshotHash": "sha256:" + strings.Repeat("0", 64),
			"PausedIn": fmt.Sprintf("pause-%s-%08x", id, i), "PausedHash": fmt.Sprintf("sha256:%064x", i), "Hostname": id,
			"CreatedAt": time.Now(), "TrafficToken": fmt.Sprintf("%032x", i),
			"Life": map[string]any{"Idle": time.Hour, "AtEnd": "pause", "AutoResume": true},
		}
		who := map[string]any{"id": id, "index": 1, "parent": "bench", "machine_id": fmt.Sprintf("%032x", i),
			"env": map[string]string{"COLOUR": "red"}}
		b, err := json.Marshal(map[string]any{"version": 1, "info": info, "who": who})
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, id+".json"), b, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// scrapes is the number of heap readings. Each makes garbage; the least was read just after a
// collection.
const scrapes = 200

func (b *burden) weigh(ctx context.Context, c *client.Client) error {
	for i := range scrapes {
		text, err := c.Metrics(ctx)
		if err != nil {
			return err
		}
		heap, files := metric(text, "go_memstats_heap_alloc_bytes"), metric(text, "process_open_fds")
		if heap == 0 || files == 0 {
			return errors.New("the daemon's figures have no heap and no open files")
		}
		if i == 0 {
			b.heap, b.files = heap, files
		}
		b.heap, b.files = min(b.heap, heap), min(b.files, files)
	}
	return nil
}

// metric returns a value from a page of metrics, or 0 if the metric is missing.
func metric(text, name string) float64 {
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if value, ok := strings.CutPrefix(s.Text(), name+" "); ok {
			v, _ := strconv.ParseFloat(value, 64)
			return v
		}
	}
	return 0
}

// list times the list of all sandboxes.
func (c IdleConfig) list(ctx context.Context, d *client.Client, b *burden) error {
	var took []float64
	for range 20 {
		began := time.Now()
		list, err := d.ListSandboxes(ctx)
		if err != nil {
			return err
		}
		if len(list) != c.Paused {
			return fmt.Errorf("the daemon lists %d paused sandboxes of %d", len(list), c.Paused)
		}
		took = append(took, measure.Millis(time.Since(began)))
	}
	b.list = measure.Median(took)
	return nil
}

// ask sends the same request without a key and with one, in turn.
func (c IdleConfig) ask(ctx context.Context, d *client.Client, out *Idle) error {
	key, err := d.CreateKey(ctx, api.CreateKeyRequest{Name: "bench", Tenant: "bench", Scopes: []string{"read"}})
	if err != nil {
		return err
	}
	keyed, err := client.New(client.Options{URL: d.URL(), Token: key.Text})
	if err != nil {
		return err
	}
	defer keyed.Close()
	var took [2][]float64
	var more []float64
	for i := range c.Requests + c.Requests/10 {
		var pair [2]float64
		for turn := range pair {
			who := (turn + i) % len(pair)
			began := time.Now()
			if _, err := []*client.Client{d, keyed}[who].ListSandboxes(ctx); err != nil {
				return err
			}
			pair[who] = float64(time.Since(began).Nanoseconds()) / 1000
		}
		if i < c.Requests/10 {
			continue // warms up
		}
		took[0], took[1], more = append(took[0], pair[0]), append(took[1], pair[1]), append(more, pair[1]-pair[0])
	}
	out.PlainUS, out.KeyUS, out.KeyMoreUS = measure.Median(took[0]), measure.Median(took[1]), measure.Median(more)
	return nil
}
