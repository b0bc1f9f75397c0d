package main

import "time"

// sizeChanges reports when the terminal's size may have changed. A console sends no signal, so it
// ticks twice a second.
func sizeChanges() (changed <-chan time.Time, stop func()) {
	t := time.NewTicker(time.Second / 2)
	return t.C, t.Stop
}
