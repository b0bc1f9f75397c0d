package audit

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/forkd/forkd/internal/domain/audit/seal"
)

const (
	// sealEvery is the interval between seals while lines are written. An attacker can change the lines of the
	// last interval.
	sealEvery = time.Minute
	// sealIdle is the interval between seals of all heads, even without new lines.
	sealIdle = time.Hour
	// maxSealed limits the heads of one seal, so that its line is shorter than MaxLine.
	maxSealed = 256
)

// SealPath returns the file with the key of the next seal of a log. The log is sealed if it exists.
func SealPath(path string) string { return path + ".sealkey" }

// Seal is the part of a line that seals the heads of chains.
type Seal struct {
	Key   string `json:"key"`   // ID of the first key, in hex
	Epoch uint64 `json:"epoch"` // number of the seal under that key, from 1 on
	Heads []Head `json:"heads"` // sealed lines, which include all lines before them
	MAC   string `json:"mac"`   // HMAC-SHA256 of message, in hex
}

// message returns the bytes under the MAC.
func (s Seal) message(at time.Time) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "audit seal 1\n%s\n%d\n%s\n", s.Key, s.Epoch, at.UTC().Format(time.RFC3339Nano))
	for _, h := range s.Heads {
		b.WriteString(h.String() + "\n")
	}
	return []byte(b.String())
}

// sealer seals the heads of a log's chains. It belongs to one goroutine.
type sealer struct {
	cfg    Config // of the chain of seals
	key    string // file of the next key
	state  *seal.State
	w      *writer
	sealed map[string]uint64 // number of the last sealed line, by chain
	whole  time.Time         // when all heads were sealed last
	failed string            // the last error, which is logged once
}

func newSealer(c Config) *sealer {
	s := &sealer{key: SealPath(c.Path), sealed: map[string]uint64{}}
	c.chain, c.Path, c.fresh = chainSeals, pathOf(c.Path, chainSeals), nil
	c.MaxBytes = max(c.MaxBytes/tenantShare, min(minBytes, c.MaxBytes))
	s.cfg = c
	return s
}

// seal seals the heads of chains with lines after their last seal, and all heads once in sealIdle, if there is a
// file of keys.
func (s *sealer) seal(heads []Head) {
	err := s.open()
	if err == nil && s.state != nil {
		err = s.sealAll(heads)
	}
	switch {
	case err == nil:
		s.failed = ""
	case s.failed != err.Error():
		s.failed = err.Error()
		s.cfg.Log.Error("the audit log is not sealed", "err", err)
	}
	if err != nil {
		s.close()
	}
}

// open opens the key and the chain of seals, if the log is to be sealed. It opens a replaced key.
func (s *sealer) open() error {
	if s.state != nil && s.state.Same(s.key) {
		return nil
	}
	s.close()
	state, err := seal.Open(s.key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	w, err := openWriter(s.cfg)
	if err != nil {
		state.Close()
		return err
	}
	s.state, s.w, s.whole = state, w, time.Time{}
	s.cfg.Log.Info("audit log is sealed", "key", state.ID(), "next", state.Epoch())
	return nil
}

func (s *sealer) close() {
	if s.state == nil {
		return
	}
	_ = errors.Join(s.w.close(), s.state.Close()) // each seal is durable already
	s.state, s.w = nil, nil
}

func (s *sealer) sealAll(heads []Head) error {
	now := s.cfg.Now().UTC()
	all := now.Sub(s.whole) >= sealIdle || now.Before(s.whole) // a clock set back does not stop the seals
	var due []Head
	for _, h := range heads {
		if h.Seq > 0 && (all || h.Seq != s.sealed[h.Chain]) {
			due = append(due, h)
		}
	}
	for len(due) > 0 {
		n := min(len(due), maxSealed)
		if err := s.sealOne(now, due[:n]); err != nil {
			return err
		}
		due = due[n:]
	}
	if all {
		s.whole = now
	}
	return nil
}

// sealOne writes a seal, makes it durable, and only then gives up its key. After a crash in between the same key
// seals once more.
func (s *sealer) sealOne(now time.Time, heads []Head) error {
	mark := Seal{Key: s.state.ID(), Epoch: s.state.Epoch(), Heads: heads}
	mark.MAC = s.state.MAC(mark.message(now))
	if err := errors.Join(s.w.rollOver(), s.w.writeNotes()); err != nil {
		return err
	}
	if err := s.w.append(Entry{Time: now, Action: ActionSealed, Result: OK, Read: true, Seal: &mark}); err != nil {
		return err
	}
	if err := s.w.settle(); err != nil {
		return err
	}
	if err := s.state.Advance(); err != nil {
		return fmt.Errorf("replace the key of the seal: %w", err)
	}
	for _, h := range heads {
		s.sealed[h.Chain] = h.Seq
	}
	return nil
}

// StartSealing makes the daemon of a log seal it, within a minute. It returns the first key, which verifies the
// seals and belongs on another machine. renew replaces the key of an earlier call.
func StartSealing(path string, renew bool) (seal.Key, error) {
	key, to := seal.New(), SealPath(path)
	like := path
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		like = filepath.Dir(path)
	}
	if !renew {
		err := seal.Create(to, like, key)
		if errors.Is(err, fs.ErrExist) {
			err = fmt.Errorf("it is sealed already: renew its key only if you lost it (%w)", fs.ErrExist)
		}
		return key, err
	}
	next := to + ".new"
	if err := os.Remove(next); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return key, err
	}
	if err := seal.Create(next, like, key); err != nil {
		return key, err
	}
	return key, os.Rename(next, to)
}
