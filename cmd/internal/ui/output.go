package ui

import (
	"os"
	"sync"
)

// Output is a program's standard output. It remembers the first failed write. A command with lost
// results then ends with an error, even if a printer ignored it.
type Output struct {
	*os.File

	mu  sync.Mutex // guards err
	err error
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	n, err := o.File.Write(p)
	if err != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.err == nil {
			o.err = err
		}
	}
	return n, err
}

// Err returns the first error of a write, or nil if all output was written.
func (o *Output) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
