package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/forkd/forkd/internal/sys/filelock"
)

// The file of a State has two slots, of which one is in use. A slot is the magic, the ID of the first key (8
// bytes), the epoch (8 bytes, big endian), the key (32 bytes) and the SHA-256 of all that.
const (
	magic    = "fdseal01"
	slotBody = len(magic) + 8 + 8 + len(Key{})
	slotSize = slotBody + sha256.Size
)

// State is the key of the next seal, in a file. It belongs to one goroutine.
type State struct {
	f     *os.File
	id    [8]byte
	epoch uint64
	key   Key
}

// ErrDamaged is returned for a file that holds no key.
var ErrDamaged = errors.New("it holds no key: renew the key of the seals")

// Create makes the file of a state whose next seal is the first one of a key. It returns an error that matches
// fs.ErrExist if there is a file already. The file belongs to the owner of the directory or file like, so that
// the daemon can open it.
func Create(path, like string, first Key) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	s := State{f: f, epoch: 1, key: first}
	id := first.derive("id")
	copy(s.id[:], id[:])
	err = errors.Join(giveTo(f, like), s.write(), f.Close())
	if err != nil {
		err = errors.Join(err, os.Remove(path))
	}
	return err
}

// Open opens the file of a state. One process at a time holds it, as two would use a key twice. Close frees it.
func Open(path string) (*State, error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	s := &State{f: f}
	if err = filelock.Try(f); err != nil {
		err = fmt.Errorf("another daemon seals with it: %w", err)
	} else {
		err = s.read()
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return s, nil
}

// read takes the newer slot, and erases the other one if a crash has left a part of it.
func (s *State) read() error {
	b := make([]byte, 2*slotSize)
	if _, err := s.f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for i := range 2 {
		slot := b[i*slotSize : (i+1)*slotSize]
		sum := sha256.Sum256(slot[:slotBody])
		epoch := binary.BigEndian.Uint64(slot[len(magic)+8:])
		if string(slot[:len(magic)]) != magic || !bytes.Equal(sum[:], slot[slotBody:]) || epoch == 0 || int(epoch%2) != i {
			continue
		}
		if epoch > s.epoch {
			s.epoch = epoch
			copy(s.id[:], slot[len(magic):])
			copy(s.key[:], slot[len(magic)+16:])
		}
	}
	if s.epoch == 0 {
		return ErrDamaged
	}
	other := b[(s.epoch+1)%2*uint64(slotSize):][:slotSize]
	if !bytes.Equal(other, make([]byte, slotSize)) {
		return s.erase(s.epoch - 1)
	}
	return nil
}

// Epoch returns the number of the next seal, from 1 on.
func (s *State) Epoch() uint64 { return s.epoch }

// ID returns the ID of the first key.
func (s *State) ID() string { return fmt.Sprintf("%x", s.id) }

// MAC returns the next seal for a message.
func (s *State) MAC(message []byte) string { return s.key.MAC(message) }

// Advance replaces the key by the next one and erases it, once its seal is durable. After an error the state is
// as before, and so is the file, except that it may hold both keys.
func (s *State) Advance() error {
	next := State{f: s.f, id: s.id, epoch: s.epoch + 1, key: s.key.Next()}
	if err := next.write(); err != nil {
		return err
	}
	if err := s.erase(s.epoch); err != nil {
		return err
	}
	*s = next
	return nil
}

func (s *State) write() error {
	b := append(make([]byte, 0, slotSize), magic...)
	b = append(b, s.id[:]...)
	b = binary.BigEndian.AppendUint64(b, s.epoch)
	b = append(b, s.key[:]...)
	sum := sha256.Sum256(b)
	return s.put(s.epoch, append(b, sum[:]...))
}

func (s *State) erase(epoch uint64) error { return s.put(epoch, make([]byte, slotSize)) }

func (s *State) put(epoch uint64, slot []byte) error {
	if _, err := s.f.WriteAt(slot, int64(epoch%2)*int64(slotSize)); err != nil {
		return err
	}
	return s.f.Sync()
}

// Same reports whether the path still refers to the file of the state.
func (s *State) Same(path string) bool {
	own, err := s.f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(own, there)
}

// Close frees the file.
func (s *State) Close() error { return s.f.Close() }
