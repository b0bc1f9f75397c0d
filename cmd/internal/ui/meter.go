package ui

import (
	"fmt"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Meter shows progress: a bar on a terminal, and no output elsewhere or with --quiet. Several
// goroutines may call its methods. End must be called.
type Meter struct {
	printer *Printer
	pool    *mpb.Progress // if nil, there is no display
	bar     *mpb.Bar

	mu   sync.Mutex // guards the fields below
	done int64
	all  int64 // 0: not known
}

// Meter starts a display. words formats the progress. all is 0 while it is not known.
func (p *Printer) Meter(name string, words func(done, all int64) string) *Meter {
	m := &Meter{printer: p}
	if !p.Quiet && Terminal(p.Err) {
		m.show(name, mpb.BarStyle(), barWidth, words)
	}
	return m
}

// Busy starts a display without a known end: a spinner, the text and the time.
func (p *Printer) Busy(name, text string) *Meter {
	m := &Meter{printer: p}
	if !p.Quiet && Terminal(p.Err) {
		m.show(name, mpb.SpinnerStyle(), 1, func(int64, int64) string { return text })
	}
	return m
}

func (m *Meter) show(name string, style mpb.BarFillerBuilder, width int, words func(done, all int64) string) {
	m.pool = mpb.New(mpb.WithOutput(m.printer.Err), mpb.WithWidth(width), mpb.WithRefreshRate(refresh))
	m.bar = m.pool.New(0, style, mpb.BarRemoveOnComplete(),
		mpb.PrependDecorators(decor.Name(Clean(name), decor.WCSyncSpaceR)),
		mpb.AppendDecorators(
			decor.Any(func(decor.Statistics) string { return " " + Clean(words(m.state())) }),
			decor.Elapsed(decor.ET_STYLE_GO, decor.WCSyncSpace),
		))
}

const (
	barWidth = 32
	refresh  = 120 * time.Millisecond
)

func (m *Meter) state() (done, all int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done, m.all
}

// Add adds n to the progress.
func (m *Meter) Add(n int64) {
	m.mu.Lock()
	m.done += n
	done := m.done
	m.mu.Unlock()
	if m.bar != nil {
		m.bar.SetCurrent(done)
	}
}

// Set sets the progress and the total.
func (m *Meter) Set(done, all int64) {
	if _, before := m.state(); before != all {
		m.Total(all)
	}
	before, _ := m.state()
	m.Add(done - before)
}

// Total sets the total.
func (m *Meter) Total(all int64) {
	m.mu.Lock()
	m.all = all
	m.mu.Unlock()
	if m.bar != nil {
		m.bar.SetTotal(all+1, false) // End marks the end
	}
}

// Note prints a note, like Printer.Note, next to the display.
func (m *Meter) Note(format string, args ...any) {
	if m.pool == nil {
		m.printer.Note(format, args...)
		return
	}
	fmt.Fprintf(m.pool, format+"\n", args...)
}

// End removes the display.
func (m *Meter) End() {
	if m.pool == nil {
		return
	}
	m.bar.Abort(true)
	m.pool.Wait()
	m.pool = nil
}
