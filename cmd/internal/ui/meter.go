package ui

import (
	"fmt"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// Meter shows how much of something has come: a bar on a terminal, nothing elsewhere or with --quiet. Its methods may
// be called from several goroutines. End must be called.
type Meter struct {
	printer *Printer
	pool    *mpb.Progress // nil: nothing is shown
	bar     *mpb.Bar

	mu   sync.Mutex // guards what follows
	done int64
	all  int64 // 0: not known

}

// Meter starts a display. words turns what has come of all into text; all is 0 while it is not known.
func (p *Printer) Meter(name string, words func(done, all int64) string) *Meter {
	m := &Meter{printer: p}
	if !p.Quiet && Terminal(p.Err) {
		m.show(name, mpb.BarStyle(), barWidth, words)
	}
	return m
}

// Busy starts a display of something whose end is not known: a spinner, the text and the time.
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

// Add tells that n more have come.
func (m *Meter) Add(n int64) {
	m.mu.Lock()
	m.done += n
	done := m.done
	m.mu.Unlock()
	if m.bar != nil {
		m.bar.SetCurrent(done)
	}
}

// Set tells how much has come, of all.
func (m *Meter) Set(done, all int64) {
	if _, before := m.state(); before != all {
		m.Total(all)
	}
	before, _ := m.state()
	m.Add(done - before)
}

// Total tells how much there is in all.
func (m *Meter) Total(all int64) {
	m.mu.Lock()
	m.all = all
	m.mu.Unlock()
	if m.bar != nil {
		m.bar.SetTotal(all+1, false) // the end is End's to tell
	}
}

// Note is Printer.Note beside the display.
func (m *Meter) Note(format string, args ...any) {
	if m.pool == nil {
		m.printer.Note(format, args...)
		return
	}
	fmt.Fprintf(m.pool, format+"\n", args...)
}

// End takes the display down.
func (m *Meter) End() {
	if m.pool == nil {
		return
	}
	m.bar.Abort(true)
	m.pool.Wait()
	m.pool = nil
}
