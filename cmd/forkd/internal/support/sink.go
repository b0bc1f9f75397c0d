package support

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"sync"
)

// kind is the form of a file's text. It decides how secrets are found in it.
type kind int

const (
	plain   kind = iota
	logText      // the end is more important than the beginning
	jsonText
	yamlText
)

type file struct {
	name string
	kind kind
	text string
	cut  bool // a part of the source is missing
}

// slack is read beyond the limit of a file, since the removal of secrets shortens a text.
const slack = 64 << 10

// Sink receives the files of a part. After the part's time limit it drops them.
type Sink struct {
	mu       sync.Mutex // guards the fields below
	closed   bool
	files    []file
	failures []string
}

func (s *Sink) add(f file) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.files = append(s.files, f)
	}
}

func (s *Sink) fail(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.failures = append(s.failures, line)
	}
}

func (s *Sink) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
}

func (s *Sink) content() ([]file, []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files, s.failures
}

// Failed adds a line to errors.txt.
func (s *Sink) Failed(source string, err error) { s.fail(source + ": " + err.Error()) }

// Text adds a text.
func (s *Sink) Text(name, text string) { s.add(file{name: name, text: text}) }

// JSON adds a value as indented JSON, without the values of secret fields.
func (s *Sink) JSON(name string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	s.add(file{name: name, kind: jsonText, text: string(b)})
	return nil
}

// JSONFile adds a JSON file of this host. A larger file than FileBytes is an error.
func (s *Sink) JSONFile(name string, open Opener) error { return s.whole(name, jsonText, open) }

// YAMLFile adds a YAML file of this host, without its comments.
func (s *Sink) YAMLFile(name string, open Opener) error { return s.whole(name, yamlText, open) }

func (s *Sink) whole(name string, k kind, open Opener) error {
	text, cut, err := read(open, false)
	if err == nil && cut {
		err = fmt.Errorf("larger than %d bytes", FileBytes)
	}
	if err != nil {
		return err
	}
	s.add(file{name: name, kind: k, text: text})
	return nil
}

// LogFile adds the end of a log file of this host.
func (s *Sink) LogFile(name string, open Opener) error {
	text, cut, err := read(open, true)
	if err != nil {
		return err
	}
	s.add(file{name: name, kind: logText, text: text, cut: cut})
	return nil
}

// Command adds the output of a program. The program's name must be fixed: it is run without a shell.
func (s *Sink) Command(ctx context.Context, name string, program string, args ...string) error {
	at, err := exec.LookPath(program)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, at, args...) // #nosec G204 -- the callers' names and arguments are constants
	var failed strings.Builder
	out := &end{limit: FileBytes + slack}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, &failed, PartTime/10
	if err := cmd.Run(); err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(failed.String()), "\n")
		return fmt.Errorf("%s: %w: %s", program, err, first)
	}
	text := string(out.b)
	if out.cut {
		text = wholeLines(text)
	}
	s.add(file{name: name, kind: logText, text: text, cut: out.cut})
	return nil
}

// end is a writer that keeps the end of its input.
type end struct {
	limit int
	b     []byte
	cut   bool
}

func (e *end) Write(p []byte) (int, error) {
	e.b = append(e.b, p...)
	if len(e.b) > 2*e.limit {
		e.b, e.cut = append([]byte(nil), e.b[len(e.b)-e.limit:]...), true
	}
	return len(p), nil
}

// Opener opens a file of this host.
type Opener func() (*os.File, error)

// Path returns an Opener for a path.
func Path(path string) Opener { return func() (*os.File, error) { return openFile(path) } }

// In returns an Opener for a path below a directory. Links cannot lead out of the directory.
func In(root *os.Root, name string) Opener {
	return func() (*os.File, error) {
		st, err := root.Lstat(name)
		if err != nil {
			return nil, err
		}
		if !st.Mode().IsRegular() {
			return nil, &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
		}
		return root.OpenFile(name, os.O_RDONLY|nonblock, 0)
	}
}

var errNotRegular = errors.New("not a regular file")

// read reads the beginning or the end of a regular file. A cut text consists of whole lines.
func read(open Opener, tail bool) (text string, cut bool, err error) {
	f, err := open()
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	if !st.Mode().IsRegular() {
		return "", false, &fs.PathError{Op: "read", Path: f.Name(), Err: errNotRegular}
	}
	const most = FileBytes + slack
	from := int64(0)
	if tail {
		from = max(0, st.Size()-most)
	}
	b, err := io.ReadAll(io.NewSectionReader(f, from, most))
	text = string(b)
	switch {
	case err != nil:
		return "", false, err
	case from > 0:
		return wholeLines(text), true, nil
	}
	return text, st.Size() > most, nil
}

// wholeLines drops the first line, which may be cut in a secret.
func wholeLines(text string) string {
	_, text, _ = strings.Cut(text, "\n")
	return text
}

// fit cuts a text to whole lines of at most limit bytes.
func (f file) fit(limit int) (text string, cut bool) {
	text = f.text
	switch {
	case len(text) <= limit:
		return text, false
	case f.kind == logText:
		return wholeLines(text[len(text)-limit-1:]), true
	}
	text = text[:limit]
	return text[:strings.LastIndexByte(text, '\n')+1], true
}
