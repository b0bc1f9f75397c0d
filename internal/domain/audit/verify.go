package audit

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Problem is a place where a log differs from the lines written.
type Problem struct {
	File string `json:"file"`
	Line int    `json:"line,omitempty"` // counted from 1; 0 if it concerns the whole file
	What string `json:"what"`
}

// Report is the result of a verification.
type Report struct {
	// OK is true if all existing lines are unchanged.
	OK bool `json:"ok"`
	// Status is "whole", "dropped" (lines of changes were removed because their chain was full) or "changed".
	Status   Status        `json:"status"`
	Files    int           `json:"files"`
	Lines    uint64        `json:"lines"`   // of all chains
	First    uint64        `json:"first"`   // number of the first chain's first line
	Last     Head          `json:"last"`    // of the first chain
	Dropped  uint64        `json:"dropped"` // the first chain removed its oldest lines, up to this one
	Lost     uint64        `json:"lost"`    // entries lost because of the disk
	Torn     int           `json:"torn"`    // incomplete lines that the log has recorded
	Pending  bool          `json:"pending"` // the last line is being written, or was when its daemon ended
	Problems []Problem     `json:"problems"`
	Chains   []ChainReport `json:"chains"`           // all chains, the first one first
	Sealed   *SealReport   `json:"sealed,omitempty"` // of VerifySealed
}

// Status summarizes a Report.
type Status string

// Values of Status.
const (
	Whole   Status = "whole"
	Gone    Status = "dropped"
	Changed Status = "changed"
)

// ChainReport is one chain's part of a Report.
type ChainReport struct {
	Chain   string `json:"chain,omitempty"` // empty for the first one
	Lines   uint64 `json:"lines"`
	First   uint64 `json:"first"`
	Last    Head   `json:"last"`
	Dropped uint64 `json:"dropped,omitempty"` // lines 1 to this one were removed because the chain was full
	// Since is the time of the oldest remaining line, if lines were dropped.
	Since   *time.Time `json:"since,omitempty"`
	Changes bool       `json:"changes"`           // only authenticated changes rotate this chain
	Counted uint64     `json:"counted,omitempty"` // requests that are counted by lines, but have no line of their own

	begun []string // chains recorded in its lines
}

// maxProblems limits the list. One change causes one or two problems.
const maxProblems = 100

// Verify reads all chains of a log. It compares them with their hashes, their heads, and heads recorded earlier.
// It returns an error if the log cannot be read.
func Verify(ctx context.Context, path string, known ...Head) (Report, error) {
	return verifyAll(ctx, path, known, nil)
}

// verifyAll also compares the lines with sealed heads: hashes by chain and number of line.
func verifyAll(ctx context.Context, path string, known []Head, sealed map[string]map[uint64]string) (Report, error) {
	names, err := chainsOf(path)
	if err != nil {
		return Report{}, err
	}
	sum := Report{Status: Whole, Problems: []Problem{}, Chains: []ChainReport{}}
	for _, h := range known {
		if !slices.Contains(names, h.Chain) {
			sum.Problems = append(sum.Problems, Problem{File: filepath.Base(pathOf(path, h.Chain)),
				What: fmt.Sprintf("the chain is not there: the head %s knows it", h)})
		}
	}
	for _, name := range names {
		r, chain, err := verifyChain(ctx, path, name, known, sealed[name])
		if err != nil {
			return Report{}, err
		}
		sum.add(r, chain, known)
		for _, one := range chain.begun {
			if !slices.Contains(names, one) {
				sum.Problems = append(sum.Problems, Problem{File: filepath.Base(pathOf(path, one)),
					What: "the chain is missing: the first chain has its start"})
			}
		}
	}
	for name := range sealed {
		if !slices.Contains(names, name) {
			sum.Problems = append(sum.Problems, Problem{File: filepath.Base(pathOf(path, name)),
				What: "the chain is not there: seals know it"})
		}
	}
	sum.conclude()
	return sum, nil
}

func (r *Report) conclude() {
	if r.OK = len(r.Problems) == 0; !r.OK {
		r.Status = Changed
	}
}

// add adds a chain's report. Lines up to a recorded head existed when it was recorded, so only dropped lines
// after it are a loss.
func (r *Report) add(one Report, chain ChainReport, known []Head) {
	seen := slices.ContainsFunc(known, func(h Head) bool { return h.Chain == chain.Chain && h.Seq >= one.Dropped })
	if chain.Chain == "" {
		r.First, r.Last, r.Dropped = one.First, one.Last, one.Dropped
	}
	if chain.Changes && one.Dropped > 0 && !seen {
		r.Status = Gone
	}
	r.Files, r.Lines, r.Lost, r.Torn = r.Files+one.Files, r.Lines+one.Lines, r.Lost+one.Lost, r.Torn+one.Torn
	r.Pending = r.Pending || one.Pending
	room := max(0, maxProblems-len(r.Problems))
	r.Problems = append(r.Problems, one.Problems[:min(len(one.Problems), room)]...)
	r.Chains = append(r.Chains, chain)
}

// maxTries limits the attempts to read a log that keeps removing its oldest files.
const maxTries = 5

func verifyChain(ctx context.Context, path, name string, known []Head,
	sealed map[uint64]string) (Report, ChainReport, error) {
	var own []Head
	for _, h := range known {
		if h.Chain == name {
			own = append(own, h)
		}
	}
	for try := 1; ; try++ {
		r, chain, err := verify(ctx, pathOf(path, name), name, own, sealed)
		if !errors.Is(err, errOldestGone) || try == maxTries {
			return r, chain, err
		}
	}
}

