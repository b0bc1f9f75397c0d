package hubbench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Config holds the parameters of the measurement.
type Config struct {
	Client     *client.Client
	Image      string // of the snapshot, with a warm Python interpreter
	Rounds     int
	MemoryMiB  int           // of the guest
	HeldMiB    int           // of data in the interpreter, half of it random
	SetMiB     int           // of these data that the first evaluation reads
	ChangedMiB int           // that the last link of a chain changes; 0: no chain
	RateMB     int64         // of the link, in MB/s
	Delay      time.Duration // of an answer on the link
	// Forkd runs the command with another cache directory, and returns its output.
	Forkd func(ctx context.Context, cache string, args ...string) ([]byte, error)
	// Say receives progress messages. May be nil.
	Say func(string)
}

// Way is one way to get a snapshot, in medians over the rounds.
type Way struct {
	ReadyMS  float64 `json:"ready_ms"`          // from the start of the command to the ready child
	AnswerMS float64 `json:"answer_ms"`         // from the start of the command to the answer of the first evaluation
	Requests float64 `json:"requests"`          // for blobs, until the answer
	MiB      float64 `json:"mib"`               // of blobs, until the answer
	PullMS   float64 `json:"pull_ms,omitempty"` // of `forkd pull` alone
}

// Bound is the time that each part of a whole pull takes alone.
type Bound struct {
	LinkMS   float64 `json:"link_ms"`   // packed bytes at the link's rate
	ZstdMS   float64 `json:"zstd_ms"`   // to unpack them, on one CPU
	SHA256MS float64 `json:"sha256_ms"` // of the unpacked bytes, on one CPU
}

// Figures are the results (docs/inside/formats/json-output.md).
type Figures struct {
	Rounds    int     `json:"rounds"`
	MemoryMiB int     `json:"memory_mib"`
	SetMiB    int     `json:"set_mib"`
	PackedMiB float64 `json:"packed_mib"` // what the whole snapshot takes in the registry
	Lazy      Way     `json:"lazy"`
	Whole     Way     `json:"whole"`
	Ratio     float64 `json:"ratio"` // of the two times to the answer
	Bound     Bound   `json:"bound"`
	PullShare float64 `json:"pull_share"` // the longest time of Bound to the time of a whole pull
	Chain     *Chain  `json:"chain,omitempty"`
	Where     string  `json:"where,omitempty"`
	CPUs      int     `json:"cpus,omitempty"`
}

// Tags of the snapshots.
const (
	madeTag  = "bench-hub"
	wholeTag = "bench-hub-whole"
)

// limit bounds an evaluation.
const limit = 5 * time.Minute

// warm returns code that fills the interpreter's memory. Each evaluation compiles its code, and reads a byte of each
// page of the set before.
func warm(c Config) string {
	return fmt.Sprintf(`
import os, sys
_held = bytearray(%d << 20)
for _at in range(0, len(_held), 65536):
    _held[_at:_at + 65536] = os.urandom(32768) + bytes(range(256)) * 128
_set = memoryview(_held)[:%d << 20:4096]
sys.addaudithook(lambda event, _: sum(_set) if event == "compile" else None)
`, c.HeldMiB, c.SetMiB)
}

type run struct {
	Config
	link *link
	dir  string
	n    int // caches used
}

