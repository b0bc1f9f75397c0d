// Package support writes bundles for bug reports: a tar.gz of texts without secrets. It owns the
// removal of secrets, the limits of sizes and times, and the list of files. The caller collects the
// parts. The trap: Parts run at the same time, and a part that exceeds its time limit continues
// alone; its later files are dropped.
package support

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"
)

// Limits of a bundle.
const (
	FileBytes  = 4 << 20  // of one file, after the removal of secrets
	TotalBytes = 64 << 20 // of all files
	PartTime   = 10 * time.Second
)

// maxErrors limits errors.txt.
const maxErrors = 1 << 20

// Part is one source of a bundle.
type Part struct {
	Name    string // in progress messages and errors.txt
	Collect func(ctx context.Context, to *Sink) error
}

// Options are the settings of Write.
type Options struct {
	Parts    []Part
	Redactor *Redactor
	Version  string    // of the program
	Now      time.Time // time of the bundle
	// Began and Ended are called for each part, at most one call at a time. Ended receives the
	// error of the part, without secrets. Both may be nil.
	Began func(part string)
	Ended func(part, failure string)

	PartTime time.Duration // limit of each part; 0: the constant PartTime
}

// Entry describes a file of the bundle.
type Entry struct {
	Name  string `json:"name"`
	Bytes int    `json:"bytes"`
	// Truncated means that a part of the text is missing: the beginning of a log, or the end of
	// another file.
	Truncated bool `json:"truncated,omitempty"`
}

// Manifest describes the bundle. It is its first file.
type Manifest struct {
	Version int       `json:"version"`
	Created time.Time `json:"created"`
	Forkd   string    `json:"forkd"`
	Limits  struct {
		FileBytes   int     `json:"file_bytes"`
		TotalBytes  int     `json:"total_bytes"`
		PartSeconds float64 `json:"part_seconds"`
	} `json:"limits"`
	Note   string   `json:"note"`
	Files  []Entry  `json:"files"`
	Errors []string `json:"errors"`
}

const note = "Secrets, guest environments, program arguments and file contents are left out, or replaced by " +
	Removed + ". Texts above the limit of a file are truncated: logs at the beginning, other files at the end."

// Write collects the parts, removes secrets and writes the bundle.
func Write(ctx context.Context, out io.Writer, opt Options) (Manifest, error) {
	limit := cmp.Or(opt.PartTime, PartTime)
	files, failures := collect(ctx, opt, limit)
	if err := ctx.Err(); err != nil {
		return Manifest{}, err
	}
	m := Manifest{Version: 1, Created: opt.Now.UTC(), Forkd: opt.Version, Note: note,
		Files: []Entry{}, Errors: []string{}}
	m.Limits.FileBytes, m.Limits.TotalBytes, m.Limits.PartSeconds = FileBytes, TotalBytes, limit.Seconds()
	files, clean := opt.Redactor.files(files)
	failures = append(failures, clean...)
	var keep []file
	total := 0
	for _, f := range files {
		text, cut := f.fit(FileBytes)
		if total += len(text); total > TotalBytes-maxErrors {
			failures = append(failures, f.name+": left out: the bundle is full")
			total -= len(text)
			continue
		}
		f.text = text
		keep = append(keep, f)
		m.Files = append(m.Files, Entry{f.name, len(text), cut || f.cut})
	}
	for _, line := range failures {
		m.Errors = append(m.Errors, opt.Redactor.Text(line))
	}
	errorsText := strings.Join(m.Errors, "\n") + "\n"
	if len(m.Errors) == 0 {
		errorsText = ""
	}
	errorsText, cut := file{text: errorsText}.fit(maxErrors)
	m.Files = append(m.Files, Entry{"errors.txt", len(errorsText), cut})
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return m, err
	}
	first, last := file{name: "manifest.json", text: string(head) + "\n"}, file{name: "errors.txt", text: errorsText}
	return m, archive(out, opt.Now, slices.Concat([]file{first}, keep, []file{last}))
}

// collect runs the parts at the same time. The files are in the order of the parts.
func collect(ctx context.Context, opt Options, limit time.Duration) (files []file, failures []string) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var told sync.Mutex // serializes Began and Ended
	tell := func(f func()) {
		told.Lock()
		defer told.Unlock()
		f()
	}
	sinks := make([]*Sink, len(opt.Parts))
	var all sync.WaitGroup
	for i, p := range opt.Parts {
		sinks[i] = &Sink{}
		if opt.Began != nil {
			tell(func() { opt.Began(p.Name) })
		}
		all.Go(func() {
			failure := ""
			if err := within(ctx, limit, p, sinks[i]); err != nil {
				failure = strings.ReplaceAll(err.Error(), "\n", "; ")
				sinks[i].fail(p.Name + ": " + failure)
			}
			sinks[i].close()
			if opt.Ended != nil {
				tell(func() { opt.Ended(p.Name, opt.Redactor.Text(failure)) })
			}
		})
	}
	all.Wait()
	for _, s := range sinks {
		f, e := s.content()
		files, failures = append(files, f...), append(failures, e...)
	}
	return files, failures
}

// within collects a part until ctx ends. A part that ignores ctx, such as a read from a hanging file
// system, is abandoned.
func within(ctx context.Context, limit time.Duration, p Part, to *Sink) error {
	ended := make(chan error, 1)
	go func() { ended <- p.Collect(ctx, to) }()
	select {
	case err := <-ended:
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("stopped after %s: %w", limit, err)
		}
		return err
	case <-ctx.Done():
	}
	select { // a part that obeys ctx ends now, and its error is more precise
	case err := <-ended:
		return fmt.Errorf("stopped after %s: %w", limit, cmp.Or(err, ctx.Err()))
	case <-time.After(min(limit, 200*time.Millisecond)):
		return fmt.Errorf("stopped after %s", limit)
	}
}

func archive(out io.Writer, now time.Time, files []file) error {
	zipped := gzip.NewWriter(out)
	w := tar.NewWriter(zipped)
	folder := "forkd-support-" + now.UTC().Format("20060102-150405")
	for _, f := range files {
		err := w.WriteHeader(&tar.Header{Name: path.Join(folder, f.name), Mode: 0o600, Size: int64(len(f.text)),
			ModTime: now, Typeflag: tar.TypeReg})
		if err != nil {
			return err
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return zipped.Close()
}
