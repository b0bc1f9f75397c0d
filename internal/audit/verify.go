package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// Problem is a place where a log is not what was written.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // counted from 1; 0: it is about the whole file
	What string `json:"what"`
}

// Report is what a verification found.
type Report struct {
	OK       bool      `json:"ok"`
	Files    int       `json:"files"`
	Lines    uint64    `json:"lines"`
	First    uint64    `json:"first"` // numbers of the first and the last line that are there
	Last     Head      `json:"last"`
	Dropped  uint64    `json:"dropped"` // lines up to this one the log has removed itself, being the oldest
	Lost     uint64    `json:"lost"`    // entries that the disk did not take
	Torn     int       `json:"torn"`    // lines that were not written whole, and are told of
	Pending  bool      `json:"pending"` // the last line is being written, or was when its daemon ended
	Problems []Problem `json:"problems"`
}

// maxProblems bounds those that are listed: one change is one or two.
const maxProblems = 100

// Verify reads all of a log and compares it with its chain, with the head beside it and with heads
// that were noted earlier. An error means that it could not be read.
func Verify(ctx context.Context, path string, known ...Head) (Report, error) {
	for try := 1; ; try++ {
		r, err := verify(ctx, path, known)
		if !errors.Is(err, errOldestGone) || try == maxTries {
			return r, err
		}
	}
}

// maxTries is how often a log is read that removes its oldest files all the time.
const maxTries = 5

func verify(ctx context.Context, path string, known []Head) (Report, error) {
	v := verifier{ctx: ctx, path: path, known: known, beside: len(known)}
	v.report.Problems = []Problem{}
	head, there, err := readHead(path)
	switch {
	case err != nil:
		v.problem(path+headSuffix, 0, "%v", err)
	case !there:
		v.problem(path+headSuffix, 0, "it is not there: a cut at the end of the log would not show")
	default:
		v.known = append(v.known[:len(v.known):len(v.known)], head)
	}
	v.seen = make([]bool, len(v.known))
	if err := walk(path, 0, v.file); err != nil {
		return Report{}, err
	}
	v.end()
	v.report.OK = len(v.report.Problems) == 0
	return v.report, nil
}

type verifier struct {
	ctx    context.Context
	path   string
	known  []Head // the one beside the log last, if there is one
	beside int    // its index
	seen   []bool
	report Report

	name string
	line int
	last Head      // zero: no line was read yet
	torn hash.Hash // of what follows it and is none
	tore int       // in which line that begins
}

func (v *verifier) problem(file string, line int, format string, args ...any) {
	if len(v.report.Problems) < maxProblems {
		v.report.Problems = append(v.report.Problems, Problem{filepath.Base(file), line, fmt.Sprintf(format, args...)})
	}
}

func (v *verifier) file(f *os.File, current bool) error {
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	v.report.Files++
	v.name, v.line = f.Name(), 1
	end := true
	// Not what is written from now on: the rest of a line whose beginning was its file's end is no line.
	for s := newScanner(io.LimitReader(f, st.Size())); ; {
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		p, err := s.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		v.take(p)
		if end = p.end; end {
			v.line++
		}
	}
	switch {
	case v.torn != nil && current && !end:
		v.report.Pending = true
	case v.torn != nil:
		v.problem(v.name, v.tore, "it is not a line of the log, and none says why")
	}
	v.torn = nil
	return nil
}

// take goes on by a piece of a file.
func (v *verifier) take(p piece) {
	if !p.whole {
		if v.torn == nil {
			v.torn, v.tore = sha256.New(), v.line
		}
		v.torn.Write(p.raw)
		return
	}
	v.checkTorn(p.entry)
	here := Head{p.entry.Seq, hashOf(p.line)}
	v.checkChain(p.entry)
	for i, h := range v.known {
		if h.Seq != here.Seq {
			continue
		}
		if v.seen[i] = true; h.Hash != here.Hash {
			v.problem(v.name, v.line, "line %d is not the one that the head %s knows", h.Seq, v.nameOf(i))
		}
	}
	v.last = here
	v.report.Lines++
	v.report.Last = here
	v.report.Lost += p.entry.Lost
	if p.entry.Action == ActionRolled {
		v.report.Dropped = max(v.report.Dropped, p.entry.Dropped)
	}
}

// checkTorn compares what is no line with what the next line says of it.
func (v *verifier) checkTorn(e Entry) {
	switch {
	case e.Action == ActionTorn && v.torn != nil && hex.EncodeToString(v.torn.Sum(nil)) == e.Torn:
		v.report.Torn++
	case v.torn != nil:
		v.problem(v.name, v.tore, "it is not a line of the log, and none says why")
	case e.Action == ActionTorn:
		v.problem(v.name, v.line, "what this line says was not written whole is not there")
	}
	v.torn = nil
}

// checkChain compares a line with the one before.
func (v *verifier) checkChain(e Entry) {
	switch {
	case v.last.Seq == 0:
		v.report.First = e.Seq
		if e.Seq == 1 && e.Prev != Zero {
			v.problem(v.name, v.line, "line 1 names a line before it")
		}
	case e.Prev != v.last.Hash:
		v.problem(v.name, v.line,
			"line %d does not follow from line %d before it: one of them was changed, or some were removed or added",
			e.Seq, v.last.Seq)
	case e.Seq != v.last.Seq+1 && e.Action != ActionCut:
		v.problem(v.name, v.line, "line %d follows line %d", e.Seq, v.last.Seq)
	}
	if e.Action == ActionCut {
		v.problem(v.name, v.line, "the daemon found at its start: %s", e.Note)
	}
}

func (v *verifier) nameOf(i int) string {
	if i == v.beside {
		return "beside the log"
	}
	return v.known[i].String()
}

// end looks whether anything is missing at the log's ends.
func (v *verifier) end() {
	if v.report.First > v.report.Dropped+1 {
		v.problem(v.path, 0, "lines %d to %d are missing: the log did not remove them itself",
			v.report.Dropped+1, v.report.First-1)
	}
	for i, h := range v.known {
		switch {
		case v.seen[i] || h.Seq < v.report.First:
		case h.Seq > v.last.Seq:
			v.problem(v.path, 0, "lines %d to %d are missing: the head %s knows them", v.last.Seq+1, h.Seq, v.nameOf(i))
		default:
			v.problem(v.path, 0, "line %d is missing: the head %s knows it", h.Seq, v.nameOf(i))
		}
	}
}
