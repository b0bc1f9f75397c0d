// Package e2bbench measures the E2B API beside the native API, in turn and in one run: the time
// from the request for a sandbox to its first answer, with several sandboxes in parallel. It owns
// the laps and the figures. The caller provides the daemon and its snapshots. `forkd-bench e2b`
// calls it.
package e2bbench

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/forkd/forkd/api"
	"github.com/forkd/forkd/client"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
	"github.com/forkd/forkd/cmd/internal/e2bwire"
)

// Config holds the parameters of the measurement.
type Config struct {
	E2B    *e2bwire.Client
	Native *client.Client
	Tag    string // the snapshot, which is also the E2B template
	Code   bool   // the snapshot has a code interpreter: run_code("1+1") is measured instead of a command
	AtOnce []int  // numbers of sandboxes requested in parallel, one figure each
	Rounds int    // rounds per number, E2B and native in turn
	Say    func(string)
}

// Figures holds the times for one number of parallel sandboxes, in milliseconds.
type Figures struct {
	AtOnce int    `json:"at_once"`
	What   string `json:"what"` // command or code
	Rounds int    `json:"rounds"`
	// FirstP50MS and FirstP99MS are the time from the request for a sandbox to its first answer.
	FirstP50MS float64 `json:"first_ms_p50"`
	FirstP99MS float64 `json:"first_ms_p99"`
	// CreateP50MS is the time of the create call alone.
	CreateP50MS float64 `json:"create_ms_p50"`
	// NativeP50MS and NativeP99MS are the time of a fork and an exec by the native API. They are 0
	// for code.
	NativeP50MS float64 `json:"native_ms_p50,omitempty"`
	NativeP99MS float64 `json:"native_ms_p99,omitempty"`
	// Ratio is the E2B median divided by the native median.
	Ratio float64 `json:"ratio,omitempty"`
	// ControlP50MS and ControlP99MS are the time of a request answered by the control API itself.
	ControlP50MS float64 `json:"control_ms_p50"`
	ControlP99MS float64 `json:"control_ms_p99"`
	// RequestP50MS is the floor of ControlP50MS: a request over the same connection, but not to the
	// control API.
	RequestP50MS float64 `json:"request_ms_p50"`
}

// sample holds the times of one sandbox, in milliseconds.
type sample struct{ create, first, control, request float64 }

// Run measures one number of sandboxes after the other. The first lap of each does not count.
func Run(ctx context.Context, cfg Config) ([]Figures, error) {
	var out []Figures
	for _, n := range cfg.AtOnce {
		var theirs, ours []sample
		for round := range cfg.Rounds + 1 {
			cfg.Say(fmt.Sprintf("%d at once, round %d of %d ...", n, round, cfg.Rounds))
			e2b, err := lap(ctx, n, cfg.theirs)
			if err != nil {
				return nil, err
			}
			var native []sample
			if !cfg.Code {
				if native, err = lap(ctx, n, cfg.ours); err != nil {
					return nil, err
				}
			}
			if round > 0 {
				theirs, ours = append(theirs, e2b...), append(ours, native...)
			}
		}
		out = append(out, cfg.figures(n, theirs, ours))
	}
	return out, nil
}

func (cfg Config) figures(n int, theirs, ours []sample) Figures {
	of := func(all []sample, field func(sample) float64, q float64) float64 {
		var values []float64
		for _, s := range all {
			values = append(values, field(s))
		}
		if len(values) == 0 {
			return 0
		}
		return measure.Quantile(values, q)
	}
	first := func(s sample) float64 { return s.first }
	control := func(s sample) float64 { return s.control }
	f := Figures{AtOnce: n, What: "command", Rounds: cfg.Rounds,
		FirstP50MS: of(theirs, first, 0.5), FirstP99MS: of(theirs, first, 0.99),
		CreateP50MS: of(theirs, func(s sample) float64 { return s.create }, 0.5),
		NativeP50MS: of(ours, first, 0.5), NativeP99MS: of(ours, first, 0.99),
		ControlP50MS: of(theirs, control, 0.5), ControlP99MS: of(theirs, control, 0.99),
		RequestP50MS: of(theirs, func(s sample) float64 { return s.request }, 0.5)}
	if cfg.Code {
		f.What = "code"
	}
	if f.NativeP50MS > 0 {
		f.Ratio = f.FirstP50MS / f.NativeP50MS
	}
	return f
}

// lap makes n sandboxes in parallel.
func lap(ctx context.Context, n int, one func(context.Context) (sample, error)) ([]sample, error) {
	out := make([]sample, n)
	all, ctx := errgroup.WithContext(ctx)
	for i := range n {
		all.Go(func() error {
			var err error
			out[i], err = one(ctx)
			return err
		})
	}
	return out, all.Wait()
}

func since(t time.Time) float64 { return float64(time.Since(t)) / float64(time.Millisecond) }

// theirs measures one sandbox of the E2B API, from the request to its end.
func (cfg Config) theirs(ctx context.Context) (_ sample, err error) {
	var s sample
	began := time.Now()
	made, err := cfg.E2B.Create(ctx, cfg.Tag, 600)
	if err != nil {
		return s, err
	}
	defer func() { err = cmp.Or(err, cfg.E2B.Kill(context.WithoutCancel(ctx), made)) }()
	s.create = since(began)
	said, want := "", "2"
	if cfg.Code {
		said, err = cfg.E2B.Code(ctx, made, "1+1")
	} else {
		said, err = cfg.E2B.Run(ctx, made, line)
	}
	s.first = since(began)
	if err == nil && strings.TrimSpace(said) != want {
		err = fmt.Errorf("sandbox %s answers %q, want %q", made.ID, said, want)
	}
	if err != nil {
		return s, err
	}
	var idle float64 // the first request after a while measures the connection, not the control API
	health := func() error { return cfg.E2B.Health(ctx) }
	for _, request := range []struct {
		took *float64
		do   func() error
	}{{&idle, health}, {&s.request, health},
		{&s.control, func() error { return cfg.E2B.Info(ctx, made) }}} {
		began = time.Now()
		if err := request.do(); err != nil {
			return s, err
		}
		*request.took = since(began)
	}
	return s, nil
}

// line is the command, run in the same way as by the E2B packages.
const line = "echo 2"

// ours measures one sandbox of the native API with the same command and the same network.
func (cfg Config) ours(ctx context.Context) (_ sample, err error) {
	var s sample
	began := time.Now()
	made, err := cfg.Native.Fork(ctx, api.CreateSandboxesRequest{SnapshotTag: cfg.Tag,
		Network: &api.NetworkPolicy{Default: "public"}})
	if err != nil {
		return s, err
	}
	id := made.Sandboxes[0].ID
	defer func() { err = cmp.Or(err, cfg.Native.Kill(context.WithoutCancel(ctx), id)) }()
	s.create = since(began)
	ran, err := cfg.Native.Exec(ctx, id, api.ExecRequest{Args: []string{"/bin/bash", "-l", "-c", line}})
	s.first = since(began)
	if err == nil && strings.TrimSpace(ran.Stdout) != "2" {
		err = fmt.Errorf("sandbox %s answers %q", id, ran.Stdout)
	}
	return s, err
}
