package nodes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// Source lists the nodes of a cluster.
type Source interface {
	// Run calls changed with the whole list at the start and after each change, until ctx ends. A list that cannot be
	// read or is invalid is an error: the list before it stays in use.
	Run(ctx context.Context, changed func([]Entry, error))
}

// File is a list in a file, which is read again after each change.
type File struct {
	// Path is the path of the file.
	Path string
	// Every is the interval of looks at the file. Default 2 s.
	Every time.Duration
}

// Read returns the list.
func (f File) Read() ([]Entry, error) {
	text, err := f.text()
	if err != nil {
		return nil, err
	}
	return f.parse(text)
}

func (f File) parse(text []byte) ([]Entry, error) {
	list, err := Parse(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Path, err)
	}
	return list, nil
}

func (f File) text() ([]byte, error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, maxFile+1))
}

// Run implements Source. It compares the content, because Kubernetes replaces mounted files by links.
func (f File) Run(ctx context.Context, changed func([]Entry, error)) {
	every := f.Every
	if every <= 0 {
		every = 2 * time.Second
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last []byte
	lastErr := ""
	for {
		text, err := f.text()
		switch {
		case err != nil && err.Error() != lastErr:
			lastErr, last = err.Error(), nil
			changed(nil, err)
		case err == nil && (last == nil || !bytes.Equal(text, last)):
			last, lastErr = text, ""
			changed(f.parse(text))
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

var _ Source = File{}
