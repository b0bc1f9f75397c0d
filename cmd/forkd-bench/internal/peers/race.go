package peers

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/forkd/forkd/cmd/forkd-bench/internal/floor"
	"github.com/forkd/forkd/cmd/forkd-bench/internal/measure"
)

// Row is one peer's result (docs/inside/formats/json-output.md).
type Row struct {
	Peer          string  `json:"peer"`
	N             int     `json:"n"`
	OK            int     `json:"ok"` // guests with an answer
	StartedP50MS  float64 `json:"started_ms_p50,omitempty"`
	StartedMS     float64 `json:"started_ms,omitempty"` // of the last guest
	AnsweredP50MS float64 `json:"answered_ms_p50,omitempty"`
	AnsweredMS    float64 `json:"answered_ms,omitempty"` // of the last guest
	PSSKiB        int64   `json:"pss_kib,omitempty"`     // per guest
	// MemAvailableDeltaKiB is the decrease of the host's available memory per guest.
	MemAvailableDeltaKiB int64  `json:"mem_available_delta_kib,omitempty"`
	Reason               string `json:"reason,omitempty"` // why the peer did not run
}

// Race makes each peer start n guests, with as many in parallel as there are CPUs, one peer after
// the other. A peer's failure is reported in its row. Race returns an error only if ctx ends.
func Race(ctx context.Context, all []Peer, n int, say func(string)) ([]Row, error) {
	var rows []Row
	for _, p := range all {
		say("peer " + p.Name())
		r, err := run(ctx, p, n)
		if ctx.Err() != nil {
			return rows, context.Cause(ctx)
		}
		if r.Peer, r.N = p.Name(), n; err != nil {
			r.Reason = err.Error()
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func run(ctx context.Context, p Peer, n int) (r Row, err error) {
	if err := p.Available(); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := prepare(ctx, p); err != nil {
		return r, err
	}
	before, err := floor.ReadHost()
	if err != nil {
		return r, err
	}
	h := heat{peer: p, began: time.Now()}
	h.run(ctx, n)
	defer func() { err = errors.Join(err, h.close()) }()
	if r.OK = len(h.answered); r.OK == 0 {
		return r, errors.Join(h.errs...)
	}
	after, err := floor.ReadHost()
	if err != nil {
		return r, err
	}
	r.StartedP50MS, r.StartedMS = measure.Median(h.started), slices.Max(h.started)
	r.AnsweredP50MS, r.AnsweredMS = measure.Median(h.answered), slices.Max(h.answered)
	r.MemAvailableDeltaKiB = (before.MemAvailableKiB - after.MemAvailableKiB) / int64(len(h.guests))
	for _, g := range h.guests {
		r.PSSKiB += pssKiB(g.Processes()) / int64(len(h.guests))
	}
	return r, errors.Join(h.errs...)
}

// Limits of one peer's steps. A hanging peer must not delay the others.
const (
	prepareLimit = 2 * time.Minute
	guestLimit   = 30 * time.Second
)

func prepare(ctx context.Context, p Peer) error {
	ctx, cancel := context.WithTimeoutCause(ctx, prepareLimit, fmt.Errorf("not prepared within %s", prepareLimit))
	defer cancel()
	return p.Prepare(ctx)
}

// heat holds one peer's guests while they are started.
type heat struct {
	peer  Peer
	began time.Time

	mu                sync.Mutex // guards the fields below
	started, answered []float64  // milliseconds since began
	guests            []Guest
	errs              []error
}

func (h *heat) run(ctx context.Context, n int) {
	var wg sync.WaitGroup
	turns := make(chan struct{}, runtime.NumCPU())
	for i := range n {
		turns <- struct{}{}
		wg.Go(func() {
			defer func() { <-turns }()
			h.one(ctx, i)
		})
	}
	wg.Wait()
}

func (h *heat) one(ctx context.Context, i int) {
	if ctx.Err() != nil || h.failed() { // after one failure the next would fail, too
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, guestLimit, fmt.Errorf("no answer within %s", guestLimit))
	defer cancel()
	g, err := h.peer.Start(ctx, i)
	if err != nil {
		h.note(func() { h.errs = append(h.errs, err) })
		return
	}
	started := measure.Millis(time.Since(h.began))
	err = g.Ask(ctx)
	answered := measure.Millis(time.Since(h.began))
	h.note(func() {
		h.guests = append(h.guests, g)
		if err != nil {
			h.errs = append(h.errs, err)
			return
		}
		h.started, h.answered = append(h.started, started), append(h.answered, answered)
	})
}

func (h *heat) failed() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.errs) > 0
}

func (h *heat) note(do func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	do()
}

func (h *heat) close() error {
	var errs []error
	for _, g := range h.guests {
		errs = append(errs, g.Close())
	}
	return errors.Join(errs...)
}
