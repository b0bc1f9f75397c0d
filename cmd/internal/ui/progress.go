package ui

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Progress shows the steps of a long operation: bars and spinners on a terminal, plain lines
// elsewhere, and no output with --quiet. End must be called.
type Progress struct {
	shows display
	mu    sync.Mutex // guards the fields below
	steps map[string]*step
}

type step struct {
	began time.Time
	done  bool
	bar   *mpb.Bar
}

// display is one way to show steps.
type display interface {
	begin(name string, s *step)
	update(s *step, fraction float64)
	done(name string, s *step, detail string)
	output(text string)
	end()
}

// Progress starts a display of steps.
func (p *Printer) Progress() *Progress {
	g := &Progress{steps: map[string]*step{}}
	switch {
	case p.Quiet:
		g.shows = silence{}
	case Terminal(p.Err):
		g.shows = &bars{mpb.New(mpb.WithOutput(p.Err), mpb.WithWidth(barWidth), mpb.WithRefreshRate(refresh))}
	default:
		g.shows = lines{p.Err}
	}
	return g
}

// Step sets the progress of a step. fraction is 0 to 1, or -1 if it is not known.
func (g *Progress) Step(name string, fraction float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shows.update(g.stepLocked(name), fraction)
}

// Done ends a step. detail describes its result.
func (g *Progress) Done(name, detail string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stepLocked(name)
	if !s.done {
		s.done = true
		g.shows.done(name, s, detail)
	}
}

// Output shows output of a program of the running step, cleaned.
func (g *Progress) Output(text string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shows.output(CleanLines(text))
}

func (g *Progress) stepLocked(name string) *step {
	s, ok := g.steps[name]
	if !ok {
		s = &step{began: time.Now()}
		g.steps[name] = s
		g.shows.begin(name, s)
	}
	return s
}

// End removes the display. Unfinished steps stay unfinished.
func (g *Progress) End() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, s := range g.steps {
		if s.bar != nil && !s.done {
			s.bar.Abort(false)
		}
	}
	g.shows.end()
}

type silence struct{}

func (silence) begin(string, *step)        {}
func (silence) update(*step, float64)      {}
func (silence) done(string, *step, string) {}
func (silence) output(string)              {}
func (silence) end()                       {}

// lines is for logs: one line when a step begins, one when it ends.
type lines struct{ w io.Writer }

func (l lines) begin(name string, _ *step) { fmt.Fprintf(l.w, "%s ...\n", name) }
func (lines) update(*step, float64)        {}
func (l lines) output(text string)         { fmt.Fprint(l.w, text) }
func (lines) end()                         {}
func (l lines) done(name string, _ *step, detail string) {
	if detail == "" {
		detail = "done"
	}
	fmt.Fprintf(l.w, "%s: %s\n", name, detail)
}

// scale is the resolution of a bar.
const scale = 1000

// bars is for terminals.
type bars struct{ pool *mpb.Progress }

func (b *bars) begin(name string, s *step) {
	s.bar = b.pool.AddBar(scale,
		mpb.PrependDecorators(decor.Name(Clean(name), decor.WCSyncSpaceR)),
		// The elapsed time stops when the bar is complete.
		mpb.AppendDecorators(decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace)),
	)
}

func (b *bars) update(s *step, fraction float64) {
	if fraction > 0 && !s.done {
		s.bar.SetCurrent(min(int64(fraction*scale), scale-1))
	}
}

// output is printed above the bars, which mpb moves down. It prints whole lines.
func (b *bars) output(text string) { fmt.Fprintln(b.pool, strings.TrimSuffix(text, "\n")) }

func (b *bars) done(_ string, s *step, _ string) { s.bar.SetCurrent(scale) }
func (b *bars) end()                             { b.pool.Wait() }