// Run measures.
func Run(ctx context.Context, c Config) (f Figures, err error) {
	if c.Say == nil {
		c.Say = func(string) {}
	}
	dir, err := os.MkdirTemp("", "forkd-bench-hub-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	blobs := filepath.Join(dir, "blobs")
	if err := os.Mkdir(blobs, 0o700); err != nil {
		return f, err
	}
	l, err := serve(blobs, c.RateMB*1e6, c.Delay)
	if err != nil {
		return f, err
	}
	defer l.close()
	r := &run{Config: c, link: l, dir: dir}
	if err := r.clean(ctx); err != nil { // what a killed run has left
		return f, err
	}
	defer func() { err = errors.Join(err, r.clean(context.WithoutCancel(ctx))) }()
	if err := r.send(ctx); err != nil {
		return f, err
	}
	b, err := r.bound(blobs)
	if err != nil {
		return f, err
	}
	f = Figures{Bound: b, Rounds: c.Rounds, MemoryMiB: c.MemoryMiB, SetMiB: c.SetMiB}
	var lazy, whole [5][]float64
	for i := range c.Rounds {
		c.Say(fmt.Sprintf("round %d of %d", i+1, c.Rounds))
		if err := r.round(ctx, &lazy, r.lazily); err != nil {
			return f, err
		}
		if err := r.round(ctx, &whole, r.wholly); err != nil {
			return f, err
		}
	}
	f.Lazy, f.Whole = medians(lazy), medians(whole)
	f.PackedMiB = f.Whole.MiB
	if f.Whole.AnswerMS > 0 {
		f.Ratio = f.Lazy.AnswerMS / f.Whole.AnswerMS
		f.PullShare = max(b.LinkMS, b.ZstdMS, b.SHA256MS) / f.Whole.PullMS
	}
	if c.ChangedMiB > 0 {
		made, err := r.chain(ctx)
		if err != nil {
			return f, err
		}
		f.Chain = &made
	}
	return f, nil
}

func medians(v [5][]float64) Way {
	return Way{ReadyMS: measure.Median(v[0]), AnswerMS: measure.Median(v[1]), Requests: measure.Median(v[2]),
		MiB: measure.Median(v[3]), PullMS: measure.Median(v[4])}
}

// send makes the snapshot, pushes it past the link, and deletes it.
func (r *run) send(ctx context.Context) error {
	r.Say("make the snapshot")
	req := api.CreateSnapshotRequest{Tag: madeTag, Image: r.Image, MemoryMiB: r.MemoryMiB, Warm: warm(r.Config)}
	if _, err := r.Client.CreateSnapshot(ctx, req, nil); err != nil {
		return err
	}
	r.Say("push it")
	_, err := r.Forkd(ctx, r.cache(), "push", madeTag, r.ref(r.link.direct), "--plain-http")
	return errors.Join(err, measure.Delete(ctx, r.Client, madeTag, client.DeleteOptions{}))
}

func (r *run) ref(host string) string { return host + "/bench/hub:v1" }

// cache returns a new cache directory: the blobs of one command must not serve the next.
func (r *run) cache() string {
	r.n++
	return filepath.Join(r.dir, fmt.Sprint("cache", r.n))
}

// round measures one way to a child, which it returns with the tag of its snapshot. It removes both, and the layers.
func (r *run) round(ctx context.Context, to *[5][]float64, way func(context.Context) (child, error)) error {
	requests, bytes, start := r.link.requests.Load(), r.link.bytes.Load(), time.Now()
	child, err := way(ctx)
	if err != nil {
		return err
	}
	ready := measure.Millis(time.Since(start))
	got, err := measure.Eval(ctx, r.Client, child.ID, "6*7", limit)
	if err == nil && got != "42" {
		err = fmt.Errorf("sandbox %s answers %.200q, want 42", child.ID, got)
	}
	for i, v := range []float64{ready, measure.Millis(time.Since(start)), float64(r.link.requests.Load() - requests),
		float64(r.link.bytes.Load()-bytes) / (1 << 20), measure.Millis(child.pull)} {
		to[i] = append(to[i], v)
	}
	err = errors.Join(err, measure.Kill(ctx, r.Client, []api.SandboxInfo{child.SandboxInfo}),
		measure.Delete(ctx, r.Client, child.SnapshotTag, client.DeleteOptions{}))
	if err == nil {
		_, err = r.Client.CollectLayers(ctx, false)
	}
	return err
}

// child is a child with the time of the pull before it.
type child struct {
	api.SandboxInfo
	pull time.Duration
}

func (r *run) lazily(ctx context.Context) (child, error) {
	out, err := r.Forkd(ctx, r.cache(), "fork", "--from", r.ref(r.link.shaped), "--plain-http", "--json")
	if err != nil {
		return child{}, err
	}
	var made []api.SandboxInfo
	if err := json.Unmarshal(out, &made); err != nil || len(made) != 1 {
		return child{}, fmt.Errorf("forkd fork --from made %d sandboxes: %w", len(made), err)
	}
	return child{SandboxInfo: made[0]}, nil
}

func (r *run) wholly(ctx context.Context) (child, error) {
	start := time.Now()
	_, err := r.Forkd(ctx, r.cache(), "pull", r.ref(r.link.shaped), "--plain-http", "--tag", wholeTag)
	if err != nil {
		return child{}, err
	}
	took := time.Since(start)
	res, err := measure.Fork(ctx, r.Client, wholeTag, 1)
	if err != nil {
		return child{}, errors.Join(err, measure.Delete(ctx, r.Client, wholeTag, client.DeleteOptions{}))
	}
	return child{res.OK()[0], took}, nil
}