func verify(ctx context.Context, path, name string, known []Head,
	sealed map[uint64]string) (Report, ChainReport, error) {
	v := verifier{ctx: ctx, path: path, known: known, beside: len(known), sealed: maps.Clone(sealed)}
	v.report.Problems, v.chain = []Problem{}, ChainReport{Chain: name, Changes: onlyChanges(name)}
	head, there, headErr := readHead(path)
	switch {
	case headErr != nil:
		v.problem(path+headSuffix, 0, "%v", headErr)
	case !there && name == "":
		v.problem(path+headSuffix, 0, "it is missing: a cut at the end of the log cannot be detected")
	case there:
		v.known = append(v.known[:len(v.known):len(v.known)], head)
	}
	v.seen = make([]bool, len(v.known))
	err := walk(path, 0, v.file)
	if errors.Is(err, fs.ErrNotExist) && name != "" && !errors.Is(err, errOldestGone) {
		err = nil // only the head remains: end reports the lines
	}
	if err != nil {
		return Report{}, v.chain, err
	}
	v.end()
	if !there && headErr == nil && name != "" && v.report.Lines > 1 { // the head is written after the first line
		v.problem(path+headSuffix, 0, "it is missing: a cut at the end of the log cannot be detected")
	}
	c := &v.chain
	c.Lines, c.First, c.Last, c.Dropped = v.report.Lines, v.report.First, v.report.Last, v.report.Dropped
	c.Last.Chain = name
	if v.report.Dropped > 0 {
		c.Since = &v.since
	}
	return v.report, v.chain, nil
}

type verifier struct {
	ctx    context.Context
	path   string
	known  []Head // the head beside the log comes last, if there is one
	beside int    // its index
	seen   []bool
	sealed map[uint64]string // hashes of sealed lines that were not read yet, by number
	report Report
	chain  ChainReport
	since  time.Time // of the first line

	name string
	line int
	last Head      // zero before the first line
	torn hash.Hash // of the incomplete text after it
	tore int       // line at which that text begins
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
	// Stop at the present size: the rest of a line that is written meanwhile would not look like a line.
	for s := newScanner(io.LimitReader(f, st.Size())); ; {
		if v.ctx.Err() != nil {
			return context.Cause(v.ctx)
		}
		p, err := s.next()
		if errors.Is(err, io.EOF) {
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
		v.problem(v.name, v.tore, "it is not a line of the log, and no line explains it")
	}
	v.torn = nil
	return nil
}

// take verifies the next piece of a file.
func (v *verifier) take(p piece) {
	if !p.whole {
		if v.torn == nil {
			v.torn, v.tore = sha256.New(), v.line
		}
		v.torn.Write(p.raw)
		return
	}
	v.checkTorn(p.entry)
	if v.last.Seq == 0 {
		v.since = p.entry.Time
	}
	if p.entry.Action == ActionChain {
		v.chain.begun = append(v.chain.begun, p.entry.Note)
	}
	if p.entry.Anonymous && p.entry.Count > 0 {
		v.chain.Counted += uint64(p.entry.Count)
	}
	here := Head{Seq: p.entry.Seq, Hash: hashOf(p.line)}
	v.checkChain(p.entry)
	for i, h := range v.known {
		if h.Seq != here.Seq {
			continue
		}
		if v.seen[i] = true; h.Hash != here.Hash {
			v.problem(v.name, v.line, "line %d differs from head %s", h.Seq, v.nameOf(i))
		}
	}
	v.checkSeal(here)
	v.last = here
	v.report.Lines++
	v.report.Last = here
	v.report.Lost += p.entry.Lost
	if p.entry.Action == ActionRolled {
		v.report.Dropped = max(v.report.Dropped, p.entry.Dropped)
	}
}

// checkSeal compares a line with its seal, if it has one.
func (v *verifier) checkSeal(here Head) {
	hash, sealed := v.sealed[here.Seq]
	if sealed && hash != here.Hash {
		v.problem(v.name, v.line, "line %d differs from the sealed one", here.Seq)
	}
	delete(v.sealed, here.Seq)
}

// checkTorn compares incomplete text with the record of it in the next line.
func (v *verifier) checkTorn(e Entry) {
	switch {
	case e.Action == ActionTorn && v.torn != nil && hex.EncodeToString(v.torn.Sum(nil)) == e.Torn:
		v.report.Torn++
	case v.torn != nil:
		v.problem(v.name, v.tore, "it is not a line of the log, and no line explains it")
	case e.Action == ActionTorn:
		v.problem(v.name, v.line, "the incomplete line recorded here is missing")
	}
	v.torn = nil
}

// checkChain compares a line with the line before it.
func (v *verifier) checkChain(e Entry) {
	switch {
	case v.last.Seq == 0:
		v.report.First = e.Seq
		if e.Seq == 1 && e.Prev != Zero {
			v.problem(v.name, v.line, "line 1 names a line before it")
		}
	case e.Prev != v.last.Hash:
		v.problem(v.name, v.line,
			"line %d does not follow from line %d: lines were changed, removed or added",
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

// end checks whether lines are missing at either end of the log.
func (v *verifier) end() {
	if v.report.First > v.report.Dropped+1 {
		v.problem(v.path, 0, "lines %d to %d are missing: the log did not remove them itself",
			v.report.Dropped+1, v.report.First-1)
	}
	for _, seq := range slices.Sorted(maps.Keys(v.sealed)) {
		if seq >= v.report.First {
			v.problem(v.path, 0, "line %d is missing: a seal knows it", seq)
		}
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
