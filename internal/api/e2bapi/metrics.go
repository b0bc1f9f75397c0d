package e2bapi

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/forkd/forkd/internal/api/e2bapi/target"
)

// sample is the use of resources by a sandbox at one moment. Sizes are in bytes.
type sample struct {
	Time      time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPUs      int       `json:"cpuCount"`
	CPUPct    float64   `json:"cpuUsedPct"`
	MemUsed   int64     `json:"memUsed"`
	MemTotal  int64     `json:"memTotal"`
	MemCache  int64     `json:"memCache"`
	DiskUsed  int64     `json:"diskUsed"`
	DiskTotal int64     `json:"diskTotal"`
}

const (
	// sampleEvery is the shortest time between two samples. Samples are taken on request only, so
	// that idle guests are not woken.
	sampleEvery = 5 * time.Second
	maxSamples  = 720
	sampleTime  = 3 * time.Second

	// For one request about many sandboxes: the number of concurrent measurements, the time for
	// each, and the time for all together.
	askedAtOnce = 16
	timeOfEach  = 2 * time.Second
	timeOfMany  = 5 * time.Second
)

// history stores the samples of each sandbox, oldest first. The zero value is ready.
type history struct {
	mu  sync.Mutex
	all map[string][]sample
}

func (s *history) add(id string, m sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string][]sample{}
	}
	had := s.all[id]
	s.all[id] = append(had[max(0, len(had)+1-maxSamples):], m)
}

// stale reports whether another sample is due.
func (s *history) stale(id string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.all[id]
	return len(had) == 0 || now.Sub(had[len(had)-1].Time) >= sampleEvery
}

func (s *history) between(id string, from, to time.Time) []sample {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []sample{}
	for _, m := range s.all[id] {
		if !m.Time.Before(from) && !m.Time.After(to) {
			out = append(out, m)
		}
	}
	return out
}

func (s *history) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.all, id)
}

// usage serves metrics and logs of sandboxes.
type usage struct{ h *Handler }

// metrics is GET /sandboxes/{id}/metrics.
func (u usage) metrics(c call) (answer, error) {
	from, to := time.Unix(0, 0), u.h.opt.Now().Add(time.Minute)
	for name, at := range map[string]*time.Time{"start": &from, "end": &to} {
		if s := c.URL.Query().Get(name); s != "" {
			n, err := strconv.ParseInt(s, 10, 64)
			if err != nil || n < 0 || n > 1<<40 {
				return answer{}, invalidf("%s: want seconds since 1970", name)
			}
			*at = time.Unix(n, 0)
		}
	}
	k, err := u.h.find(c)
	if err != nil {
		return answer{}, err
	}
	u.measure(c.ctx, k, sampleTime)
	return answer{http.StatusOK, u.h.history.between(k.info.ID, from, to.Add(time.Second-1))}, nil
}

// metricsOfMany is GET /sandboxes/metrics. It returns the latest sample of each sandbox. Guests
// that do not answer in time have no new sample.
func (u usage) metricsOfMany(c call) (answer, error) {
	out := map[string]sample{}
	ids := strings.Split(c.URL.Query().Get("sandbox_ids"), ",")
	if len(ids) > 100 {
		return answer{}, invalidf("sandbox_ids: want at most 100")
	}
	found := map[string]known{}
	for _, id := range ids {
		if k, err := u.h.findID(c, target.ID(id)); err == nil {
			found[id] = k
		}
	}
	u.measureMany(c.ctx, found)
	for id, k := range found {
		if all := u.h.history.between(k.info.ID, time.Unix(0, 0), u.h.opt.Now().Add(time.Minute)); len(all) > 0 {
			out[id] = all[len(all)-1]
		}
	}
	return answer{http.StatusOK, map[string]any{"sandboxes": out}}, nil
}

// measureMany measures a limited number of guests at a time, in limited time.
func (u usage) measureMany(ctx context.Context, all map[string]known) {
	ctx, cancel := context.WithTimeout(ctx, timeOfMany)
	defer cancel()
	var asking sync.WaitGroup
	defer asking.Wait()
	turns := make(chan struct{}, askedAtOnce)
	for _, k := range all {
		select {
		case turns <- struct{}{}:
		case <-ctx.Done():
			return
		}
		asking.Go(func() {
			defer func() { <-turns }()
			u.measure(ctx, k, timeOfEach)
		})
	}
}

// measure takes a sample if the last one is old. A guest that does not answer in time gets no
// sample.
func (u usage) measure(ctx context.Context, k known, limit time.Duration) {
	now := u.h.opt.Now()
	if stateOf(k.info) != stateRunning || !u.h.history.stale(k.info.ID, now) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	m, err := u.ask(ctx, k.info.ID)
	if err != nil {
		u.h.opt.Log.Debug("measure sandbox", "sandbox", k.info.ID, "error", err)
		return
	}
	m.Time, m.Unix = now.UTC(), now.Unix()
	u.h.history.add(k.info.ID, m)
}

// ask requests a measurement from the guest's agent. The values are untrusted and only passed on.
func (u usage) ask(ctx context.Context, id string) (sample, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+id+"/metrics", nil)
	if err != nil {
		return sample{}, err
	}
	resp, err := u.h.envd.transport.RoundTrip(r)
	if err != nil {
		return sample{}, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return sample{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return sample{}, fmt.Errorf("the agent answered %d", resp.StatusCode)
	}
	var m struct {
		CPUs      int     `json:"cpu_count"`
		CPUPct    float64 `json:"cpu_used_pct"`
		MemTotal  int64   `json:"mem_total"`
		MemUsed   int64   `json:"mem_used"`
		MemCache  int64   `json:"mem_cache"`
		DiskUsed  int64   `json:"disk_used"`
		DiskTotal int64   `json:"disk_total"`
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return sample{}, err
	}
	return sample{CPUs: m.CPUs, CPUPct: m.CPUPct, MemUsed: m.MemUsed, MemTotal: m.MemTotal, MemCache: m.MemCache,
		DiskUsed: m.DiskUsed, DiskTotal: m.DiskTotal}, nil
}
