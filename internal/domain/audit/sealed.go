package audit

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/forkd/forkd/internal/domain/audit/seal"
)

// SealReport is the result of a verification of seals.
type SealReport struct {
	Key    string    `json:"key"`    // ID of the first key
	Seals  uint64    `json:"seals"`  // intact seals under that key
	First  uint64    `json:"first"`  // number of the oldest one
	Last   uint64    `json:"last"`   // number of the newest one
	Since  time.Time `json:"since"`  // of the oldest one
	Until  time.Time `json:"until"`  // of the newest one: lines after it are not sealed
	Others uint64    `json:"others"` // seals under other keys, which are not verified
}

// VerifySealed is Verify, and also compares the lines with their seals. first is the key that StartSealing
// returned.
func VerifySealed(ctx context.Context, path string, first seal.Key, known ...Head) (Report, error) {
	s := sealReader{first: first, path: path, heads: map[string]map[uint64]string{},
		report: SealReport{Key: first.ID()}, next: first, epoch: 1}
	if err := s.read(ctx); err != nil {
		return Report{}, err
	}
	r, err := verifyAll(ctx, path, known, s.heads)
	if err != nil {
		return Report{}, err
	}
	r.Sealed = &s.report
	r.Problems = append(s.problems, r.Problems...)
	r.conclude()
	return r, nil
}

// sealReader reads the seals of a log and collects the heads in them.
type sealReader struct {
	first, next seal.Key // next is the key of epoch
	epoch       uint64
	path        string
	heads       map[string]map[uint64]string // hash by chain and number of line
	report      SealReport
	problems    []Problem
}

func (s *sealReader) read(ctx context.Context) error {
	of := pathOf(s.path, chainSeals)
	r := reader{ctx: ctx, path: of, begun: map[string]int64{}, each: s.take}
	defer r.close()
	if err := r.files(0); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if s.report.Seals == 0 && len(s.problems) == 0 {
		s.problem("there is no seal of key %s: another key, seals that were removed, or a log without seals so far",
			s.report.Key)
	}
	return nil
}

func (s *sealReader) problem(format string, args ...any) {
	if len(s.problems) < maxProblems {
		s.problems = append(s.problems, Problem{File: baseOf(pathOf(s.path, chainSeals)), What: fmt.Sprintf(format, args...)})
	}
}

// maxEpoch limits the seals of one key: one a minute for 30 years.
const maxEpoch = 16_000_000

// take verifies one seal. The first one may have any number, as the chain of seals rotates. The others follow each
// other; the same number comes again after a crash.
func (s *sealReader) take(_ []byte, e Entry) error {
	if e.Action != ActionSealed || e.Seal == nil {
		return nil
	}
	at := *e.Seal
	if at.Key != s.report.Key {
		s.report.Others++
		return nil
	}
	switch again := s.report.Seals > 0 && at.Epoch == s.report.Last; {
	case at.Epoch == 0 || at.Epoch > maxEpoch:
		s.problem("a seal has the number %d", at.Epoch)
		return nil
	case at.Epoch < s.epoch && !again:
		s.problem("seal %d comes after seal %d", at.Epoch, s.report.Last)
		return nil
	case s.report.Seals > 0 && at.Epoch > s.report.Last+1:
		s.problem("seals %d to %d are missing", s.report.Last+1, at.Epoch-1)
	}
	for s.epoch < at.Epoch {
		s.next, s.epoch = s.next.Next(), s.epoch+1
	}
	if !s.next.Check(at.message(e.Time), at.MAC) {
		s.problem("seal %d was changed, or is not of this key", at.Epoch)
		return nil
	}
	s.note(at, e.Time)
	return nil
}

func (s *sealReader) note(at Seal, when time.Time) {
	if s.report.Seals == 0 {
		s.report.First, s.report.Since = at.Epoch, when
	}
	s.report.Seals++
	s.report.Last, s.report.Until = at.Epoch, when
	for _, h := range at.Heads {
		of := s.heads[h.Chain]
		if of == nil {
			of = map[uint64]string{}
			s.heads[h.Chain] = of
		}
		if was, there := of[h.Seq]; there && was != h.Hash {
			s.problem("seal %d has another line %d than the seals before it", at.Epoch, h.Seq)
		}
		of[h.Seq] = h.Hash
	}
}
